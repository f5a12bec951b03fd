"""CAST: a function from values of one type to values of another. It raises where there is no such value."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from headrace.sql import datetimes, numeric
from headrace.sql.text import value_text
from headrace.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    TIME,
    TIMESTAMP,
    VARCHAR,
    Array,
    DataType,
    Map,
    Struct,
)
from headrace.types import Decimal as DecimalType

Caster = Callable[[Any], Any]
_TRUE, _FALSE = ("true", "yes"), ("false", "no")


def caster(source: DataType, target: DataType) -> Caster:
    """How to convert; values are not null. `source` and `target` are `castable`."""
    if source == target:
        return _same
    match source, target:
        case _, DecimalType(precision, scale):
            return _to_decimal(precision, scale)
        case Array(a), Array(b):
            return _to_array(_or_null(caster(a, b)))
        case Map(a, b), Map(c, d):
            return _to_map(caster(a, c), _or_null(caster(b, d)))
        case Struct(fields), Struct(others):
            return _to_struct(dict(fields), dict(others))
        case _, _ if target == VARCHAR:
            return _to_text(source)
        case _:
            return _PLAIN[target](source)


def _same(value: Any) -> Any:
    return value


def _or_null(convert: Caster) -> Caster:
    return lambda value: None if value is None else convert(value)


def _to_decimal(precision: int, scale: int) -> Caster:
    def convert(value: Any) -> Decimal:
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(_number_text(value))
        fitted = numeric.fit_decimal(exact, precision, scale)
        if fitted is None:
            raise ValueError(f"`{value}` does not fit into DECIMAL({precision}, {scale})")
        return fitted

    return convert


def _number_text(value: Any) -> Any:
    # Python reads digits of any script and underscores; SQL does not.
    if isinstance(value, str) and (not value.isascii() or "_" in value):
        raise ValueError(f"`{value}` is not a number")
    return value.strip() if isinstance(value, str) else value


def _to_integer(source: DataType) -> Caster:
    return _whole(source, numeric.wrap_integer, numeric.saturate_integer, numeric.INTEGER_MIN, numeric.INTEGER_MAX)


def _to_bigint(source: DataType) -> Caster:
    return _whole(source, numeric.wrap_bigint, numeric.saturate_bigint, numeric.BIGINT_MIN, numeric.BIGINT_MAX)


def _whole(source: DataType, wrap: Callable[[int], int], saturate: Caster, low: int, high: int) -> Caster:
    def parse(text: str) -> int:
        value = int(_number_text(text))
        if not low <= value <= high:
            raise ValueError(f"`{text}` is out of range")
        return value

    if source == VARCHAR:
        return parse
    if source == DOUBLE:
        return saturate
    return lambda value: wrap(int(value))


def _to_double(source: DataType) -> Caster:
    return (lambda text: float(_number_text(text))) if source == VARCHAR else float


def _to_boolean(source: DataType) -> Caster:
    return lambda text: _begins(text, _TRUE)


def _begins(text: str, words: tuple[str, ...]) -> bool:
    return bool(text.strip()) and any(word.startswith(text.strip().lower()) for word in words)


def boolean_word(text: str) -> bool:
    """Of a constant nobody cast, which must be a word for one or the other; CAST takes anything else for false."""
    if not _begins(text, _TRUE + _FALSE):
        raise ValueError(f"`{text}` is not BOOLEAN")
    return _begins(text, _TRUE)


def _to_timestamp(source: DataType) -> Caster:
    return datetimes.parse_moment if source == VARCHAR else datetimes.date_moment


def _to_date(source: DataType) -> Caster:
    return datetimes.parse_date if source == VARCHAR else datetimes.moment_date


def _to_time(source: DataType) -> Caster:
    return datetimes.parse_time if source == VARCHAR else lambda value: value % datetimes.DAY_MS


_PLAIN: dict[DataType, Callable[[DataType], Caster]] = {
    INTEGER: _to_integer,
    BIGINT: _to_bigint,
    DOUBLE: _to_double,
    BOOLEAN: _to_boolean,
    TIMESTAMP: _to_timestamp,
    DATE: _to_date,
    TIME: _to_time,
}


def _to_text(source: DataType) -> Caster:
    match source:
        case Array(element):
            inner = _text_or_null(element)
            return lambda values: "[" + ", ".join(inner(value) for value in values) + "]"
        case Map(key, value):
            of_key, of_value = _text_or_null(key), _text_or_null(value)
            return lambda entries: "{" + ", ".join(f"{of_key(k)}={of_value(v)}" for k, v in entries.items()) + "}"
        case Struct(fields):
            parts = [(name, _text_or_null(type_)) for name, type_ in fields]
            return lambda row: (
                "Struct{" + ",".join(f"{n}={text(row.get(n))}" for n, text in parts if row.get(n) is not None) + "}"
            )
        case _:
            return {TIMESTAMP: datetimes.moment_text, TIME: datetimes.time_text}.get(source, value_text)


def _text_or_null(type_: DataType) -> Caster:
    convert = _same if type_ == VARCHAR else _to_text(type_)
    return lambda value: "null" if value is None else convert(value)


def _to_array(convert: Caster) -> Caster:
    return lambda values: [convert(value) for value in values]


def _to_map(of_key: Caster, of_value: Caster) -> Caster:
    return lambda entries: {of_key(key): of_value(value) for key, value in entries.items()}


def _to_struct(fields: dict[str, DataType], targets: dict[str, DataType]) -> Caster:
    """By name; what the target has not is left out, what the source has not is null."""
    shared = {name: _or_null(caster(fields[name], type_)) for name, type_ in targets.items() if name in fields}
    return lambda row: {name: shared[name](row.get(name)) if name in shared else None for name in targets}
