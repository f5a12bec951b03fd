"""Arrow columns of a topic → the values of a source's columns, as the evaluator and the stores want them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.base import OFFSET, PARTITION, TIME, WINDOW_END, WINDOW_START
from headrace.sql.source import Source
from headrace.types import Array, Column, DataType, Map, Struct, Timestamp

# Where a batch keeps what every source has beside its own columns.
SYSTEM_COLUMNS = {
    "ROWTIME": TIME,
    "ROWPARTITION": PARTITION,
    "ROWOFFSET": OFFSET,
    "WINDOWSTART": WINDOW_START,
    "WINDOWEND": WINDOW_END,
}

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)

Convert: TypeAlias = Callable[[Any], Any]


def batch_column(source: Source, name: str) -> str:
    """The batch's name of a column in `source.all_columns`. A column of the source's own wins over a system one."""
    own = any(column.name == name for column in source.key + source.value)
    return name if own else SYSTEM_COLUMNS.get(name, name)


def source_rows(batch: pa.RecordBatch, source: Source, columns: Iterable[Column]) -> list[tuple[Any, ...]]:
    """Rows of the given columns of a source, from a batch that has them all."""
    values = [python_values(batch.column(batch_column(source, column.name)), column.type) for column in columns]
    return list(zip(*values, strict=True)) if values else [()] * batch.num_rows


def python_values(array: pa.Array, type_: DataType) -> list[Any]:
    """A column's values."""
    if isinstance(type_, Timestamp):
        # The log keeps microseconds, SQL sees milliseconds; a whole column is cut faster than value by value.
        return _list(pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms", "UTC")).cast(pa.int64()))
    convert = nested_converter(type_)
    values = _list(array)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _list(array: pa.Array) -> list[Any]:
    """As Arrow gives them. A value Python cannot hold (text that is no UTF-8, a date after the year 9999) must not stop
    a view or a feed: it is looked at alone, and is null if nothing better can be made of it."""
    try:
        values: list[Any] = array.to_pylist()
        return values
    except (ValueError, OverflowError):
        return [_alone(array.slice(place, 1)) for place in range(len(array))]


def _alone(array: pa.Array) -> Any:
    try:
        return array.to_pylist()[0]
    except UnicodeDecodeError:
        return array.view(pa.binary()).to_pylist()[0].decode("utf-8", "replace") if array.type == pa.utf8() else None
    except (ValueError, OverflowError):
        return None


def arrow_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """All columns of all rows by name, as Arrow gives them."""
    columns = [_list(column) for column in batch.columns]
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def nested_converter(type_: DataType) -> Convert | None:
    """What turns a value that Arrow gave into ours; None if it is already."""
    match type_:
        case Timestamp():
            return lambda moment: (moment - EPOCH) // MILLISECOND
        case Array(element):
            inner = nested_converter(element)
            return None if inner is None else lambda values: [_convert(inner, value) for value in values]
        case Map(key, value):
            keys, values = nested_converter(key), nested_converter(value)
            return lambda entries: {_convert(keys, name): _convert(values, item) for name, item in entries}
        case Struct(fields):
            return _struct_converter(fields)
        case _:
            return None


def _struct_converter(fields: tuple[tuple[str, DataType], ...]) -> Convert | None:
    converters = {name: nested_converter(type_) for name, type_ in fields}
    if not any(converters.values()):
        return None

    def convert(value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _convert(inner, value[name]) for name, inner in converters.items()}

    return convert


def _convert(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)
