"""Values as ksqlDB writes them: fields of structs under their SQL names, decimals as numbers with all their digits,
timestamps without a zone, and of a time of day no more than it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headrace.types import Array, Column, DataType, Decimal, Map, Struct, Time, Timestamp, display_name

Convert = Callable[[Any], Any]


def row_converter(columns: Sequence[Column]) -> Callable[[list[Any]], list[Any]]:
    """From a row of the HTTP API to one of ksqlDB's."""
    converters = [converter(column.type) for column in columns]
    if not any(converters):
        return lambda row: row
    return lambda row: [_apply(convert, value) for convert, value in zip(converters, row, strict=True)]


def converter(type_: DataType) -> Convert | None:
    """None if the value is the same in both.

    >>> convert = converter(Array(Struct((("F1", Array(Decimal(4, 2))),))))
    >>> msgspec.json.encode(convert([{"f1": ["1.50"]}]))
    b'[{"F1":[1.50]}]'
    """
    match type_:
        case Decimal():
            return lambda value: msgspec.Raw(value.encode()) if isinstance(value, str) else value
        case Timestamp():
            return lambda value: value.removesuffix("Z")
        case Time():
            return lambda value: value.removesuffix(".000").removesuffix(":00")
        case Array(element):
            inner = converter(element)
            return None if inner is None else lambda values: [_apply(inner, value) for value in values]
        case Map(_, element):
            inner = converter(element)
            return None if inner is None else lambda entries: {k: _apply(inner, v) for k, v in entries.items()}
        case Struct(fields):
            named = [(name, display_name(name), converter(field)) for name, field in fields]
            return lambda row: {name: _apply(convert, row.get(shown)) for name, shown, convert in named}
        case _:
            return None


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)
