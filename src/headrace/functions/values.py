"""Values on their way into Python functions and back: as the evaluator has them, and as people write them.

Inside, a TIMESTAMP is milliseconds and a TIME milliseconds of the day; functions get `datetime` (in UTC) and `time`. A
struct's fields have the names that people see.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from collections.abc import Callable
from typing import Any

from headrace.types import (
    Array,
    BigInt,
    Boolean,
    Bytes,
    DataType,
    Date,
    Decimal,
    Double,
    Integer,
    Map,
    Struct,
    Time,
    Timestamp,
    Varchar,
    display_name,
)

Convert = Callable[[Any], Any]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
LIMITS = {"INTEGER": 2**31, "BIGINT": 2**63}


class Misfit(ValueError):
    """What a function gave is not what it said it would."""

    def __init__(self, value: Any, type_: DataType) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "…"
        super().__init__(f"should give {type_}, gave {shown} ({type(value).__name__})")


def given(type_: DataType) -> Convert | None:
    """How an argument is handed over; None if it is as it is."""
    match type_:
        case Timestamp():
            return lambda value: EPOCH + datetime.timedelta(milliseconds=value)
        case Time():
            return lambda value: (EPOCH + datetime.timedelta(milliseconds=value)).time()
        case Array(element):
            inner = given(element)
            return None if inner is None else _each(inner)
        case Map(_, value_type):
            inner = given(value_type)
            return None if inner is None else _each_item(inner)
        case Struct(fields):
            return _given_struct(fields)
        case _:
            return None


def _each(inner: Convert) -> Convert:
    return lambda values: [None if value is None else inner(value) for value in values]


def _each_item(inner: Convert) -> Convert:
    return lambda values: {key: None if value is None else inner(value) for key, value in values.items()}


def _given_struct(fields: tuple[tuple[str, DataType], ...]) -> Convert:
    parts = [(name, display_name(name), given(type_) or (lambda value: value)) for name, type_ in fields]

    def convert(struct: dict[str, Any]) -> dict[str, Any]:
        return {shown: None if struct.get(name) is None else inner(struct[name]) for name, shown, inner in parts}

    return convert


def taken(type_: DataType) -> Convert:
    """How a result is taken back, `Misfit` if it is none of that type. Null is null."""
    convert = _taken(type_)

    def take(value: Any) -> Any:
        if value is None:
            return None
        # numpy's scalars know what they are in Python's words.
        if type(value).__module__ == "numpy" and hasattr(value, "item"):
            value = value.item()
        return convert(value)

    return take


def _taken(type_: DataType) -> Convert:
    match type_:
        case Boolean():
            return _instance(type_, bool)
        case Integer() | BigInt():
            return lambda value: _integer(value, type_)
        case Double():
            return lambda value: _double(value, type_)
        case Decimal():
            return lambda value: _decimal(value, type_)
        case Varchar():
            return _instance(type_, str)
        case Bytes():
            return lambda value: (
                bytes(value) if isinstance(value, bytes | bytearray | memoryview) else _refuse(value, type_)
            )
        case Date():
            return lambda value: _date(value, type_)
        case Time():
            return lambda value: _time(value, type_)
        case Timestamp():
            return lambda value: _timestamp(value, type_)
        case Array(element):
            inner = taken(element)
            return lambda value: [inner(one) for one in value] if _is_list(value) else _refuse(value, type_)
        case Map(key, item):
            keys, items = taken(key), taken(item)
            return lambda value: (
                {keys(k): items(v) for k, v in value.items()} if isinstance(value, dict) else _refuse(value, type_)
            )
        case Struct():
            return _taken_struct(type_)


def _refuse(value: Any, type_: DataType) -> Any:
    raise Misfit(value, type_)


def _instance(type_: DataType, kind: type) -> Convert:
    return lambda value: value if isinstance(value, kind) else _refuse(value, type_)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | set | frozenset) or hasattr(value, "tolist")


def _integer(value: Any, type_: DataType) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -LIMITS[str(type_)] <= value < LIMITS[str(type_)]:
        raise Misfit(value, type_)
    return value


def _double(value: Any, type_: DataType) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise Misfit(value, type_)
    return float(value)


def _decimal(value: Any, type_: Decimal) -> decimal.Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise Misfit(value, type_)
    with decimal.localcontext(prec=type_.precision):
        try:
            number = decimal.Decimal(repr(value)) if isinstance(value, float) else decimal.Decimal(value)
            return number.quantize(decimal.Decimal(1).scaleb(-type_.scale), decimal.ROUND_HALF_UP)
        except decimal.InvalidOperation:
            raise Misfit(value, type_) from None


def _date(value: Any, type_: DataType) -> datetime.date:
    if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
        raise Misfit(value, type_)
    return value


def _time(value: Any, type_: DataType) -> int:
    if not isinstance(value, datetime.time):
        raise Misfit(value, type_)
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def _timestamp(value: Any, type_: DataType) -> int:
    """One without a zone is in UTC."""
    if not isinstance(value, datetime.datetime):
        raise Misfit(value, type_)
    moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
    return (moment - EPOCH) // datetime.timedelta(milliseconds=1)


def _taken_struct(type_: Struct) -> Convert:
    parts = [(name, display_name(name), taken(field)) for name, field in type_.fields]

    def convert(value: Any) -> dict[str, Any]:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        if not isinstance(value, dict):
            raise Misfit(value, type_)
        known = {name for name, shown, _ in parts} | {shown for _, shown, _ in parts}
        if unknown := [name for name in value if name not in known]:
            raise ValueError(f"gave a field `{unknown[0]}`, which {type_} has not")
        return {name: inner(value.get(name, value.get(shown))) for name, shown, inner in parts}

    return convert
