"""Flat Avro records → columns, all rows at once with numpy: field by field, each row at its own place in the buffer.

It knows records of simple fields that may be null, which is what events are made of. A row it is not sure of (one that
ends too early, an odd union branch, a number out of range) is left to fastavro, which decides and says why.
Text in a field that nobody asks for is passed over, whatever its bytes are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.codecs.avro_shapes import MICROS, Types, kind_of, logical_of
from headrace.log.codecs.cursor import Cursor, Mask, Numbers, gathered, strings
from headrace.log.codecs.json_values import DAY_MS, FIRST_DAY, FIRST_MS, LAST_DAY, LAST_MS
from headrace.log.schema import arrow_type
from headrace.types import (
    BigInt,
    Boolean,
    Bytes,
    Column,
    DataType,
    Date,
    Decimal,
    Double,
    Integer,
    Time,
    Timestamp,
    Varchar,
)

_SIMPLE = ("boolean", "int", "long", "float", "double", "string", "bytes", "enum", "fixed")


Read = Callable[[Cursor], pa.Array]


@dataclass(frozen=True, slots=True)
class _Field:
    column: str | None
    """None for what nobody asks for."""
    null_branch: int | None
    read: Read


class VectorReader:
    """`make` answers None for what it does not know."""

    def __init__(self, fields: Sequence[_Field]) -> None:
        self._fields = fields

    @staticmethod
    def make(columns: Sequence[Column], record: Any, types: Types) -> VectorReader | None:
        wanted = {}
        for column in columns:
            found = types.field(record, column.name)
            if found is not None:
                if found["name"] in wanted:
                    return None
                wanted[found["name"]] = column
        fields = []
        for one in record["fields"]:
            made = _field(one, wanted.get(one["name"]), types)
            if made is None:
                return None
            fields.append(made)
        return VectorReader(fields)

    def read(self, payloads: pa.Array, skip: int) -> tuple[dict[str, pa.Array], Mask]:
        """Columns of all rows, and which rows can be trusted. `payloads` has no nulls."""
        return Cursor.over(payloads, skip).columns(self._fields, _read)


def _read(field: _Field, cursor: Cursor) -> pa.Array:
    if field.null_branch is None:
        return field.read(cursor)
    branch = cursor.longs()
    cursor.good &= (branch == 0) | (branch == 1)
    there = cursor.good & (branch != field.null_branch)
    if there.all():
        return field.read(cursor)
    rows = np.flatnonzero(there)
    part = cursor.part(rows)
    values = field.read(part)
    cursor.put(rows, part)
    return values.take(pa.array(np.cumsum(there) - 1, mask=~there))


def _field(one: Any, column: Column | None, types: Types) -> _Field | None:
    tree = types.resolve(one["type"])
    null_branch = None
    if isinstance(tree, list):
        kinds = [kind_of(types.resolve(branch)) for branch in tree]
        if len(tree) != 2 or kinds.count("null") != 1:
            return None
        null_branch = kinds.index("null")
        tree = types.resolve(tree[1 - null_branch])
    if kind_of(tree) not in _SIMPLE:
        return None
    read = _skipper(tree) if column is None else _reader(tree, column.type)
    return None if read is None else _Field(column.name if column else None, null_branch, read)


def _skipper(tree: Any) -> Read:
    nothing = pa.nulls(0)

    def skip(cursor: Cursor) -> pa.Array:
        match kind_of(tree):
            case "boolean":
                cursor.advance(1)
            case "int" | "long" | "enum":
                cursor.longs()
            case "float":
                cursor.advance(4)
            case "double":
                cursor.advance(8)
            case "fixed":
                cursor.advance(tree["size"])
            case _:
                cursor.slices()
        return pa.nulls(len(cursor.place)) if len(cursor.place) else nothing

    return skip


def _reader(tree: Any, type_: DataType) -> Read | None:
    kind, logical = kind_of(tree), logical_of(tree)
    match type_, kind:
        case Boolean(), "boolean":
            return _booleans
        case Integer(), "int":
            return lambda cursor: pa.array(_ranged(cursor, -(1 << 31), (1 << 31) - 1).astype(np.int32))
        case BigInt(), "int" | "long":
            return lambda cursor: pa.array(cursor.longs())
        case Double(), "double" | "float":
            layout = "<f8" if kind == "double" else "<f4"
            return lambda cursor: pa.array(cursor.fixed(layout).astype(np.float64))
        case Varchar(), "string":
            return lambda cursor: strings(cursor, *cursor.slices())
        case Varchar(), "enum":
            return _symbols(pa.array(tree["symbols"], pa.utf8()))
        case Bytes(), "bytes" | "fixed":
            size = tree["size"] if kind == "fixed" else None
            return lambda cursor: gathered(cursor, *cursor.slices(size), pa.binary())
        case Date(), "int":
            return lambda cursor: pa.array(_ranged(cursor, FIRST_DAY, LAST_DAY).astype(np.int32)).view(pa.date32())
        case Time(), "int":
            return lambda cursor: pa.array(_ranged(cursor, 0, DAY_MS - 1).astype(np.int32))
        case Timestamp(), "long" if logical in MICROS:
            return _moments(MICROS[logical])
        case Decimal(_, scale), "bytes" | "fixed" if logical == "decimal" and tree.get("scale", 0) == scale:
            return _decimals(type_, tree["size"] if kind == "fixed" else None)
        case _:
            return None


def _booleans(cursor: Cursor) -> pa.Array:
    found = cursor.fixed("u1")
    cursor.good &= found <= 1
    return pa.array(found == 1)


def _ranged(cursor: Cursor, low: int, high: int) -> Numbers:
    found = cursor.longs()
    fits = (found >= low) & (found <= high)
    cursor.good &= fits
    return np.where(fits, found, 0)


def _moments(per: int) -> Read:
    low, high = (FIRST_MS, LAST_MS) if per == 1000 else (FIRST_MS * 1000, LAST_MS * 1000 + 999)
    return lambda cursor: pa.array(_ranged(cursor, low, high) * per).view(arrow_type(Timestamp()))


def _symbols(names: pa.Array) -> Read:
    return lambda cursor: names.take(pa.array(_ranged(cursor, 0, len(names) - 1)))


def _decimals(type_: Decimal, size: int | None) -> Read:
    """Big-endian numbers of any length up to 16 bytes → Arrow's, which are little-endian and 16 bytes long."""
    arrow = arrow_type(type_)

    def read(cursor: Cursor) -> pa.Array:
        start, length = cursor.slices(size)
        fits = (length > 0) & (length <= 16)
        cursor.good &= fits
        rows = len(start)
        found = np.zeros((rows, 16), np.uint8)
        if rows:
            first = cursor.data[np.minimum(start, len(cursor.data) - 1)]
            sign = np.where(fits & (first > 127), 255, 0).astype(np.uint8)
            for byte in range(16):
                at = np.clip(start + length - 1 - byte, 0, len(cursor.data) - 1)
                found[:, byte] = np.where(fits & (byte < length), cursor.data[at], sign)
        array = pa.Array.from_buffers(arrow, rows, [None, pa.py_buffer(found)])
        return _checked(array, cursor)

    return read


def _checked(array: pa.Array, cursor: Cursor) -> pa.Array:
    """Numbers with more digits than the type has are not good."""
    wide = array.view(pa.decimal128(38, array.type.scale))
    if array.type.precision == 38:
        return array
    limit = pa.scalar(10**array.type.precision, pa.decimal128(38, 0))
    unscaled = wide.view(pa.decimal128(38, 0))
    fits = pc.and_(pc.less(unscaled, limit), pc.greater(unscaled, pc.negate(limit)))
    cursor.good &= np.asarray(fits.to_numpy(zero_copy_only=False))
    return array
