"""A queue's messages, read from its topic."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from headrace.errors import OffsetOutOfRange
from headrace.log.base import Log, Topic
from headrace.log.codecs.event_json import records_to_json
from headrace.log.codecs.json_encode import to_json


def read_events(log: Log, topic: Topic, partition: int, offsets: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Those of these records that are still there, as the HTTP API shows them. Offsets grow."""
    for start, end in runs(offsets):
        try:
            for records in log.read(topic.name, partition, start, end):
                yield from records_to_json(records, topic)
        except OffsetOutOfRange:
            continue  # retention was faster


def runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbours together.

    >>> list(runs([3, 4, 5, 9]))
    [(3, 6), (9, 10)]
    """
    start = end = None
    for offset in offsets:
        if offset != end:
            if start is not None and end is not None:
                yield start, end
            start = offset
        end = offset + 1
    if start is not None and end is not None:
        yield start, end


def key_hashes(log: Log, topic: Topic, partition: int, offsets: Sequence[int]) -> dict[int, bytes | None]:
    """Eight bytes for each record's key, none for a record without one. Two keys with the same hash only wait for each
    other without need."""
    names = [column.name for column in topic.spec.key]
    if not names:
        return {}
    found: dict[int, bytes | None] = {}
    for start, end in runs(offsets):
        try:
            for records in log.read(topic.name, partition, start, end, names):
                rows = zip(*(records.batch.column(name).to_pylist() for name in names), strict=True)
                places = records.offsets or range(records.first_offset, records.next_offset)
                for offset, row in zip(places, rows, strict=True):
                    found[offset] = None if all(value is None for value in row) else _hash(row)
        except OffsetOutOfRange:
            continue
    return found


def _hash(key: tuple[Any, ...]) -> bytes:
    return hashlib.blake2b(repr(key).encode(), digest_size=8).digest()


def payload_of(event: dict[str, Any], topic: Topic) -> bytes:
    """The bytes of a dead letter: a raw record's own; of a typed one the event, as it could be sent again."""
    if topic.spec.kind == "raw":
        value = (event["value"] or {}).get("value")
        return b"" if value is None else base64.b64decode(value)
    rest = {} if event["rest"] is None else msgspec.json.decode(event["rest"])
    whole = event["key"] | (event["value"] or {"$tombstone": True}) | rest | {"$time": event["time_ms"]}
    return to_json(whole | ({"$headers": event["headers"]} if event["headers"] else {}))
