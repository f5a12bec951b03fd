"""How values of an Avro type become values of a column, and back.

Logical types are taken out of a schema before fastavro sees it: it then hands over plain numbers and bytes, which whole
columns are made of faster than of dates and decimals. A `Shape` knows what the numbers mean.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import UsageError
from headrace.log.codecs.json_values import DAY_MS, FIRST_DAY, FIRST_MS, LAST_DAY, LAST_MS, Mismatch, must_be
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

Convert = Callable[[Any], Any]
_WIDE = decimal.Context(prec=76)
# Logical type → how many of its units are a microsecond's worth, upside down: micros per unit.
MICROS = {
    "timestamp-millis": 1000,
    "timestamp-micros": 1,
    "local-timestamp-millis": 1000,
    "local-timestamp-micros": 1,
    None: 1000,
}
_NUMBERS = {"int": 32, "long": 64}


def plain(tree: Any) -> Any:
    """A schema without its logical types."""
    if isinstance(tree, list):
        return [plain(branch) for branch in tree]
    if not isinstance(tree, dict):
        return tree
    found = {name: value for name, value in tree.items() if name not in ("logicalType", "precision", "scale")}
    for inner in ("type", "items", "values"):
        if inner in found:
            found[inner] = plain(found[inner])
    if "fields" in found:
        found["fields"] = [one | {"type": plain(one["type"])} for one in found["fields"]]
    return found


class Types:
    """The named types of a schema."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def resolve(self, tree: Any) -> Any:
        while True:
            if isinstance(tree, str) and tree in self._names:
                return self._names[tree]
            if isinstance(tree, dict) and not isinstance(tree.get("type"), str):
                tree = tree["type"]
                continue
            return tree

    def branches(self, tree: Any) -> list[Any]:
        """The types a value may have, but for null."""
        tree = self.resolve(tree)
        found = tree if isinstance(tree, list) else [tree]
        return [resolved for branch in found if (resolved := self.resolve(branch)) not in ("null", {"type": "null"})]

    def field(self, record: Any, name: str) -> dict[str, Any] | None:
        """By its name, if need be in another case."""
        fields: list[dict[str, Any]] = record["fields"]
        exact = [one for one in fields if one["name"] == name]
        alike = [one for one in fields if one["name"].casefold() == name.casefold()]
        return next(iter(exact + alike), None)


def kind_of(tree: Any) -> str:
    kind: str = tree if isinstance(tree, str) else tree["type"]
    return kind


def logical_of(tree: Any) -> str | None:
    return tree.get("logicalType") if isinstance(tree, dict) else None


def reader(tree: Any, type_: DataType, types: Types) -> Convert | None:
    """What makes a column's value of one that fastavro read; None if it is one already. `UsageError` if the types have
    nothing to do with each other."""
    converts = [_reader(branch, type_, types) for branch in types.branches(tree)]
    if not converts:
        return lambda value: None
    if len(converts) == 1:
        [convert] = converts
        return None if convert is None else lambda value: None if value is None else convert(value)
    # A union of several: whichever fits. A value of another branch is a mismatch of its own row.
    return _any_of(converts, type_)


def _any_of(converts: list[Convert | None], type_: DataType) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        for one in converts:
            try:
                return value if one is None else one(value)
            except (Mismatch, TypeError, ValueError, AttributeError):
                continue
        raise must_be(f"a value of type {type_}", str(value)[:40])

    return convert


