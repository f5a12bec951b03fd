"""JSON values → values of a column, strictly: a number is not text and text is not a number.

Each type has a `Reader`. `convert` takes one value, exactly and slowly, and says what is wrong with it. `build` takes a
whole column and answers with an Arrow array, or None if any value needs a closer look; what it builds is what `convert`
would have given.
What is converted on purpose:

- an integer is a DOUBLE; DECIMAL takes a number or text with as many decimals as declared, or fewer
- TIMESTAMP is ISO 8601 text (UTC unless it says otherwise) or milliseconds since the epoch
- DATE is `YYYY-MM-DD` or days since the epoch, TIME is `HH:MM:SS.mmm` or milliseconds of the day
- BYTES is base64; a MAP's keys are text, read as JSON where the key's type is not VARCHAR
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.codecs.constants import constant
from headrace.log.codecs.times import parse_date, parse_iso, parse_time_of_day
from headrace.log.schema import arrow_type
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
)

Convert: TypeAlias = Callable[[Any], Any]
Build: TypeAlias = Callable[[list[Any]], pa.Array | None]

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""What a TIMESTAMP can hold: the years 1 to 9999."""
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
DAY_MS = 86_400_000
NULL = type(None)
THOUSAND = constant(1000)
_SHOWN = 60


class Mismatch(Exception):
    """A value that does not fit; `path` is where it is inside the column (`[2].zip`)."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message, self.path = message, path

    def within(self, step: str) -> Mismatch:
        return Mismatch(self.message, step + self.path)


class Reader:
    """How one column is read. `build` may give up; `convert` decides."""

    def __init__(self, type_: DataType) -> None:
        self.type = type_
        self.arrow: pa.DataType = arrow_type(type_)
        self.convert: Convert = converter(type_)
        self._build: Build | None = _builder(type_)

    def build(self, values: list[Any]) -> pa.Array | None:
        return None if self._build is None else self._build(values)

    def array(self, converted: Sequence[Any]) -> pa.Array:
        """An array of what `convert` gave."""
        return pa.array(converted, self.arrow)


def shown(value: Any) -> str:
    """The value as JSON, short enough for a message."""
    try:
        text = msgspec.json.Encoder(decimal_format="number").encode(value).decode()
    except (RecursionError, ValueError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def must_be(what: str, value: Any) -> Mismatch:
    return Mismatch(f"must be {what}, got {shown(value)}")


# One value


def converter(type_: DataType) -> Convert:
    """Null is null in every type; the rest is the type's business."""
    inner = _converter(type_)
    return lambda value: None if value is None else inner(value)


def _converter(type_: DataType) -> Convert:
    match type_:
        case Boolean():
            return _boolean
        case Integer():
            return lambda value: _integer(value, 31, type_)
        case BigInt():
            return lambda value: _integer(value, 63, type_)
        case Double():
            return _double
        case Decimal(precision, scale):
            return lambda value: _decimal(value, precision, scale)
        case Varchar():
            return _text
        case Bytes():
            return _bytes
        case Date():
            return _date
        case Time():
            return _time
        case Timestamp():
            return _timestamp
        case Array(element):
            return _array(element)
        case Map(key, value):
            return _map(key, value)
        case Struct(fields):
            return _struct(fields)


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise must_be("true or false", value)
    return value


def _integer(value: Any, bits: int, type_: DataType) -> int:
    if type(value) is not int:
        raise must_be("an integer", value)
    if not -(1 << bits) <= value < 1 << bits:
        raise Mismatch(f"does not fit into {type_}: {shown(value)}")
    return value


def _double(value: Any) -> float:
    if type(value) not in (float, int, decimal.Decimal):
        raise must_be("a number", value)
    try:
        double = float(value)
    except OverflowError:
        double = float("inf")
    if double - double != 0:
        raise Mismatch(f"does not fit into DOUBLE: {shown(value)}")
    return double


def _decimal(value: Any, precision: int, scale: int) -> decimal.Decimal:
    if type(value) not in (float, int, decimal.Decimal, str):
        raise must_be("a number", value)
    try:
        number = decimal.Decimal(str(value) if isinstance(value, float) else value)
    except (decimal.InvalidOperation, ValueError):
        raise must_be("a number", value) from None
    if not number.is_finite():
        raise must_be("a number", value)
    # The exponent is looked at first: 1e999999999 must not be written out.
    if number and (number.adjusted() >= precision - scale or number.adjusted() < -scale):
        raise Mismatch(f"does not fit into DECIMAL({precision}, {scale}): {shown(value)}")
    try:
        return number.quantize(decimal.Decimal(1).scaleb(-scale), context=_EXACT)
    except decimal.DecimalException:
        raise Mismatch(f"does not fit into DECIMAL({precision}, {scale}): {shown(value)}") from None


# Exact or not at all: 12.345 is not a DECIMAL(4, 2).
_EXACT = decimal.Context(prec=76, traps=[decimal.Inexact, decimal.InvalidOperation])


