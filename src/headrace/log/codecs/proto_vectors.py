"""Flat Protobuf messages → columns, all rows at once with numpy, as `avro_vectors` does it.

Every writer puts fields in the order of their numbers: so each field is looked for at the place where each row is. A
row that has it otherwise (fields out of order, twice, or unknown ones) is left to protobuf, field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.codecs.cursor import Cursor, Mask, Numbers, gathered, strings
from headrace.log.codecs.json_values import FIRST_MS, LAST_MS
from headrace.log.codecs.proto_shapes import find_field
from headrace.log.codecs.proto_text import varint
from headrace.log.codecs.proto_types import scalar_name
from headrace.log.schema import arrow_type
from headrace.types import BigInt, Boolean, Bytes, Column, DataType, Double, Integer, Timestamp, Varchar

Read = Callable[[Cursor], pa.Array]
_VARINT, _EIGHT, _SIZED, _FOUR = 0, 1, 2, 5
_WIRE = {
    "double": _EIGHT,
    "fixed64": _EIGHT,
    "sfixed64": _EIGHT,
    "float": _FOUR,
    "fixed32": _FOUR,
    "sfixed32": _FOUR,
    "string": _SIZED,
    "bytes": _SIZED,
    "message": _SIZED,
}


@dataclass(frozen=True, slots=True)
class _Field:
    tag: bytes
    column: str | None
    read: Read
    default: Any


class ProtoVectors:
    """`make` answers None for what it does not know."""

    def __init__(self, fields: Sequence[_Field]) -> None:
        self._fields = fields

    @staticmethod
    def make(columns: Sequence[Column], message: Any) -> ProtoVectors | None:
        wanted: dict[int, Column] = {}
        for column in columns:
            found = find_field(message, column.name)
            if found is not None:
                if found.number in wanted:
                    return None
                wanted[found.number] = column
        fields = []
        for number, field in sorted(message.fields_by_number.items()):
            made = _field(field, wanted.get(number))
            if made is None:
                return None
            fields.append(made)
        return ProtoVectors(fields)

    def read(self, payloads: pa.Array, skip: int) -> tuple[dict[str, pa.Array], Mask]:
        """Columns of all rows, and which rows can be trusted. `payloads` has no nulls."""
        return Cursor.over(payloads, skip).columns(self._fields, _read)


def _read(field: _Field, cursor: Cursor) -> pa.Array:
    there = cursor.good & (cursor.place + len(field.tag) <= cursor.end)
    for step, byte in enumerate(field.tag):
        there &= cursor.data[np.minimum(cursor.place + step, len(cursor.data) - 1)] == byte
    rows = np.flatnonzero(there)
    part = cursor.part(rows)
    part.place = part.place + len(field.tag)
    values = field.read(part)
    cursor.put(rows, part)
    if field.column is None:
        return values
    if len(rows) != len(there):
        values = values.take(pa.array(np.cumsum(there) - 1, mask=~there))
    return values if field.default is None else pc.fill_null(values, field.default)


def _field(field: Any, column: Column | None) -> _Field | None:
    if field.is_repeated or field.type == field.TYPE_GROUP:
        return None
    kind = "message" if field.message_type is not None else scalar_name(field)
    wire = _WIRE.get(kind, _VARINT)
    read = _skipper(wire) if column is None else _reader(field, kind, column.type)
    if read is None:
        return None
    default = None if field.has_presence else field.default_value
    return _Field(varint(field.number << 3 | wire), column.name if column else None, read, default)


def _skipper(wire: int) -> Read:
    def skip(cursor: Cursor) -> pa.Array:
        match wire:
            case 0:
                cursor.varints()
            case 1:
                cursor.advance(8)
            case 5:
                cursor.advance(4)
            case _:
                _slices(cursor)
        return pa.nulls(len(cursor.place))

    return skip


def _slices(cursor: Cursor) -> tuple[Numbers, Numbers]:
    length = cursor.varints().view(np.int64)
    start = cursor.advance(length)
    return start, np.where(cursor.good, length, 0)


def _reader(field: Any, kind: str, type_: DataType) -> Read | None:
    match type_, kind:
        case Boolean(), "bool":
            return lambda cursor: pa.array(_ranged(cursor, 0, 1) == 1)
        case Integer(), "int32":
            return lambda cursor: pa.array(_ranged(cursor, -(1 << 31), (1 << 31) - 1).astype(np.int32))
        case BigInt(), "int64":
            return lambda cursor: pa.array(cursor.varints().view(np.int64))
        case BigInt(), "int32" | "uint32":
            low, high = (-(1 << 31), (1 << 31) - 1) if kind == "int32" else (0, (1 << 32) - 1)
            return lambda cursor: pa.array(_ranged(cursor, low, high))
        case Double(), "double" | "float":
            layout = "<f8" if kind == "double" else "<f4"
            return lambda cursor: pa.array(cursor.fixed(layout).astype(np.float64))
        case Varchar(), "string":
            return lambda cursor: strings(cursor, *_slices(cursor))
        case Bytes(), "bytes":
            return lambda cursor: gathered(cursor, *_slices(cursor), pa.binary())
        case Timestamp(), "message" if field.message_type.full_name == "google.protobuf.Timestamp":
            return _moments
        case _:
            return None


def _ranged(cursor: Cursor, low: int, high: int) -> Numbers:
    found: Numbers = cursor.varints().view(np.int64)
    fits = (found >= low) & (found <= high)
    cursor.good &= fits
    return np.where(fits, found, 0)


def _moments(cursor: Cursor) -> pa.Array:
    """Messages of seconds and nanoseconds, each of which may be left out."""
    start, length = _slices(cursor)
    inside = Cursor(cursor.data, start, start + length)
    inside.good = cursor.good.copy()
    seconds, nanos = _number(inside, 0x08), _number(inside, 0x10)
    limit = LAST_MS // 1000 + 1
    fits = inside.good & (inside.place == inside.end) & (np.abs(seconds) <= limit) & (nanos >= 0) & (nanos < 10**9)
    micros = np.where(fits, seconds, 0) * 1_000_000 + np.where(fits, nanos, 0) // 1000
    cursor.good &= fits & (micros >= FIRST_MS * 1000) & (micros <= LAST_MS * 1000 + 999)
    return pa.array(micros).view(arrow_type(Timestamp()))


def _number(cursor: Cursor, tag: int) -> Numbers:
    """A number where its tag is, else 0."""
    there = cursor.good & (cursor.place < cursor.end)
    there &= cursor.data[np.minimum(cursor.place, len(cursor.data) - 1)] == tag
    rows = np.flatnonzero(there)
    part = cursor.part(rows)
    part.place = part.place + 1
    found: npt.NDArray[np.int64] = np.zeros(len(there), np.int64)
    found[rows] = part.varints().view(np.int64)
    cursor.put(rows, part)
    return found
