"""How fields of a Protobuf message become values of a column, and back."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

from headrace.errors import UsageError
from headrace.log.codecs.avro_shapes import Convert, ranged, scaled
from headrace.log.codecs.json_encode import EPOCH, MICROSECOND
from headrace.log.codecs.json_values import DAY_MS, FIRST_MS, LAST_MS, Mismatch
from headrace.log.codecs.proto_types import entry_fields, is_map, scalar_name
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

Get = Callable[[Any], Any]
"""A message → the value of one of its fields, as the column wants it."""
Set = Callable[[Any, Any], None]
"""A message and a value that is not null → the field is set."""

_WIDE = decimal.Context(prec=76)
_INTEGERS = ("int32", "sint32", "sfixed32", "uint32", "fixed32", "int64", "sint64", "sfixed64", "uint64", "fixed64")
_DECIMAL = "confluent.type.Decimal"
_WRAPPERS = "google.protobuf."


def find_field(message: Any, name: str) -> Any | None:
    """By its name, if need be in another case."""
    exact = message.fields_by_name.get(name)
    alike = (one for one in message.fields if one.name.casefold() == name.casefold())
    return exact or next(alike, None)


# Reading


def getter(field: Any, type_: DataType) -> Get:
    """`UsageError` if the field's type has nothing to do with the column's."""
    name: str = field.name
    if field.is_repeated:
        return _repeated(field, type_)
    convert = _value(field, type_)
    if not field.has_presence:
        return (lambda message: getattr(message, name)) if convert is None else _converted(name, convert)
    if convert is None:
        return lambda message: getattr(message, name) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name)) if message.HasField(name) else None


def _converted(name: str, convert: Convert) -> Get:
    return lambda message: convert(getattr(message, name))


def _repeated(field: Any, type_: DataType) -> Get:
    name: str = field.name
    match type_:
        case Map(key, value) if is_map(field):
            return _map_getter(field, key, value)
        case Array(Array() | Map() as element) if field.message_type is not None:
            inner = find_field(field.message_type, "items")
            if inner is None:
                raise UsageError(f"Protobuf's `{field.name}` cannot be read as {type_}")
            get = getter(inner, element)
            return lambda message: [get(item) for item in getattr(message, name)]
        case Array(element):
            convert = _value(field, element)
            if convert is None:
                return lambda message: list(getattr(message, name))
            return lambda message: [convert(item) for item in getattr(message, name)]
        case _:
            raise UsageError(f"Protobuf's repeated `{field.name}` cannot be read as {type_}")


def _map_getter(field: Any, key_type: DataType, value_type: DataType) -> Get:
    name: str = field.name
    key, value = entry_fields(field.message_type)
    if not field.message_type.GetOptions().map_entry:
        get_key, get_value = getter(key, key_type), getter(value, value_type)

        def entries(message: Any) -> list[tuple[Any, Any]]:
            pairs = [(get_key(item), get_value(item)) for item in getattr(message, name)]
            if any(one is None for one, _ in pairs):
                raise Mismatch("has an entry without a key")
            return pairs

        return entries
    of_key, of_value = _value(key, key_type), _value(value, value_type)
    return lambda message: [
        (one if of_key is None else of_key(one), item if of_value is None else of_value(item))
        for one, item in getattr(message, name).items()
    ]


def _value(field: Any, type_: DataType) -> Convert | None:
    """What makes a column's value of a field's; None if it is one already."""
    if field.message_type is not None:
        return _message_value(field, type_)
    kind = scalar_name(field)
    match type_, kind:
        case (Boolean(), "bool") | (Varchar(), "string") | (Bytes(), "bytes") | (Double(), "double" | "float"):
            return None
        case (BigInt() | Double() | Integer(), _) if kind in _INTEGERS:
            return None
        case Varchar(), "enum":
            values = {one.number: one.name for one in field.enum_type.values}
            return lambda number: values.get(number, str(number))
        case (Integer() | BigInt(), "enum"):
            return None
        case Bytes(), "string":
            return lambda text: text.encode()
        case (Timestamp(), "int64" | "sint64" | "fixed64" | "sfixed64" | "uint64"):
            return lambda value: ranged(value * 1000, FIRST_MS * 1000, LAST_MS * 1000 + 999, type_)
        case _:
            raise UsageError(f"Protobuf's `{kind}` cannot be read as {type_}")


def _message_value(field: Any, type_: DataType) -> Convert:
    full: str = field.message_type.full_name
    match type_, full:
        case Timestamp(), "google.protobuf.Timestamp":
            low, high = FIRST_MS * 1000, LAST_MS * 1000 + 999
            return lambda value: ranged(value.seconds * 1_000_000 + value.nanos // 1000, low, high, type_)
        case Date(), "google.type.Date":
            return _date
        case Time(), "google.type.TimeOfDay":
            return _time
        case Decimal(precision, scale), "confluent.type.Decimal":
            return lambda value: scaled(value.value, value.scale, precision, scale)
        case Struct(fields), _:
            return _struct_getter(field.message_type, fields)
        case _ if (
            full.startswith(_WRAPPERS) and full.endswith("Value") and "value" in field.message_type.fields_by_name
        ):
            convert = _value(field.message_type.fields_by_name["value"], type_)
            return lambda wrapper: wrapper.value if convert is None else convert(wrapper.value)
        case _:
            raise UsageError(f"Protobuf's `{full}` cannot be read as {type_}")


def _date(value: Any) -> datetime.date:
    try:
        return datetime.date(value.year, value.month, value.day)
    except (ValueError, OverflowError):
        raise Mismatch(f"is not a date: {value.year}-{value.month}-{value.day}") from None


def _time(value: Any) -> int:
    seconds = (value.hours * 60 + value.minutes) * 60 + value.seconds
    return ranged(seconds * 1000 + value.nanos // 1_000_000, 0, DAY_MS - 1, Time())


def _struct_getter(message: Any, fields: tuple[tuple[str, DataType], ...]) -> Convert:
    plan: list[tuple[str, Get | None]] = []
    for name, type_ in fields:
        found = find_field(message, name)
        plan.append((name, None if found is None else getter(found, type_)))
    return lambda value: {name: None if get is None else get(value) for name, get in plan}


# Writing


def setter(field: Any, type_: DataType) -> Set:
    """`UsageError` if the field cannot hold the column."""
    name: str = field.name
    if field.is_repeated:
        return _repeated_setter(field, type_)
    if field.message_type is not None:
        fill = filler(field.message_type, type_)
        return lambda message, value: fill(getattr(message, name), value)
    write = _scalar_writer(field, type_)
    if write is None:
        return lambda message, value: setattr(message, name, value)
    return lambda message, value: setattr(message, name, write(value))


def _scalar_writer(field: Any, type_: DataType) -> Convert | None:
    kind = scalar_name(field)
    match type_, kind:
        case (Boolean(), "bool") | (Varchar(), "string") | (Bytes(), "bytes") | (Double(), "double" | "float"):
            return None
        case Integer(), _ if kind in _INTEGERS:
            return None
        case BigInt(), "int64" | "sint64" | "sfixed64" | "uint64" | "fixed64":
            return None
        case Varchar(), "enum":
            numbers = {one.name: one.number for one in field.enum_type.values}

            def write(value: str) -> Any:
                if value not in numbers:
                    raise Mismatch(f"is not a value of the enum: {value[:60]}")
                return numbers[value]

            return write
        case _:
            raise UsageError(f"Protobuf's `{kind}` cannot hold {type_}")


def filler(message: Any, type_: DataType) -> Set:
    """Fills a message that stands for one value."""
    full: str = message.full_name
    match type_, full:
        case Timestamp(), "google.protobuf.Timestamp":
            return _fill_timestamp
        case Date(), "google.type.Date":
            return _fill_date
        case Time(), "google.type.TimeOfDay":
            return _fill_time
        case Decimal(precision, scale), "confluent.type.Decimal":
            return _decimal_filler(precision, scale)
        case Struct(fields), _:
            return struct_filler(message, fields)
        case _ if full.startswith(_WRAPPERS) and full.endswith("Value") and "value" in message.fields_by_name:
            return setter(message.fields_by_name["value"], type_)
        case _:
            raise UsageError(f"Protobuf's `{full}` cannot hold {type_}")


def _fill_timestamp(message: Any, value: datetime.datetime) -> None:
    seconds, micros = divmod((value - EPOCH) // MICROSECOND, 1_000_000)
    message.seconds, message.nanos = seconds, micros * 1000
    message.SetInParent()


def _fill_date(message: Any, value: datetime.date) -> None:
    message.year, message.month, message.day = value.year, value.month, value.day


def _fill_time(message: Any, value: int) -> None:
    seconds, milliseconds = divmod(value, 1000)
    message.hours, message.minutes, message.seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    message.nanos = milliseconds * 1_000_000
    message.SetInParent()


def _decimal_filler(precision: int, scale: int) -> Set:
    def fill(message: Any, value: decimal.Decimal) -> None:
        unscaled = int(value.scaleb(scale, _WIDE))
        message.value = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
        message.precision, message.scale = precision, scale

    return fill


def struct_filler(message: Any, fields: tuple[tuple[str, DataType], ...]) -> Set:
    plan: list[tuple[str, Set]] = []
    for name, type_ in fields:
        found = find_field(message, name)
        if found is None:
            raise UsageError(f"the message `{message.full_name}` has no field for `{name}`")
        plan.append((name, setter(found, type_)))

    def fill(target: Any, value: Any) -> None:
        target.SetInParent()
        for name, set_ in plan:
            item = value.get(name)
            if item is not None:
                set_(target, item)

    return fill


def _repeated_setter(field: Any, type_: DataType) -> Set:
    name: str = field.name
    match type_:
        case Map(key, value) if is_map(field):
            return _map_setter(field, key, value)
        case Array(Array() | Map() as element) if field.message_type is not None:
            inner = find_field(field.message_type, "items")
            if inner is None:
                raise UsageError(f"Protobuf's `{field.name}` cannot hold {type_}")
            return _added(name, setter(inner, element))
        case Array(element) if field.message_type is not None:
            return _added(name, filler(field.message_type, element))
        case Array(element):
            write = _scalar_writer(field, element)

            def extend(message: Any, values: list[Any]) -> None:
                if any(value is None for value in values):
                    raise Mismatch("cannot hold null: PROTOBUF's arrays have none")
                getattr(message, name).extend(values if write is None else [write(value) for value in values])

            return extend
        case _:
            raise UsageError(f"Protobuf's repeated `{field.name}` cannot hold {type_}")


def _added(name: str, fill: Set) -> Set:
    def extend(message: Any, values: list[Any]) -> None:
        target = getattr(message, name)
        for value in values:
            if value is None:
                raise Mismatch("cannot hold null: PROTOBUF's arrays have none")
            fill(target.add(), value)

    return extend


def _map_setter(field: Any, key_type: DataType, value_type: DataType) -> Set:
    name: str = field.name
    key, value = entry_fields(field.message_type)
    if field.message_type.GetOptions().map_entry:
        return _real_map_setter(field, key, value, key_type, value_type)
    set_key, set_value = setter(key, key_type), setter(value, value_type)

    def extend(message: Any, entries: Any) -> None:
        target = getattr(message, name)
        for one, item in entries.items() if isinstance(entries, dict) else entries:
            entry = target.add()
            set_key(entry, one)
            if item is not None:
                set_value(entry, item)

    return extend


def _real_map_setter(field: Any, key: Any, value: Any, key_type: DataType, value_type: DataType) -> Set:
    name: str = field.name
    of_key = _scalar_writer(key, key_type)
    fill = filler(value.message_type, value_type) if value.message_type is not None else None
    of_value = None if fill is not None else _scalar_writer(value, value_type)

    def update(message: Any, entries: Any) -> None:
        target = getattr(message, name)
        for one, item in entries.items() if isinstance(entries, dict) else entries:
            if item is None:
                raise Mismatch("cannot hold null: PROTOBUF's maps have none")
            place = one if of_key is None else of_key(one)
            if fill is not None:
                fill(target[place], item)
            else:
                target[place] = item if of_value is None else of_value(item)

    return update
