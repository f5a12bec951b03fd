"""A column's values → what fastavro writes, with a schema without logical types: `avro_shapes` the other way round."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UsageError
from headrace.log.codecs.avro_shapes import MICROS, Convert, Types, kind_of, logical_of
from headrace.log.codecs.json_encode import EPOCH, EPOCH_DATE, MICROSECOND
from headrace.log.codecs.json_values import Mismatch
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

_WIDE = decimal.Context(prec=76)


def writer(tree: Any, type_: DataType, types: Types) -> tuple[Convert | None, bool]:
    """What makes fastavro's value of a column's; None if it is one already. And whether null can be written.
    `UsageError` if the schema cannot hold the type."""
    branches = types.branches(tree)
    resolved = types.resolve(tree)
    nullable = isinstance(resolved, list) and len(branches) < len(resolved)
    problem: UsageError | None = None
    for branch in branches:
        try:
            convert = _writer(branch, type_, types)
        except UsageError as error:
            problem = problem or error
            continue
        name = _branch_name(branch) if len(branches) > 1 else None
        return (_tagged(convert, name) if name else convert), nullable
    raise problem or UsageError(f"Avro's null cannot hold {type_}")


def _branch_name(branch: Any) -> str:
    name: str = branch if isinstance(branch, str) else branch.get("name", branch["type"])
    return name


def _tagged(convert: Convert | None, name: str) -> Convert:
    """In a union of several types, fastavro is told which branch it is."""
    return lambda value: (name, value if convert is None else convert(value))


def _writer(tree: Any, type_: DataType, types: Types) -> Convert | None:
    kind, logical = kind_of(tree), logical_of(tree)
    match type_, kind:
        case (Boolean(), "boolean") | (Integer(), "int" | "long") | (Double(), "double" | "float"):
            return None
        case BigInt(), "long" if logical is None or logical.startswith("timestamp"):
            return None
        case (Varchar(), "string") | (Bytes(), "bytes"):
            return None
        case Varchar(), "enum":
            return _symbol(frozenset(tree["symbols"]))
        case Bytes(), "fixed":
            return _sized(tree["size"])
        case Decimal(precision, scale), "bytes" | "fixed" if logical == "decimal":
            return _decimal_writer(tree, precision, scale)
        case Date(), "int":
            return lambda value: (value - EPOCH_DATE).days
        case Time(), "int":
            return None
        case Time(), "long":
            return lambda value: value * 1000 if logical == "time-micros" else value
        case Timestamp(), "long" if logical in MICROS:
            per = MICROS[logical]
            return lambda value: ((value - EPOCH) // MICROSECOND) // per
        case Array(element), "array":
            return _array_writer(tree, element, types)
        case Map(), "map" | "array":
            return _map_writer(tree, type_, types)
        case Struct(fields), "record":
            return record_writer(tree, fields, types)
        case _:
            raise UsageError(f"Avro's `{logical or kind}` cannot hold {type_}")


def _symbol(symbols: frozenset[str]) -> Convert:
    def convert(value: str) -> str:
        if value not in symbols:
            raise Mismatch(f"is not a symbol of the enum: {value[:60]}")
        return value

    return convert


def _sized(size: int) -> Convert:
    def convert(value: bytes) -> bytes:
        if len(value) != size:
            raise Mismatch(f"must be {size} bytes, got {len(value)}")
        return value

    return convert


def _decimal_writer(tree: Any, precision: int, scale: int) -> Convert:
    if tree.get("scale", 0) != scale or tree["precision"] < precision:
        raise UsageError(
            f"Avro's decimal({tree['precision']}, {tree.get('scale', 0)}) cannot hold DECIMAL({precision}, {scale})"
        )
    size = tree.get("size")

    def convert(value: decimal.Decimal) -> bytes:
        unscaled = int(value.scaleb(scale, _WIDE))
        length = size or (unscaled.bit_length() + 8) // 8
        return unscaled.to_bytes(length, "big", signed=True)

    return convert


def _item(tree: Any, type_: DataType, types: Types) -> Convert:
    convert, nullable = writer(tree, type_, types)

    def write(value: Any) -> Any:
        if value is None:
            if not nullable:
                raise Mismatch("cannot be null in this schema")
            return None
        return value if convert is None else convert(value)

    return write


def _array_writer(tree: Any, element: DataType, types: Types) -> Convert:
    item = _item(tree["items"], element, types)
    return lambda values: [item(value) for value in values]


def _map_writer(tree: Any, type_: Map, types: Types) -> Convert:
    if kind_of(tree) == "map":
        if not isinstance(type_.key, Varchar):
            raise UsageError(f"Avro's maps have text for keys, not {type_.key}")
        value = _item(tree["values"], type_.value, types)
        return lambda entries: {name: value(item) for name, item in _pairs(entries)}
    [entry] = types.branches(tree["items"])
    write = record_writer(entry, (("key", type_.key), ("value", type_.value)), types)
    return lambda entries: [write({"key": name, "value": item}) for name, item in _pairs(entries)]


def _pairs(entries: Any) -> Any:
    return entries.items() if isinstance(entries, dict) else entries


def record_writer(tree: Any, fields: tuple[tuple[str, DataType], ...], types: Types) -> Convert:
    """Every field of the type must be in the record; what else the record has must have a default."""
    if kind_of(tree) != "record":
        raise UsageError(f"Avro's `{kind_of(tree)}` cannot hold a STRUCT")
    plan: list[tuple[str, str, Convert]] = []
    for name, type_ in fields:
        found = types.field(tree, name)
        if found is None:
            raise UsageError(f"the schema has no field for `{name}`")
        plan.append((name, found["name"], _item(found["type"], type_, types)))
    check_others(tree, {target for _, target, _ in plan})
    return lambda value: {target: _within(write, value.get(name), name) for name, target, write in plan}


def check_others(tree: Any, written: set[str]) -> None:
    for one in tree["fields"]:
        if one["name"] not in written and "default" not in one:
            raise UsageError(f"the schema's field `{one['name']}` has no column and no default")


def _within(write: Convert, value: Any, name: str) -> Any:
    try:
        return write(value)
    except Mismatch as mismatch:
        raise mismatch.within(f".{name}") from None


def column_values(array: pa.Array, type_: DataType, tree: Any, types: Types) -> tuple[list[Any], bool]:
    """A whole column's values for fastavro; false if they have to be converted one by one."""
    branches = types.branches(tree)
    if len(branches) == 1 and isinstance(type_, Timestamp) and kind_of(branches[0]) == "long":
        per = MICROS.get(logical_of(branches[0]), 1000)
        if per == 1000:
            array = pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms", "UTC"))
        return array.view(pa.int64()).to_pylist(), True
    if len(branches) == 1 and isinstance(type_, Date) and kind_of(branches[0]) == "int":
        return array.view(pa.int32()).to_pylist(), True
    return array.to_pylist(), False
