"""Bytes of many rows read side by side with numpy: what the readers of flat Avro and Protobuf records share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Field(Protocol):
    @property
    def column(self) -> str | None:
        """None for what nobody asks for."""


FieldT = TypeVar("FieldT", bound=Field)


class Cursor:
    """Where each row is in the buffer. `good` is false for rows that are not to be trusted any more."""

    def __init__(self, data: npt.NDArray[np.uint8], place: Numbers, end: Numbers) -> None:
        self.data, self.place, self.end = data, place, end
        self.good: Mask = np.ones(len(place), np.bool_)

    @staticmethod
    def over(payloads: pa.Array, skip: int) -> Cursor:
        """At each payload's first byte after `skip`. None of them is null."""
        offsets = np.frombuffer(payloads.buffers()[1], np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
        data = np.frombuffer(payloads.buffers()[2] or b"", np.uint8)
        places = offsets.astype(np.int64)
        found = Cursor(data if len(data) else np.zeros(1, np.uint8), places[:-1] + skip, places[1:])
        found.good &= found.place <= found.end
        return found

    def columns(
        self, fields: Sequence[FieldT], read: Callable[[FieldT, Cursor], pa.Array]
    ) -> tuple[dict[str, pa.Array], Mask]:
        """One field after the other: those that are asked for, and which rows ended where they should."""
        found = {}
        for field in fields:
            array = read(field, self)
            if field.column is not None:
                found[field.column] = array
        return found, self.good & (self.place == self.end)

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
