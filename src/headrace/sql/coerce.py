"""Rules about types: what arithmetic gives, what two types have in common, what may be converted into what."""

from __future__ import annotations

import decimal
from typing import Any

from headrace.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    TIME,
    TIMESTAMP,
    VARCHAR,
    Array,
    DataType,
    Decimal,
    Map,
    Struct,
)

MAX_PRECISION = 38
# Scale that a result too long for 38 digits keeps at least, as in Spark.
_MIN_SCALE = 6
_DIGITS = {INTEGER: 10, BIGINT: 19}
_TEMPORAL = (DATE, TIME, TIMESTAMP)
# Besides to the same type, between numbers, and between anything plain and VARCHAR.
_EXPLICIT = {(TIMESTAMP, DATE), (TIMESTAMP, TIME), (DATE, TIMESTAMP)}


def is_number(type_: DataType | None) -> bool:
    return type_ in (INTEGER, BIGINT, DOUBLE) or isinstance(type_, Decimal)


def is_nested(type_: DataType) -> bool:
    return isinstance(type_, Array | Map | Struct)


def is_ordered(type_: DataType) -> bool:
    """Whether < and > are defined."""
    return not is_nested(type_) and type_ != BOOLEAN


def contains_map(type_: DataType) -> bool:
    match type_:
        case Map():
            return True
        case Array(element):
            return contains_map(element)
        case Struct(fields):
            return any(contains_map(field) for _, field in fields)
        case _:
            return False


def has_text_keys(type_: DataType) -> bool:
    """Whether every map in it has VARCHAR keys."""
    match type_:
        case Map(key, value):
            return key == VARCHAR and has_text_keys(value)
        case Array(element):
            return has_text_keys(element)
        case Struct(fields):
            return all(has_text_keys(field) for _, field in fields)
        case _:
            return True


def as_decimal(type_: DataType) -> Decimal | None:
    """The decimal that holds every value of a whole number's type, or the type itself."""
    if isinstance(type_, Decimal):
        return type_
    return Decimal(_DIGITS[type_], 0) if type_ in _DIGITS else None


def literal_type(value: Any) -> DataType | None:
    """The type of a constant; None for NULL, which has none of its own."""
    match value:
        case None:
            return None
        case bool():
            return BOOLEAN
        case int():
            return INTEGER if -(2**31) <= value < 2**31 else BIGINT
        case float():
            return DOUBLE
        case decimal.Decimal():
            digits, exponent = value.as_tuple().digits, int(value.as_tuple().exponent)
            scale = max(-exponent, 0)
            return Decimal(max(len(digits) + max(exponent, 0), scale, 1), scale)
        case bytes():
            return BYTES
        case _:
            return VARCHAR


def common_type(left: DataType, right: DataType) -> DataType | None:
    """The type both can be converted to without asking; None if there is none."""
    if left == right:
        return left
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    match left, right:
        case Array(a), Array(b):
            element = common_type(a, b)
            return Array(element) if element else None
        case Map(a, b), Map(c, d):
            key, value = common_type(a, c), common_type(b, d)
            return Map(key, value) if key and value else None
        case Struct(fields), Struct(others):
            return _common_struct(dict(fields), dict(others))
        case _:
            return TIMESTAMP if {left, right} == {DATE, TIMESTAMP} else None


def _common_struct(left: dict[str, DataType], right: dict[str, DataType]) -> DataType | None:
    """The fields of both, by name; as in KSQL, the right's come first."""
    shared = {name: common_type(left[name], right[name]) for name in left if name in right}
    fields = {name: shared.get(name, type_) for name, type_ in (right | (left | right)).items()}
    known = tuple((name, type_) for name, type_ in fields.items() if type_ is not None)
    return Struct(known) if len(known) == len(fields) else None


def _common_number(left: DataType, right: DataType) -> DataType:
    if DOUBLE in (left, right):
        return DOUBLE
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        a, b = as_decimal(left), as_decimal(right)
        assert a is not None
        assert b is not None
        scale = max(a.scale, b.scale)
        return _bounded(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
    return BIGINT


def arithmetic_type(operator: str, left: DataType, right: DataType) -> DataType | None:
    """What `left operator right` gives; None if it is not defined. Decimals grow as in KSQL, up to 38 digits."""
    if not is_number(left) or not is_number(right):
        return None
    common = _common_number(left, right) if left != right else left
    if not isinstance(common, Decimal):
        return common
    a, b = as_decimal(left), as_decimal(right)
    assert a is not None
    assert b is not None
    whole_a, whole_b = a.precision - a.scale, b.precision - b.scale
    match operator:
        case "+" | "-":
            scale = max(a.scale, b.scale)
            return _bounded(max(whole_a, whole_b) + scale + 1, scale)
        case "*":
            return _bounded(a.precision + b.precision + 1, a.scale + b.scale)
        case "/":
            scale = max(_MIN_SCALE, a.scale + b.precision + 1)
            return _bounded(whole_a + b.scale + scale, scale)
        case _:
            scale = max(a.scale, b.scale)
            return _bounded(min(whole_a, whole_b) + scale, scale)


def _bounded(precision: int, scale: int) -> Decimal:
    """Within 38 digits: places after the point are given up first, but not below six."""
    if precision <= MAX_PRECISION:
        return Decimal(max(precision, 1), scale)
    kept = max(MAX_PRECISION - (precision - scale), min(scale, _MIN_SCALE))
    return Decimal(MAX_PRECISION, kept)


def widens(source: DataType, target: DataType) -> bool:
    """Whether a value may become `target` without asking, because nothing can be lost but a double's last digits."""
    if isinstance(target, Decimal):
        exact = as_decimal(source)
        return exact is not None and (
            exact.scale <= target.scale and exact.precision - exact.scale <= target.precision - target.scale
        )
    return common_type(source, target) == target


def castable(source: DataType, target: DataType) -> bool:
    """Whether CAST may be asked to try."""
    if source == target or (source, target) in _EXPLICIT or (is_number(source) and is_number(target)):
        return True
    if target == VARCHAR:
        return source != BYTES
    if source == VARCHAR:
        return is_number(target) or target == BOOLEAN or target in _TEMPORAL
    match source, target:
        case Array(a), Array(b):
            return castable(a, b)
        case Map(a, b), Map(c, d):
            return castable(a, c) and castable(b, d)
        case Struct(fields), Struct(others):
            known = dict(fields)
            return all(name not in known or castable(known[name], type_) for name, type_ in others)
        case _:
            return False
