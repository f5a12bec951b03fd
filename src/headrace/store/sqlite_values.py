"""How a value is kept in SQLite: so that it comes back as it was, and compares and sorts there as it does in the
evaluator.

| SQL type | in SQLite |
|---|---|
| BOOLEAN, INTEGER, BIGINT, DATE, TIME, TIMESTAMP | INTEGER |
| DOUBLE | REAL; NaN as the text `NaN`, which SQLite sorts above all numbers, as Spark does |
| DECIMAL(p, s) | TEXT: a sign and p digits, negative ones as complement, so that text order is number order |
| VARCHAR, BYTES | TEXT, BLOB |
| ARRAY, MAP, STRUCT | TEXT: JSON |
"""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

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

NAN = "NaN"
EPOCH_DATE = datetime.date(1970, 1, 1)
INTEGERS = range(-(2**63), 2**63)
# The default context rounds to 28 digits; a DECIMAL has up to 38.
EXACT = decimal.Context(prec=200, traps=[decimal.InvalidOperation])


def affinity(type_: DataType) -> str:
    match type_:
        case Boolean() | Integer() | BigInt() | Date() | Time() | Timestamp():
            return "INTEGER"
        case Double():
            return "REAL"
        case Bytes():
            return "BLOB"
        case _:
            return "TEXT"


def encoder(type_: DataType) -> Convert | None:
    """What turns a value that is not null into SQLite's; None if it is already."""
    match type_:
        case Date():
            return lambda date: (date - EPOCH_DATE).days
        case Double():
            return lambda value: NAN if value != value else value
        case Decimal(precision, scale):
            return lambda value: encode_decimal(value, precision, scale)
        case Array() | Map() | Struct():
            convert = _json_encoder(type_)
            return lambda value: msgspec.json.encode(convert(value)).decode()
        case _:
            return None


def decoder(type_: DataType) -> Convert | None:
    """The inverse of `encoder`."""
    match type_:
        case Boolean():
            return bool
        case Date():
            return lambda days: EPOCH_DATE + datetime.timedelta(days)
        case Double():
            return lambda value: math.nan if value == NAN else value
        case Decimal(precision, scale):
            return lambda value: decode_decimal(value, precision, scale)
        case Array() | Map() | Struct():
            convert = _json_decoder(type_)
            return lambda value: convert(msgspec.json.decode(value))
        case _:
            return None


def encode_decimal(value: decimal.Decimal, precision: int, scale: int) -> str:
    """`ValueError` if it does not fit exactly.

    >>> [encode_decimal(decimal.Decimal(text), 4, 2) for text in ("-1.50", "0", "12.34")]
    ['09850', '10000', '11234']
    """
    scaled = EXACT.scaleb(value, scale) if value.is_finite() else value
    number, limit = int(scaled), 10**precision
    if number != scaled or not -limit < number < limit:
        raise ValueError(f"{value} is no DECIMAL({precision}, {scale})")
    sign, digits = ("1", number) if number >= 0 else ("0", limit + number)
    return sign + str(digits).zfill(precision)


def decode_decimal(text: str, precision: int, scale: int) -> decimal.Decimal:
    """
    >>> decode_decimal("09850", 4, 2)
    Decimal('-1.50')
    """
    number = int(text[1:]) - (0 if text[0] == "1" else 10**precision)
    return EXACT.scaleb(decimal.Decimal(number), -scale)


def _json_encoder(type_: DataType) -> Convert:
    match type_:
        case Array(element):
            inner = _or_null(_json_encoder(element))
            return lambda values: [inner(value) for value in values]
        case Map(key, value):
            keys, values = _or_null(_json_encoder(key)), _or_null(_json_encoder(value))
            return lambda entries: [[keys(name), values(item)] for name, item in entries.items()]
        case Struct(fields):
            convert = [(name, _or_null(_json_encoder(field))) for name, field in fields]
            return lambda value: [inner(value[name]) for name, inner in convert]
        case Double():
            return lambda value: value if math.isfinite(value) else str(value)
        case Date():
            return lambda date: (date - EPOCH_DATE).days
        case Decimal():
            return str
        case Bytes():
            return lambda value: base64.b64encode(value).decode()
        case _:
            return _itself


def _json_decoder(type_: DataType) -> Convert:
    match type_:
        case Array(element):
            inner = _or_null(_json_decoder(element))
            return lambda values: [inner(value) for value in values]
        case Map(key, value):
            keys, values = _or_null(_json_decoder(key)), _or_null(_json_decoder(value))
            return lambda entries: {keys(name): values(item) for name, item in entries}
        case Struct(fields):
            convert = [(name, _or_null(_json_decoder(field))) for name, field in fields]
            return lambda values: {name: inner(value) for (name, inner), value in zip(convert, values, strict=True)}
        case Double():
            return float
        case Date():
            return lambda days: EPOCH_DATE + datetime.timedelta(days)
        case Decimal():
            return decimal.Decimal
        case Bytes():
            return base64.b64decode
        case _:
            return _itself


def _itself(value: Any) -> Any:
    return value


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def encode_constant(value: Any, type_: DataType) -> Any:
    """A constant of a query, to be compared with a column of `type_`. `ValueError` if SQLite has no such value in
    that column's form: then the comparison cannot be made there."""
    if value is None:
        return None
    expected = _PYTHON_TYPES.get(type(type_), ())
    if not isinstance(value, expected) or (isinstance(value, bool) and not isinstance(type_, Boolean)):
        raise ValueError(f"{value!r} is no {type_}")
    if isinstance(value, int) and value not in INTEGERS:
        raise ValueError(f"{value} is too large")
    if isinstance(value, str):
        value.encode()  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
    convert = encoder(type_)
    return value if convert is None else convert(value)


_PYTHON_TYPES: dict[type, tuple[type, ...]] = {
    Boolean: (bool,),
    Integer: (int,),
    BigInt: (int,),
    Double: (float,),
    Decimal: (decimal.Decimal,),
    Varchar: (str,),
    Bytes: (bytes,),
    Date: (datetime.date,),
    Time: (int,),
    Timestamp: (int,),
}
