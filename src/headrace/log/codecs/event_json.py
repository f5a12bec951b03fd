"""Records of a topic → the Event objects of the HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from headrace.log.base import ARRIVAL, HEADERS, ID, REST, TIME, TOMBSTONE, WINDOW_END, WINDOW_START, Records, Topic
from headrace.log.codecs.json_encode import bytes_to_json, object_maker, to_json

MakeEvent: TypeAlias = Callable[[Mapping[str, Any], int, int], dict[str, Any]]
"""Of a row, the topic's and the system columns by name as Arrow's `to_pylist` gives them, its partition, its offset."""


def records_to_json(records: Records, topic: Topic) -> Iterator[dict[str, Any]]:
    """Each record as an Event object: partition, offset, arrival, time_ms, id, key, value, rest, headers, window."""
    rows = records.batch.to_pylist(maps_as_pydicts=None)
    offsets: Sequence[int] = records.offsets or range(records.first_offset, records.next_offset)
    make = event_maker(topic)
    for row, offset in zip(rows, offsets, strict=True):
        yield make(row, records.partition, offset)


def event_maker(topic: Topic) -> MakeEvent:
    """For many records of a topic: what its columns need is decided once."""
    key, value, windowed = object_maker(topic.spec.key), object_maker(topic.spec.value), bool(topic.spec.windowed)

    def make(row: Mapping[str, Any], partition: int, offset: int) -> dict[str, Any]:
        event: dict[str, Any] = {
            "partition": partition,
            "offset": offset,
            "arrival": row.get(ARRIVAL),
            "time_ms": row[TIME],
            "id": row.get(ID),
            "key": key(row),
            "value": None if row[TOMBSTONE] else value(row),
            "rest": _rest_to_json(row.get(REST)),
            "headers": headers_to_json(row.get(HEADERS)),
        }
        if windowed:
            event["window"] = {"start": row[WINDOW_START], "end": row[WINDOW_END]}
        return event

    return make


def _rest_to_json(rest: str | None) -> msgspec.Raw | None:
    """Fields nobody declared go out exactly as they came in."""
    return None if rest is None else msgspec.Raw(rest.encode())


def headers_to_json(headers: list[tuple[str, bytes | None]] | None) -> dict[str, Any] | None:
    if not headers:
        return None
    return {name: _header_to_json(value) for name, value in headers}


def _header_to_json(value: bytes | None) -> Any:
    """A header's bytes as text if they are text."""
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": bytes_to_json(value)}


def fields_json(event: dict[str, Any]) -> bytes:
    """An Event object's fields as one JSON object, those that nobody declared too."""
    plain = to_json({**(event["key"] or {}), **event["value"]})
    rest = bytes(event["rest"]) if event["rest"] is not None else b"{}"
    if rest == b"{}":
        return plain
    return rest if plain == b"{}" else plain[:-1] + b"," + rest[1:]
