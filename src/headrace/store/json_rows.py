"""Values of the evaluator and the stores → JSON. `log.codecs.json_encode` decides how a type looks; here moments are
milliseconds, there they are microseconds. Moments after the year 9999, which have no ISO form, are null."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headrace.log.codecs.json_encode import rows_to_json
from headrace.log.codecs.json_values import FIRST_MS, LAST_MS
from headrace.types import Array, Column, DataType, Map, Struct, Timestamp

Convert = Callable[[Any], Any]


def to_json_rows(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Rows as lists of JSON-able values."""
    converters = [(place, in_microseconds(column.type)) for place, column in enumerate(columns)]
    needed = [(place, convert) for place, convert in converters if convert is not None]
    if needed:
        converted = [list(row) for row in rows]
        for place, convert in needed:
            for row in converted:
                row[place] = _apply(convert, row[place])
        rows = converted
    return rows_to_json(columns, rows)


def in_microseconds(type_: DataType) -> Convert | None:
    """What turns the milliseconds in a value into microseconds; None if there can be none in it."""
    match type_:
        case Timestamp():
            return lambda moment: moment * 1000 if FIRST_MS <= moment <= LAST_MS else None
        case Array(element):
            inner = in_microseconds(element)
            return None if inner is None else lambda values: [_apply(inner, value) for value in values]
        case Map(key, value):
            keys, values = in_microseconds(key), in_microseconds(value)
            if keys is None and values is None:
                return None
            return lambda entries: {_apply(keys, name): _apply(values, item) for name, item in entries.items()}
        case Struct(fields):
            converters = {name: in_microseconds(inner) for name, inner in fields}
            if not any(converters.values()):
                return None
            return lambda row: {name: _apply(convert, row.get(name)) for name, convert in converters.items()}
        case _:
            return None


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)
