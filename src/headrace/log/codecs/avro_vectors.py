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
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.codecs.avro_shapes import MICROS, Types, kind_of, logical_of
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

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_SIMPLE = ("boolean", "int", "long", "float", "double", "string", "bytes", "enum", "fixed")


class Cursor:
    """Where each row is in the buffer. `good` is false for rows that are not to be trusted any more."""

    def __init__(self, data: npt.NDArray[np.uint8], place: Numbers, end: Numbers) -> None:
        self.data, self.place, self.end = data, place, end
        self.good: Mask = np.ones(len(place), np.bool_)

    def part(self, rows: Numbers) -> Cursor:
        found = Cursor(self.data, self.place[rows], self.end[rows])
        found.good = self.good[rows]
        return found

    def put(self, rows: Numbers, part: Cursor) -> None:
        self.place[rows], self.good[rows] = part.place, part.good

    def advance(self, count: Numbers | int) -> Numbers:
        """The place before; rows that have not so much left stay where they are, and are not good."""
        before = self.place
        fits = (count >= 0) & (count <= self.end - before)
        self.good &= fits
        self.place = np.where(fits, before + count, before)
        return before

    def longs(self) -> Numbers:
        """Zigzag numbers of up to ten bytes."""
        found = self.varints()
        return (found >> np.uint64(1)).astype(np.int64) ^ -(found & np.uint64(1)).astype(np.int64)

    def varints(self) -> npt.NDArray[np.uint64]:
        """Numbers of up to ten bytes, seven bits in each, the lowest first."""
        place = self.advance(1)
        byte = self.data[np.minimum(place, len(self.data) - 1)]
        found = (byte & 127).astype(np.uint64)
        rows = np.flatnonzero((byte > 127) & self.good)
        shift = 7
        while len(rows):
            if shift > 63:
                self.good[rows] = False
                break
            more = self.part(rows)
            place = more.advance(1)
            byte = more.data[np.minimum(place, len(self.data) - 1)]
            found[rows] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
            if shift == 63:
                more.good &= byte <= 1
            self.put(rows, more)
            rows = rows[(byte > 127) & more.good]
            shift += 7
        return found

    def fixed(self, layout: str) -> npt.NDArray[Any]:
        """Numbers of a fixed size, little-endian."""
        type_ = np.dtype(layout)
        place = np.where(self.good, self.advance(type_.itemsize), 0)
        place = np.where(self.good, place, 0)
        at = np.minimum(place[:, None] + np.arange(type_.itemsize), len(self.data) - 1)
        found: npt.NDArray[Any] = np.ascontiguousarray(self.data[at]).view(type_)[:, 0]
        return found

    def slices(self, size: int | None = None) -> tuple[Numbers, Numbers]:
        """Starts and lengths of bytes: of `size`, or of the length that is written before them."""
        length = self.longs() if size is None else np.full(len(self.place), size, np.int64)
        start = self.advance(length)
        return start, np.where(self.good, length, 0)


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
        offsets = np.frombuffer(payloads.buffers()[1], np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
        data = np.frombuffer(payloads.buffers()[2] or b"", np.uint8)
        places = offsets.astype(np.int64)
        cursor = Cursor(data if len(data) else np.zeros(1, np.uint8), places[:-1] + skip, places[1:])
        cursor.good &= cursor.place <= cursor.end
        found: dict[str, pa.Array] = {}
        for field in self._fields:
            array = _read(field, cursor)
            if field.column is not None:
                found[field.column] = array
        return found, cursor.good & (cursor.place == cursor.end)


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


def strings(cursor: Cursor, start: Numbers, length: Numbers) -> pa.Array:
    """Texts; a row whose bytes are none is not good."""
    found = gathered(cursor, start, length, pa.utf8())
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        texts = found.view(pa.binary()).to_pylist()
        bad = np.array([not _is_text(text) for text in texts], np.bool_)
        cursor.good &= ~bad
        return gathered(cursor, start, np.where(bad, 0, length), pa.utf8())
    return found


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def gathered(cursor: Cursor, start: Numbers, length: Numbers, arrow: pa.DataType) -> pa.Array:
    """The slices one after another, as Arrow keeps them."""
    offsets = np.zeros(len(start) + 1, np.int64)
    np.cumsum(length, out=offsets[1:])
    at = np.repeat(start - offsets[:-1], length) + np.arange(offsets[-1])
    data = pa.py_buffer(np.ascontiguousarray(cursor.data[at]))
    return pa.Array.from_buffers(arrow, len(start), [None, pa.py_buffer(offsets.astype(np.int32)), data])


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