def _text(value: Any) -> str:
    if type(value) is not str:
        raise must_be("a string", value)
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not str:
        raise must_be("a string of base64", value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise must_be("base64", value) from None


def _date(value: Any) -> datetime.date:
    if type(value) is int and FIRST_DAY <= value <= LAST_DAY:
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=value)
    date = parse_date(value) if type(value) is str else None
    if date is None:
        raise must_be("a date (`YYYY-MM-DD`)", value)
    return date


def _time(value: Any) -> int:
    if type(value) is int and 0 <= value < DAY_MS:
        return value
    time = parse_time_of_day(value) if type(value) is str else None
    if time is None:
        raise must_be("a time of day (`HH:MM:SS`)", value)
    return time


def _timestamp(value: Any) -> int:
    """Microseconds."""
    if type(value) is int and FIRST_MS <= value <= LAST_MS:
        return value * 1000
    moment = parse_iso(value) if type(value) is str else None
    if moment is None or not FIRST_MS * 1000 <= moment < (LAST_MS + 1) * 1000:
        raise must_be("a timestamp (ISO 8601 or milliseconds)", value)
    return moment


def _array(element: DataType) -> Convert:
    convert = converter(element)

    def read(value: Any) -> list[Any]:
        if type(value) is not list:
            raise must_be("an array", value)
        return [_inside(convert, inner, f"[{place}]") for place, inner in enumerate(value)]

    return read


def _map(key: DataType, value: DataType) -> Convert:
    convert_key = _text if isinstance(key, Varchar) else _key_from_text(key)
    convert_value = converter(value)

    def read(entries: Any) -> list[tuple[Any, Any]]:
        if type(entries) is not dict:
            raise must_be("an object", entries)
        return [
            (_inside(convert_key, name, f".{name}"), _inside(convert_value, inner, f".{name}"))
            for name, inner in entries.items()
        ]

    return read


def _key_from_text(key: DataType) -> Convert:
    convert = _converter(key)

    def read(name: str) -> Any:
        try:
            value = msgspec.json.decode(name)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            value = name
        if value is None:
            raise must_be(f"a key of type {key}", name)
        return convert(value)

    return read


def _struct(fields: tuple[tuple[str, DataType], ...]) -> Convert:
    readers = {name.casefold(): (name, converter(type_)) for name, type_ in fields}

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise must_be("an object", value)
        row: dict[str, Any] = {}
        for spelling, inner in value.items():
            found = readers.get(spelling.casefold())
            if found is None:
                continue
            name, convert = found
            if name in row:
                raise Mismatch(f"has the field {shown(spelling)} twice")
            row[name] = _inside(convert, inner, f".{spelling}")
        return row

    return read


def _inside(convert: Convert, value: Any, step: str) -> Any:
    try:
        return convert(value)
    except Mismatch as mismatch:
        raise mismatch.within(step) from None


# A whole column


def _builder(type_: DataType) -> Build | None:
    """Only for the types that events are made of; the others are read value by value."""
    arrow = arrow_type(type_)
    match type_:
        case Varchar():
            return lambda values: _plain(values, {str, NULL}, arrow)
        case Boolean():
            return lambda values: _plain(values, {bool, NULL}, arrow)
        case Integer() | BigInt():
            return lambda values: _plain(values, {int, NULL}, arrow)
        case Double():
            return lambda values: _plain(values, {float, int, NULL}, arrow)
        case Timestamp():
            return lambda values: _timestamps(values, arrow)
        case _:
            return None


def _plain(values: list[Any], allowed: set[type], arrow: pa.DataType) -> pa.Array | None:
    # Exact types: a bool is an int to Python, not to us.
    if not set(map(type, values)) <= allowed:
        return None
    try:
        return pa.array(values, arrow)
    except (pa.ArrowInvalid, OverflowError):
        return None


def _timestamps(values: list[Any], arrow: pa.DataType) -> pa.Array | None:
    kinds = set(map(type, values)) - {NULL}
    if kinds == {int}:
        array = _plain(values, {int, NULL}, pa.int64())
        if array is None or not within(array, FIRST_MS, LAST_MS):
            return None
        return pc.multiply(array, THOUSAND).view(arrow)
    return iso_array(values, arrow) if kinds == {str} else None


def iso_array(texts: list[Any], arrow: pa.DataType) -> pa.Array | None:
    """ISO 8601 texts that all have a zone, or all have none; None if Arrow cannot read them all."""
    array = pa.array(texts, pa.string())
    for type_ in (arrow, pa.timestamp("us")):
        try:
            moments = pc.cast(array, type_).view(pa.int64())
        except pa.ArrowInvalid:
            continue
        return moments.view(arrow) if within(moments, FIRST_MS * 1000, LAST_MS * 1000 + 999) else None
    return None


def within(array: pa.Array, low: int, high: int) -> bool:
    """Are all values that are not null between the two, both included?"""
    bounds = pc.min_max(array).as_py()
    return bounds["min"] is None or (low <= bounds["min"] and bounds["max"] <= high)
