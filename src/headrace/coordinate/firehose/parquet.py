"""JSON records as a Parquet file, whatever they are: a column that cannot be one of its own type is text, and a record
that does not fit is named, alone. No record may keep the others from their file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.collect.split import read_one
from headrace.log.base import Topic
from headrace.log.codecs.event_time import ANY_TIME
from headrace.log.codecs.json_codec import JsonCodec, Unreadable
from headrace.log.schema import arrow_type

MOST_FIELDS = 500
"""Of all records of a file. Objects with names that are ids would make a file of nothing but columns."""
MOST_COLUMNS = 1000
"""With those within structures."""
MOST_LEVELS = 16
"""Deeper structures can be written, but hardly anybody could read them."""
CELLS = 4_000_000
"""Held in memory at once; a row group."""
_MISFIT = (pa.ArrowException, ArithmeticError, ValueError, TypeError, RecursionError)
_plain: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_as_sent = msgspec.json.Decoder(dict[str, msgspec.Raw])

Event = dict[str, Any]


def parquet_file(values: Sequence[bytes], schema: Topic | None) -> tuple[bytes | None, dict[int, str]]:
    """The file, and the records that do not fit: number → reason."""
    return _typed(values, schema) if schema is not None else _as_they_are(values)


def _typed(values: Sequence[bytes], schema: Topic) -> tuple[bytes | None, dict[int, str]]:
    codec = JsonCodec(schema)
    events = [read_one(value, codec.decoder) for value in values]
    decoded = codec.decode(events, values.__getitem__, 0, ANY_TIME)
    batch = decoded.batch
    if batch is None:
        return None, decoded.rejected
    # All columns, also those that no record has: a file without columns would have no rows either.
    fields = [pa.field(column.name, arrow_type(column.type)) for column in (*schema.spec.key, *schema.spec.value)]
    arrays = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in fields
    ]
    return _written(pa.schema(fields), [pa.Table.from_arrays(arrays, schema=pa.schema(fields))]), decoded.rejected


def _as_they_are(values: Sequence[bytes]) -> tuple[bytes | None, dict[int, str]]:
    names: dict[str, None] = {}
    events: list[Event] = []
    kept: list[bytes] = []
    rejected: dict[int, str] = {}
    for number, value in enumerate(values):
        event = read_one(value, _plain)
        reason = _misfit(event, names)
        if reason is None:
            names |= dict.fromkeys(event)
            events.append(event)
            kept.append(value)
        else:
            rejected[number] = reason
    if not events:
        return None, rejected
    schema = _schema(events, list(names))
    return _written(schema, _tables(events, kept, schema)), rejected


def _misfit(event: object, names: dict[str, None]) -> str | None:
    if isinstance(event, Unreadable):
        return f"the record {event.reason}"
    if not isinstance(event, dict) or not event:
        return "is no JSON object" if event != {} else "is an object without fields"
    if len(names) + len(event) > MOST_FIELDS and len(names.keys() | event.keys()) > MOST_FIELDS:
        return f"its file would have more than {MOST_FIELDS} columns, as many as there are different fields"
    return None


def _schema(events: Sequence[Event], names: Sequence[str]) -> pa.Schema:
    left = MOST_COLUMNS - len(names)
    fields = []
    for name in names:
        found = _type_of([event.get(name) for event in events], left + 1)
        left -= _leaves(found) - 1
        fields.append(pa.field(name, found))
    return pa.schema(fields)


def _type_of(values: list[Any], most: int) -> pa.DataType:
    """The one type that all of them have and Parquet knows; text, if there is none."""
    try:
        found = pa.infer_type(values)
        if _levels(found) > MOST_LEVELS or (leaves := _leaves(found)) > most:
            return pa.string()
        if pa.types.is_floating(found) and any(type(value) is bool for value in values):
            return pa.string()  # Arrow would make numbers of them
        pq.ParquetWriter(io.BytesIO(), pa.schema([("value", found)])).close()
        for part in _parts(len(values), leaves):
            pa.array(values[part], found)
    except _MISFIT:
        return pa.string()
    return found


def _tables(events: Sequence[Event], values: Sequence[bytes], schema: pa.Schema) -> Iterator[pa.Table]:
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    leaves = sum(_leaves(field.type) for field in schema)
    for part in _parts(len(events), leaves):
        rows = [_with_texts(*one, texts) for one in zip(events[part], values[part], strict=True)]
        yield pa.Table.from_pylist(rows, schema=schema)


def _with_texts(event: Event, value: bytes, names: Sequence[str]) -> Event:
    """What has to be text and is none, as it was sent: a number with all its digits."""
    others = [name for name in names if event.get(name) is not None and type(event[name]) is not str]
    if not others:
        return event
    sent = _as_sent.decode(value)
    return event | {name: bytes(sent[name]).decode() for name in others}


def _written(schema: pa.Schema, tables: Iterable[pa.Table]) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema, compression="snappy") as writer:
        for table in tables:
            writer.write_table(table)
    return sink.getvalue()


def _parts(rows: int, leaves: int) -> Iterator[slice]:
    at_once = max(1, CELLS // leaves)
    return (slice(first, first + at_once) for first in range(0, rows, at_once))


def _children(type_: pa.DataType) -> list[pa.DataType]:
    return [type_.field(number).type for number in range(type_.num_fields)]


def _leaves(type_: pa.DataType) -> int:
    return sum(_leaves(child) for child in _children(type_)) if type_.num_fields else 1


def _levels(type_: pa.DataType) -> int:
    return 1 + max(map(_levels, _children(type_)), default=0)
