"""What the log refuses after it was acknowledged here, such as events of a topic that is gone: dead letters, each with
the event as it could be sent again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.log.base import HEADERS, ID, REST, TIME, TOMBSTONE, Append
from headrace.log.codecs.event_json import headers_to_json
from headrace.log.codecs.json_encode import object_maker, to_json
from headrace.log.dead_letters import DeadLetter
from headrace.log.schema import RAW_KEY, RAW_VALUE, data_type
from headrace.types import Column

SOURCE = "buffer"
_RAW = {RAW_KEY, RAW_VALUE}
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def letters_of(append: Append, reason: str) -> Iterator[DeadLetter]:
    """One for each row; the same, however often it is handed over, because each has an id."""
    fields = [field for field in append.batch.schema if not field.name.startswith("$")]
    columns = [Column(field.name, data_type(field.type)) for field in fields]
    make = object_maker(columns)
    raw = bool(columns) and set(columns) <= _RAW
    for row in append.batch.to_pylist(maps_as_pydicts=None):
        payload = row.get(RAW_VALUE.name) or b"" if raw else _event(make(row), row)
        yield DeadLetter(append.topic, reason, SOURCE, row.get(ID), payload)


def _event(values: dict[str, Any], row: dict[str, Any]) -> bytes:
    rest: dict[str, Any] = {} if row.get(REST) is None else dict(_fields.decode(row[REST]))
    # A field that holds more than its column declares is in both: as it was sent it is whole.
    sent = {name.casefold() for name in rest}
    event = {name: value for name, value in values.items() if value is not None and name.casefold() not in sent} | rest
    if row.get(TIME) is not None:
        event[TIME] = row[TIME]
    if row.get(TOMBSTONE):
        event[TOMBSTONE] = True
    if row.get(HEADERS):
        event[HEADERS] = headers_to_json(row[HEADERS])
    return to_json(event)