def _reader(tree: Any, type_: DataType, types: Types) -> Convert | None:
    kind, logical = kind_of(tree), logical_of(tree)
    match type_, kind:
        case (Boolean(), "boolean") | (Bytes(), "bytes" | "fixed") | (Varchar(), "string" | "enum"):
            return None
        case (BigInt() | Double(), "int" | "long") | (Double(), "float" | "double") | (Integer(), "int"):
            return None
        case Integer(), "long":
            return lambda value: ranged(value, -(1 << 31), (1 << 31) - 1, type_)
        case Bytes(), "string":
            return lambda value: value.encode()
        case Varchar(), "bytes":
            return _text
        case Decimal(precision, scale), "bytes" | "fixed" if logical == "decimal":
            return _decimal_reader(tree.get("scale", 0), precision, scale)
        case Decimal(precision, scale), "int" | "long":
            return _decimal_number(precision, scale)
        case Date(), "int":
            return lambda value: ranged(value, FIRST_DAY, LAST_DAY, type_)
        case Time(), "int":
            return lambda value: ranged(value, 0, DAY_MS - 1, type_)
        case Time(), "long":
            return lambda value: ranged(value // 1000 if logical == "time-micros" else value, 0, DAY_MS - 1, type_)
        case Timestamp(), "long" if logical in MICROS:
            per = MICROS[logical]
            return lambda value: ranged(value * per, FIRST_MS * 1000, LAST_MS * 1000 + 999, type_)
        case Array(element), "array":
            return _array_reader(tree, element, types)
        case Map(), "map" | "array":
            return _map_reader(tree, type_, types)
        case Struct(fields), "record":
            return _struct_reader(tree, fields, types)
        case _:
            raise UsageError(f"Avro's `{logical or kind}` cannot be read as {type_}")


def ranged(value: int, low: int, high: int, type_: DataType) -> int:
    """`Mismatch` unless it is between the two, both included."""
    if not low <= value <= high:
        raise Mismatch(f"does not fit into {type_}: {value}")
    return value


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Mismatch("is not UTF-8") from None


def _decimal_reader(written: int, precision: int, scale: int) -> Convert:
    return lambda value: scaled(value, written, precision, scale)


def scaled(value: bytes, written: int, precision: int, scale: int) -> decimal.Decimal:
    """A number without its point, big-endian, with `written` decimals → DECIMAL(precision, scale), exactly."""
    if len(value) > 64 or not -1000 <= written <= 1000:
        raise Mismatch(f"does not fit into DECIMAL({precision}, {scale})")
    unscaled = int.from_bytes(value, "big", signed=True)
    if written < scale:
        unscaled *= 10 ** (scale - written)
    elif written > scale:
        unscaled, lost = divmod(unscaled, 10 ** (written - scale))
        if lost:
            raise Mismatch(f"has more than {scale} decimals")
    if abs(unscaled) >= 10**precision:
        raise Mismatch(f"does not fit into DECIMAL({precision}, {scale})")
    return decimal.Decimal(unscaled).scaleb(-scale, _WIDE)


def _decimal_number(precision: int, scale: int) -> Convert:
    def convert(value: int) -> decimal.Decimal:
        if abs(value) >= 10 ** (precision - scale):
            raise Mismatch(f"does not fit into DECIMAL({precision}, {scale}): {value}")
        return decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-scale), context=_WIDE)

    return convert


def _array_reader(tree: Any, element: DataType, types: Types) -> Convert | None:
    inner = reader(tree["items"], element, types)
    return None if inner is None else lambda values: [inner(value) for value in values]


def _map_reader(tree: Any, type_: Map, types: Types) -> Convert:
    if kind_of(tree) == "map":
        key = _reader("string", type_.key, types) if not isinstance(type_.key, Varchar) else None
        value = reader(tree["values"], type_.value, types)
        return lambda entries: [
            (name if key is None else key(name), item if value is None else value(item))
            for name, item in entries.items()
        ]
    [entry] = types.branches(tree["items"])
    convert = _struct_reader(entry, (("key", type_.key), ("value", type_.value)), types)

    def read(entries: list[Any]) -> list[tuple[Any, Any]]:
        pairs = [(one["key"], one["value"]) for one in map(convert, entries)]
        if any(name is None for name, _ in pairs):
            raise Mismatch("has an entry without a key")
        return pairs

    return read


def _struct_reader(tree: Any, fields: tuple[tuple[str, DataType], ...], types: Types) -> Convert:
    if kind_of(tree) != "record":
        raise UsageError(f"Avro's `{kind_of(tree)}` cannot be read as a STRUCT")
    plan: list[tuple[str, str | None, Convert | None]] = []
    for name, type_ in fields:
        found = types.field(tree, name)
        plan.append((name, found["name"] if found else None, reader(found["type"], type_, types) if found else None))

    def convert(value: Mapping[str, Any]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, source, inner in plan:
            item = None if source is None else value[source]
            row[name] = item if inner is None else inner(item)
        return row

    return convert
