"""KAFKA: one column, as Kafka's own serializers write it. Numbers are big-endian, text is UTF-8."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UsageError
from headrace.log.codecs.base import Codec, Decoded, Encoded, decoded
from headrace.log.codecs.json_values import FIRST_MS, LAST_MS, THOUSAND
from headrace.log.schema import arrow_type
from headrace.types import BigInt, Bytes, Column, DataType, Double, Integer, Timestamp, Varchar, display_name

_LAYOUTS: dict[type, str] = {Integer: ">i4", BigInt: ">i8", Timestamp: ">i8", Double: ">f8"}


class KafkaPrimitive(Codec):
    def __init__(self, columns: tuple[Column, ...]) -> None:
        if len(columns) > 1:
            raise UsageError("the format KAFKA holds one column", hint="JSON or AVRO hold several")
        for column in columns:
            if not isinstance(column.type, Integer | BigInt | Double | Varchar | Bytes | Timestamp):
                raise UsageError(f"the format KAFKA cannot hold `{display_name(column.name)}`, which is {column.type}")
        self.columns = columns

    def decode(self, payloads: pa.Array) -> Decoded:
        if not self.columns:
            return decoded((), {}, len(payloads))
        [column] = self.columns
        if payloads.type != pa.binary():
            payloads = payloads.cast(pa.binary())
        errors: dict[int, str] = {}
        array = _decode(payloads, column.type, errors)
        return decoded(self.columns, {column.name: array}, len(payloads), errors)

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        if not self.columns:
            return Encoded(pa.nulls(batch.num_rows, pa.binary()))
        [column] = self.columns
        return Encoded(_encode(batch.column(column.name), column.type))


def _decode(payloads: pa.Array, type_: DataType, errors: dict[int, str]) -> pa.Array:
    match type_:
        case Bytes():
            return payloads
        case Varchar():
            return _text(payloads, errors)
        case _:
            return _numbers(payloads, type_, errors)


def _text(payloads: pa.Array, errors: dict[int, str]) -> pa.Array:
    try:
        return payloads.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decode_text(value, row, errors) for row, value in enumerate(payloads.to_pylist())], pa.utf8())


def _decode_text(value: bytes | None, row: int, errors: dict[int, str]) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        errors[row] = "the payload is not UTF-8"
        return None


def _numbers(payloads: pa.Array, type_: DataType, errors: dict[int, str]) -> pa.Array:
    layout = np.dtype(_LAYOUTS[type(type_)])
    lengths = pc.binary_length(payloads)
    good = pc.fill_null(pc.equal(lengths, layout.itemsize), False)
    if not pc.all(good).as_py():
        for row, length in enumerate(lengths.to_pylist()):
            if length is not None and length != layout.itemsize:
                errors[row] = f"{type_} is {layout.itemsize} bytes, the payload has {length}"
    chosen = payloads.filter(good)
    start = int(np.frombuffer(chosen.buffers()[1], np.int32)[chosen.offset]) if len(chosen) else 0
    data = chosen.buffers()[2]
    numbers = np.frombuffer(data, layout, len(chosen), start) if len(chosen) else np.empty(0, layout)
    array = pa.array(numbers.astype(layout.newbyteorder("=")))
    if len(chosen) != len(payloads):
        mask = np.asarray(good.to_numpy(zero_copy_only=False))
        array = array.take(pa.array(np.cumsum(mask) - 1, mask=~mask))
    return _moments(array, errors) if isinstance(type_, Timestamp) else array


def _moments(milliseconds: pa.Array, errors: dict[int, str]) -> pa.Array:
    """Milliseconds → moments, where they are in a year from 1 to 9999."""
    fits = pc.and_(pc.greater_equal(milliseconds, FIRST_MS), pc.less_equal(milliseconds, LAST_MS))
    for row, fit in enumerate(fits.to_pylist() if pc.all(fits).as_py() is False else ()):
        if fit is False:
            errors[row] = f"{milliseconds[row].as_py()} is not a TIMESTAMP"
    kept = pc.if_else(fits, milliseconds, None)
    return pc.multiply(kept, THOUSAND).view(arrow_type(Timestamp()))


def _encode(array: pa.Array, type_: DataType) -> pa.Array:
    match type_:
        case Bytes():
            return array
        case Varchar():
            return array.cast(pa.binary())
        case Timestamp():
            array = pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms", "UTC")).view(pa.int64())
    layout = np.dtype(_LAYOUTS[type(type_)])
    filled = pc.fill_null(array, 0) if array.null_count else array
    data = np.asarray(filled.to_numpy(zero_copy_only=False)).astype(layout).tobytes()
    offsets = np.arange(0, len(data) + layout.itemsize, layout.itemsize, dtype=np.int32)[: len(array) + 1]
    packed = pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pc.if_else(pc.is_valid(array), packed, None) if array.null_count else packed
