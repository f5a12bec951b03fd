"""Values and rows → JSON, the same everywhere: the HTTP API, feeds, pull queries, topic browsing.

How a type looks in JSON:

- TIMESTAMP `"2026-11-15T12:00:00.000Z"` (milliseconds; microseconds where there are any), DATE `"2026-11-15"`,
  TIME `"12:00:00.000"`
- DECIMAL a JSON number with all its digits (a JavaScript client that needs them all parses the text itself)
- BYTES base64; MAP and STRUCT objects, ARRAY arrays
- a double that is not a number (NaN, infinite) null, because JSON has no word for it

The functions return what `to_json` can write: `decimal.Decimal` stays one until then, so no digit is lost.
"""

from __future__ import annotations

import base64
import datetime
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from headrace.types import (
    Array,
    Bytes,
    Column,
    DataType,
    Date,
    Decimal,
    Double,
    Map,
    Struct,
    Time,
    Timestamp,
    display_name,
)

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
EPOCH_DATE = datetime.date(1970, 1, 1)
MICROSECOND = datetime.timedelta(microseconds=1)

Convert: TypeAlias = Callable[[Any], Any]

_encoder = msgspec.json.Encoder(decimal_format="number")


def to_json(value: Any) -> bytes:
    """JSON text. Decimals are numbers with all their digits."""
    return _encoder.encode(value)


def exact_number(text: str) -> float | decimal.Decimal:
    """Written again it has the same digits.

    >>> exact_number("0.1"), exact_number("1.50")
    (0.1, Decimal('1.50'))
    """
    number = float(text)
    return number if to_json(number) == text.encode() else decimal.Decimal(text)


_decoder = msgspec.json.Decoder(float_hook=exact_number)


def from_json(text: bytes | str) -> Any:
    """What `to_json` wrote, to the last digit."""
    return _decoder.decode(text)


def value_to_json(value: Any, type_: DataType) -> Any:
    """One value, as Arrow's `to_pylist`, a store or an evaluator gives it."""
    convert = converter(type_)
    return value if convert is None or value is None else convert(value)


def row_to_json(columns: Iterable[Column], values: Iterable[Any]) -> dict[str, Any]:
    """A row as an object, by the names people see."""
    return {
        display_name(column.name): value_to_json(value, column.type)
        for column, value in zip(columns, values, strict=True)
    }


def object_maker(columns: Iterable[Column]) -> Convert:
    """Turns rows, mappings from column to value, into objects by the names people see: `row_to_json` for many."""
    return _struct_converter([(one.name, display_name(one.name), converter(one.type)) for one in columns])


def rows_to_json(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Many rows as arrays: what a column needs is decided once, and columns that need nothing cost nothing."""
    converters = [
        (place, convert) for place, column in enumerate(columns) if (convert := converter(column.type)) is not None
    ]
    answer = [list(row) for row in rows]
    for place, convert in converters:
        for row in answer:
            if row[place] is not None:
                row[place] = convert(row[place])
    return answer


def converter(
    type_: DataType,
    special: Callable[[DataType], Convert | None] | None = None,
    name: Callable[[str], str] = display_name,
) -> Convert | None:
    """What turns a value that is not null into JSON; None if it is JSON already. `special` may give a type a form of
    its own; `name` is how a STRUCT's fields are called."""
    found = special(type_) if special is not None else None
    if found is not None:
        return found
    match type_:
        case Timestamp():
            return timestamp_to_json
        case Date():
            return date_to_json
        case Time():
            return time_to_json
        case Bytes():
            return bytes_to_json
        case Double():
            return double_to_json
        case Decimal():
            return decimal_to_json
        case Array(element):
            return _array_converter(converter(element, special, name))
        case Map(key, value):
            return _map_converter(key, converter(value, special, name))
        case Struct(fields):
            return _struct_converter([(field, name(field), converter(inner, special, name)) for field, inner in fields])
        case _:
            return None


def timestamp_to_json(value: datetime.datetime | int) -> str:
    """ISO 8601 in UTC. A number is microseconds since the epoch; a time without zone is UTC."""
    if isinstance(value, int):
        moment = EPOCH + MICROSECOND * value
    else:
        moment = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)
    precision = "milliseconds" if moment.microsecond % 1000 == 0 else "microseconds"
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def date_to_json(value: datetime.date | int) -> str:
    """A number is days since the epoch."""
    return (EPOCH_DATE + datetime.timedelta(days=value) if isinstance(value, int) else value).isoformat()


def time_to_json(value: datetime.time | int) -> str:
    """A number is milliseconds of the day."""
    if isinstance(value, datetime.time):
        return value.isoformat(timespec="milliseconds")
    seconds, milliseconds = divmod(value, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{milliseconds:03}"


def bytes_to_json(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def double_to_json(value: float) -> float | None:
    return value if value - value == 0 else None


def decimal_to_json(value: decimal.Decimal | int | float) -> decimal.Decimal:
    return value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))


def _array_converter(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: [None if value is None else convert(value) for value in values]


def _map_converter(key: DataType, convert: Convert | None) -> Convert:
    def convert_all(entries: Any) -> dict[str, Any]:
        pairs = entries.items() if isinstance(entries, Mapping) else entries
        return {
            _key_text(name, key): inner if convert is None or inner is None else convert(inner) for name, inner in pairs
        }

    return convert_all


def _key_text(value: Any, type_: DataType) -> str:
    """JSON's keys are text: a number or a boolean is written as JSON writes it."""
    shown = value_to_json(value, type_)
    return shown if isinstance(shown, str) else to_json(shown).decode()


def _struct_converter(fields: Sequence[tuple[str, str, Convert | None]]) -> Convert:
    def convert(value: Mapping[str, Any]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for field, name, inner in fields:
            item = value.get(field)
            row[name] = item if inner is None or item is None else inner(item)
        return row

    return convert
