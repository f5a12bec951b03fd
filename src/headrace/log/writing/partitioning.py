"""Which partition a row goes to: Kafka's murmur2 over the key's bytes, as Kafka's own producers do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Partitions: TypeAlias = "int | np.ndarray[Any, np.dtype[np.int64]]"
"""One partition for all rows, or one per row."""

_SEED, _M, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF
_LONGEST_VECTOR = 256
"""Longer keys are hashed one by one: a loop over words would run as long as the longest."""

_encode_json = msgspec.json.Encoder(decimal_format="string").encode


def murmur2(data: bytes) -> int:
    """Kafka's hash, as an unsigned number.

    >>> murmur2(b"foobar") - 2**32
    -790332482
    """
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_rows(
    columns: Sequence[pa.Array], names: Sequence[str], key_format: str, partitions: int, turn: int
) -> Partitions:
    """Partitions of a batch's rows by its key columns. Rows without a key go in turn, beginning at `turn`."""
    rows = len(columns[0]) if columns else 0
    if partitions == 1:
        return 0
    if rows == 1:
        key = _key_bytes(columns, names, key_format)
        return turn % partitions if key is None else partition_of(key, partitions)
    hashes, present = hash_rows(columns, names, key_format)
    chosen: np.ndarray[Any, np.dtype[np.int64]] = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions
    if present is not None:
        missing = np.flatnonzero(~present)
        chosen[missing] = (turn + np.arange(len(missing))) % partitions
    return chosen


def rows_in_turn(rows: int, partitions: int, turn: int) -> Partitions:
    """For topics without a key."""
    if partitions == 1 or rows == 1:
        return turn % partitions
    result: np.ndarray[Any, np.dtype[np.int64]] = (turn + np.arange(rows, dtype=np.int64)) % partitions
    return result


def _is_plain(columns: Sequence[pa.Array], key_format: str) -> bool:
    """Whether Kafka has a serializer for this key; otherwise it is written as JSON text."""
    return len(columns) == 1 and key_format != "JSON" and _width(columns[0].type) is not None


def _width(type_: pa.DataType) -> int | None:
    """Bytes of a fixed-width key, 0 for text and bytes, None for what Kafka has no serializer for."""
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return 0
    if pa.types.is_int32(type_) or pa.types.is_date32(type_):
        return 4
    if pa.types.is_int64(type_) or pa.types.is_float64(type_) or pa.types.is_timestamp(type_):
        return 8
    return None


def _key_bytes(columns: Sequence[pa.Array], names: Sequence[str], key_format: str) -> bytes | None:
    """One row's key, None if it has none."""
    if all(column.null_count for column in columns):
        return None
    if not _is_plain(columns, key_format):
        return _json_key([column[0].as_py() for column in columns], names)
    column = columns[0]
    if _width(column.type) == 0:
        return bytes(column[0].as_buffer())
    return bytes(_big_endian(column).tobytes())


def _json_key(values: list[Any], names: Sequence[str]) -> bytes:
    return _encode_json(values[0] if len(names) == 1 else dict(zip(names, values, strict=True)))


def hash_rows(columns: Sequence[pa.Array], names: Sequence[str], key_format: str) -> tuple[Any, Any]:
    """Hash of every row's key, and which rows have one (None: all)."""
    if _is_plain(columns, key_format):
        column = columns[0]
        present = None if not column.null_count else pc.is_valid(column).to_numpy(zero_copy_only=False)
        hashes = _hash_fixed(_big_endian(column)) if _width(column.type) else _hash_variable(column)
        return hashes, present
    lists = [column.to_pylist() for column in columns]
    texts = pa.array([_json_key(list(values), names) for values in zip(*lists, strict=True)], pa.binary())
    present = np.array([any(value is not None for value in values) for values in zip(*lists, strict=True)])
    return _hash_variable(texts), None if present.all() else present


def _big_endian(column: pa.Array) -> Any:
    """The numbers as Kafka's serializers write them, one row of bytes each. Timestamps are milliseconds."""
    type_ = column.type
    if pa.types.is_timestamp(type_):
        column = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", tz=type_.tz)).cast(pa.int64())
    elif pa.types.is_date32(type_):
        column = column.cast(pa.int32())
    if column.null_count:
        column = column.fill_null(0)
    values = column.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values).byteswap()


def _hash_fixed(values: Any) -> Any:
    """Hash of big-endian numbers of 4 or 8 bytes."""
    width = values.dtype.itemsize
    words = values.view("<u4").reshape(len(values), width // 4)
    h = np.full(len(values), _SEED ^ width, np.uint32)
    for number in range(width // 4):
        h = _mix(h, words[:, number])
    return _finish(h)


def _hash_variable(column: pa.Array) -> Any:
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    offsets -= first
    # Spare bytes, so that a word may be loaded from the very end.
    data = np.zeros(last - first + 4, np.uint8)
    if data_buffer:
        data[:-4] = np.frombuffer(data_buffer, np.uint8)[first:last]
    words = np.ndarray((len(data) - 3,), np.dtype("<u4"), data, strides=(1,))
    starts, lengths = offsets[:-1], np.diff(offsets)
    h = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    long = lengths > _LONGEST_VECTOR
    whole = np.where(long, 0, lengths >> 2)
    shortest = int(whole.min())
    for number in range(shortest):
        h = _mix(h, words[starts + 4 * number])
    for number in range(shortest, int(whole.max())):
        rows = np.flatnonzero(whole > number)
        h[rows] = _mix(h[rows], words[starts[rows] + 4 * number])
    tail = np.flatnonzero(((lengths & 3) > 0) & ~long)
    if len(tail):
        kept = np.uint32(1) << ((lengths[tail] & 3) * 8).astype(np.uint32)
        h[tail] = (h[tail] ^ (words[starts[tail] + 4 * whole[tail]] & (kept - np.uint32(1)))) * np.uint32(_M)
    h = _finish(h)
    for row in np.flatnonzero(long).tolist():
        h[row] = murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes())
    return h


def _mix(h: Any, words: Any) -> Any:
    k = words * np.uint32(_M)
    k = (k ^ (k >> np.uint32(24))) * np.uint32(_M)
    return (h * np.uint32(_M)) ^ k


def _finish(h: Any) -> Any:
    h = (h ^ (h >> np.uint32(13))) * np.uint32(_M)
    return h ^ (h >> np.uint32(15))
