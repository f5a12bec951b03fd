"""Arrow arrays ↔ values as the evaluator has them: timestamps are milliseconds, maps and structs dictionaries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.log.schema import arrow_type
from headrace.types import Array, DataType, Map, Struct, Timestamp


def to_values(array: pa.Array, type_: DataType) -> list[Any]:
    if not _has_timestamp(type_):
        return _plain(array)
    # Not through Python's own moments, which end with the year 9999.
    numbers = array.cast(_with_numbers(arrow_type(type_)))
    return [_convert(value, type_, lambda micros: micros // 1000) for value in _plain(numbers)]


def _plain(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist(maps_as_pydicts="lossy")
    return values


def from_values(values: list[Any], type_: DataType) -> pa.Array:
    arrow = arrow_type(type_)
    if _has_timestamp(type_):
        values = [_convert(value, type_, lambda milliseconds: milliseconds * 1000) for value in values]
    try:
        return pa.array(values, arrow)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # One value that does not fit its type is null; the others are not its fault.
        return pa.array([_fitting(value, arrow) for value in values], arrow)


def _fitting(value: Any, arrow: pa.DataType) -> Any:
    try:
        pa.array([value], arrow)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
    return value


def _has_timestamp(type_: DataType) -> bool:
    match type_:
        case Timestamp():
            return True
        case Array(element):
            return _has_timestamp(element)
        case Map(key, value):
            return _has_timestamp(key) or _has_timestamp(value)
        case Struct(fields):
            return any(_has_timestamp(field) for _, field in fields)
        case _:
            return False


def _with_numbers(arrow: pa.DataType) -> pa.DataType:
    """The same with a number in place of every timestamp."""
    if pa.types.is_timestamp(arrow):
        return pa.int64()
    if pa.types.is_list(arrow):
        return pa.list_(_with_numbers(arrow.value_type))
    if pa.types.is_map(arrow):
        return pa.map_(_with_numbers(arrow.key_type), _with_numbers(arrow.item_type))
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(_with_numbers(field.type)) for field in arrow])
    return arrow


def _convert(value: Any, type_: DataType, moment: Any) -> Any:
    if value is None:
        return None
    match type_:
        case Timestamp():
            return moment(value)
        case Array(element):
            return [_convert(item, element, moment) for item in value]
        case Map(key, inner):
            return {_convert(k, key, moment): _convert(v, inner, moment) for k, v in value.items()}
        case Struct(fields):
            return {name: _convert(value.get(name), field, moment) for name, field in fields}
        case _:
            return value
