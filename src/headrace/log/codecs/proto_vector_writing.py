"""Columns → flat Protobuf messages, all rows at once: `proto_vectors` the other way round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.codecs.avro_vector_writing import as_numpy, fixed, varints
from headrace.log.codecs.constants import constant
from headrace.log.codecs.proto_shapes import find_field
from headrace.log.codecs.proto_text import varint
from headrace.log.codecs.proto_types import scalar_name
from headrace.types import BigInt, Boolean, Bytes, Column, DataType, Double, Integer, Timestamp, Varchar

_EMPTY = constant(b"")
_VARINT, _EIGHT, _SIZED = 0, 1, 2
Write = Callable[[pa.Array], pa.Array]
"""Values without a null → bytes."""


class ProtoVectorWriter:
    """`make` answers None for what it does not know."""

    def __init__(self, fields: Sequence[tuple[str, bytes, Write]]) -> None:
        self._fields = fields

    @staticmethod
    def make(columns: Sequence[Column], message: Any) -> ProtoVectorWriter | None:
        """Only for fields that can be null: others leave out what is 0 or empty."""
        found: dict[int, tuple[str, bytes, Write]] = {}
        for column in columns:
            field = find_field(message, column.name)
            if field is None or field.is_repeated or not field.has_presence or field.number in found:
                return None
            made = _writer(field, column.type)
            if made is None:
                return None
            found[field.number] = (column.name, varint(field.number << 3 | made[0]), made[1])
        return ProtoVectorWriter([found[number] for number in sorted(found)]) if found else None

    def write(self, batch: pa.RecordBatch, header: bytes) -> pa.Array:
        pieces: list[pa.Array | pa.Scalar] = [pa.scalar(header, pa.binary())]
        pieces += [_with_tag(batch.column(name), tag, write) for name, tag, write in self._fields]
        return pc.binary_join_element_wise(*pieces, _EMPTY)


def _with_tag(array: pa.Array, tag: bytes, write: Write) -> pa.Array:
    mark = pa.scalar(tag, pa.binary())
    if not array.null_count:
        return pc.binary_join_element_wise(mark, write(array), _EMPTY)
    mask = as_numpy(array.is_valid())
    written = pc.binary_join_element_wise(mark, write(array.drop_null()), _EMPTY)
    return pc.fill_null(written.take(pa.array(np.cumsum(mask) - 1, mask=~mask)), _EMPTY)


def _writer(field: Any, type_: DataType) -> tuple[int, Write] | None:
    kind = "message" if field.message_type is not None else scalar_name(field)
    match type_, kind:
        case (Boolean(), "bool") | (Integer(), "int32" | "int64") | (BigInt(), "int64"):
            return _VARINT, lambda array: varints(as_numpy(array.cast(pa.int64())).view(np.uint64))
        case Double(), "double":
            return _EIGHT, lambda array: fixed(as_numpy(array).astype("<f8"), 8)
        case (Varchar(), "string") | (Bytes(), "bytes"):
            return _SIZED, lambda array: _sized(array.cast(pa.binary()))
        case Timestamp(), "message" if field.message_type.full_name == "google.protobuf.Timestamp":
            return _SIZED, _moments
        case _:
            return None


def _sized(payloads: pa.Array) -> pa.Array:
    lengths = as_numpy(pc.binary_length(payloads)).astype(np.uint64)
    return pc.binary_join_element_wise(varints(lengths), payloads, _EMPTY)


def _moments(array: pa.Array) -> pa.Array:
    """Seconds and nanoseconds, each left out if it is 0."""
    seconds, micros = np.divmod(as_numpy(array.view(pa.int64())), 1_000_000)
    inner = pc.binary_join_element_wise(_number(seconds, b"\x08"), _number(micros * 1000, b"\x10"), _EMPTY)
    return _sized(inner)


def _number(values: Any, tag: bytes) -> pa.Array:
    there = pa.array(values != 0)
    written = pc.binary_join_element_wise(pa.scalar(tag, pa.binary()), varints(values.view(np.uint64)), _EMPTY)
    return pc.if_else(there, written, _EMPTY)
