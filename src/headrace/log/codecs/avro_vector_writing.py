"""Columns → flat Avro records, all rows at once: `avro_vectors` the other way round.

Each field becomes a column of bytes, and Arrow joins the columns row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.codecs.avro_shapes import MICROS, Types, kind_of, logical_of
from headrace.log.codecs.constants import constant
from headrace.types import BigInt, Boolean, Bytes, Column, DataType, Date, Double, Integer, Time, Timestamp, Varchar

_EMPTY = constant(b"")
Pieces = list[pa.Array]
Write = Callable[[pa.Array], Pieces]
"""Values without a null → bytes, in one or several columns."""


class VectorWriter:
    """`make` answers None for what it does not know."""

    def __init__(self, fields: Sequence[tuple[str, int | None, Write]]) -> None:
        self._fields = fields

    @staticmethod
    def make(columns: Sequence[Column], record: Any, types: Types) -> VectorWriter | None:
        by_field: dict[str, Column] = {}
        for column in columns:
            found = types.field(record, column.name)
            if found is None:
                return None
            by_field[found["name"]] = column
        fields = []
        for one in record["fields"]:
            column_of = by_field.get(one["name"])
            made = None if column_of is None else _field(one["type"], column_of.type, types)
            if column_of is None or made is None:
                return None
            fields.append((column_of.name, *made))
        return VectorWriter(fields)

    def write(self, batch: pa.RecordBatch, header: bytes) -> pa.Array | None:
        """A payload per row; None if a row has a null where the schema has none."""
        pieces: list[pa.Array | pa.Scalar] = [pa.scalar(header, pa.binary())]
        for name, null_branch, write in self._fields:
            array = batch.column(name)
            if null_branch is None:
                if array.null_count:
                    return None
                pieces += write(array)
            else:
                pieces += _nullable(array, null_branch, write)
        return pc.binary_join_element_wise(*pieces, _EMPTY)


def _nullable(array: pa.Array, null_branch: int, write: Write) -> Pieces:
    null, there = bytes([2 * null_branch]), bytes([2 * (1 - null_branch)])
    if not array.null_count:
        return [pa.array([there] * len(array), pa.binary()), *write(array)]
    valid = array.is_valid()
    mask = np.asarray(valid.to_numpy(zero_copy_only=False))
    places = pa.array(np.cumsum(mask) - 1, mask=~mask)
    pieces = [pc.fill_null(piece.take(places), _EMPTY) for piece in write(array.drop_null())]
    return [pc.if_else(valid, pa.scalar(there, pa.binary()), pa.scalar(null, pa.binary())), *pieces]


def _field(tree: Any, type_: DataType, types: Types) -> tuple[int | None, Write] | None:
    tree = types.resolve(tree)
    null_branch = None
    if isinstance(tree, list):
        kinds = [kind_of(types.resolve(branch)) for branch in tree]
        if len(tree) != 2 or kinds.count("null") != 1:
            return None
        null_branch = kinds.index("null")
        tree = types.resolve(tree[1 - null_branch])
    write = _writer(tree, type_)
    return None if write is None else (null_branch, write)


def _writer(tree: Any, type_: DataType) -> Write | None:
    kind, logical = kind_of(tree), logical_of(tree)
    match type_, kind:
        case Boolean(), "boolean":
            return lambda array: [fixed(as_numpy(array.cast(pa.uint8())), 1)]
        case (Integer(), "int" | "long") | (BigInt(), "long"):
            return lambda array: [_longs(as_numpy(array.cast(pa.int64())))]
        case Time(), "int":
            return lambda array: [_longs(as_numpy(array.cast(pa.int64())))]
        case Date(), "int":
            return lambda array: [_longs(as_numpy(array.view(pa.int32()).cast(pa.int64())))]
        case Timestamp(), "long" if logical in MICROS:
            per = MICROS[logical]
            # Rounded down, as time is everywhere here; also before 1970.
            return lambda array: [_longs(np.floor_divide(as_numpy(array.view(pa.int64())), per))]
        case Double(), "double":
            return lambda array: [fixed(as_numpy(array).astype("<f8"), 8)]
        case (Varchar(), "string") | (Bytes(), "bytes"):
            return lambda array: [_longs(as_numpy(pc.binary_length(array).cast(pa.int64()))), array.cast(pa.binary())]
        case _:
            return None


def as_numpy(array: pa.Array) -> npt.NDArray[Any]:
    return np.asarray(array.to_numpy(zero_copy_only=False))


def fixed(values: npt.NDArray[Any], size: int) -> pa.Array:
    """Numbers of a fixed size, as they are in memory."""
    offsets = np.arange(len(values) + 1, dtype=np.int32) * size
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), data])


def _longs(values: npt.NDArray[np.int64]) -> pa.Array:
    """Zigzag numbers of one to ten bytes."""
    return varints(((values << 1) ^ (values >> 63)).view(np.uint64))


def varints(values: npt.NDArray[np.uint64]) -> pa.Array:
    """Numbers of one to ten bytes, seven bits in each, the lowest first."""
    sizes = np.ones(len(values), np.int32)
    for bits in range(7, 64, 7):
        sizes += values >> np.uint64(bits) != 0
    widest = int(sizes.max(initial=1))
    columns = np.arange(widest)
    digits = (values[:, None] >> (columns * 7).astype(np.uint64)).astype(np.uint8) & 127
    digits |= np.where(columns < sizes[:, None] - 1, 128, 0).astype(np.uint8)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data = pa.py_buffer(np.ascontiguousarray(digits[columns < sizes[:, None]]))
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), data])
