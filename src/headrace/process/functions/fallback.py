"""A function's Python implementation, run by Spark over Arrow batches: slower, and always right."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.errors import UsageError
from headrace.log.schema import arrow_type
from headrace.process.functions.arguments import Arguments
from headrace.process.spark_types import spark_type
from headrace.sql.expressions import Lambda
from headrace.sql.functions import FUNCTIONS
from headrace.types import Array, DataType, Map, Struct, Timestamp


def lower_in_python(of: Arguments) -> Column:
    if of.name not in FUNCTIONS:
        raise UsageError(f"function `{of.name}` does not exist", hint="SHOW FUNCTIONS lists what does")
    if any(isinstance(argument, Lambda) for argument in of.call.arguments):
        raise UsageError(f"function `{of.name}` cannot run in a query: its lambda has no Spark form")
    name, result = of.name, of.result
    types = tuple(of.type(place) for place in range(len(of)))

    def evaluate(*arrays: pa.Array) -> pa.Array:
        return evaluate_arrays(name, types, result, arrays)

    # Spark would try to make sense of the annotations; without any, it is a function from arrays to an array.
    evaluate.__annotations__ = {}
    # Spark wants a batch to know its length by; a function without arguments gets one.
    return F.arrow_udf(evaluate, spark_type(result))(*(of.columns or [F.lit(0)]))


def evaluate_arrays(name: str, types: tuple[DataType, ...], result: DataType, arrays: tuple[pa.Array, ...]) -> pa.Array:
    """Runs in Spark's Python workers."""
    columns = [to_values(array, type_) for array, type_ in zip(arrays, types, strict=False)]
    rows = zip(*columns, strict=True) if columns else ((),) * len(arrays[0])
    function = FUNCTIONS[name]
    call = partial(function.evaluate, time.time_ns() // 1_000_000) if function.clock else function.evaluate
    return from_values([_value(call, function.nulls, row) for row in rows], result)


def _value(call: Any, nulls: bool, row: tuple[Any, ...]) -> Any:
    if not nulls and any(value is None for value in row):
        return None
    try:
        return call(*row)
    except Exception:
        return None


def to_values(array: pa.Array, type_: DataType) -> list[Any]:
    """As the Python evaluator has them: timestamps are milliseconds, maps and structs dictionaries."""
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
