"""Rows of the evaluator → an Arrow table, for whoever wants columns: moments are timestamps, times of day are times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headrace.log.schema import arrow_type
from headrace.types import Array, Column, DataType, Map, Struct, Time, Timestamp, display_name

Convert = Callable[[Any], Any]


def to_table(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Columns are called as they are shown."""
    schema = pa.schema([pa.field(display_name(column.name), table_type(column.type)) for column in columns])
    arrays = [_array([row[place] for row in rows], column.type) for place, column in enumerate(columns)]
    return pa.Table.from_arrays(arrays, schema=schema)


def table_type(type_: DataType) -> pa.DataType:
    """As the log's, but a time of day is one."""
    match type_:
        case Time():
            return pa.time32("ms")
        case Array(element):
            return pa.list_(table_type(element))
        case Map(key, value):
            return pa.map_(table_type(key), table_type(value))
        case Struct(fields):
            return pa.struct([pa.field(name, table_type(field)) for name, field in fields])
        case _:
            return arrow_type(type_)


def _array(values: list[Any], type_: DataType) -> pa.Array:
    if isinstance(type_, Timestamp):
        return pa.array(values, pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(table_type(type_))
    convert = _converter(type_)
    if convert is not None:
        values = [None if value is None else convert(value) for value in values]
    return pa.array(values, table_type(type_))


def _converter(type_: DataType) -> Convert | None:
    """What Arrow takes for a value that is not null; None if the value itself."""
    match type_:
        case Timestamp():
            return lambda milliseconds: milliseconds * 1000
        case Array(element):
            inner = _converter(element)
            return None if inner is None else lambda values: [_apply(inner, value) for value in values]
        case Map(key, value):
            keys, items = _converter(key), _converter(value)
            return lambda entries: [(_apply(keys, name), _apply(items, item)) for name, item in entries.items()]
        case Struct(fields):
            parts = {name: _converter(field) for name, field in fields}
            if not any(parts.values()):
                return None
            return lambda row: {name: _apply(part, row.get(name)) for name, part in parts.items()}
        case _:
            return None


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def stream_bytes(table: pa.Table) -> bytes:
    """The table in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body
