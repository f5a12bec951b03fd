"""A frame: 128 bytes of header and one Arrow record batch message (docs/log-format.md)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import google_crc32c
import pyarrow as pa

MAGIC = b"HRF1"
HEADER_SIZE = 128
ALIGNMENT = 64
HAS_OFFSETS, REWRITTEN = 1, 2
COMPRESSIONS = ("none", "lz4", "zstd")
"""A frame's header names one by its place here."""

MAX_BODY = 8 * 1024 * 1024
"""The owner makes several frames of more than this."""

_HEADER = struct.Struct("<4sIIIQQQQqqqQIIQIHH24x")
_CRC = struct.Struct("<I")
_PADDING = [bytes(size) for size in range(ALIGNMENT)]
_WORTH_COMPRESSING = 4096
"""Smaller batches are mostly metadata, which is never compressed."""


class FrameHeader(NamedTuple):
    """A tuple, because one is made for every frame that is written or read."""

    body_length: int
    rows: int
    base_offset: int
    next_offset: int
    first_arrival: int
    last_arrival: int
    min_time: int
    max_time: int
    max_lag: int
    schema_version: int
    producer: int = 0
    epoch: int = 0
    sequence: int = 0
    transaction: int = 0
    flags: int = 0
    compression: int = 0
    crc: int = 0

    @property
    def size(self) -> int:
        """Bytes in the segment, padding included."""
        return padded(HEADER_SIZE + self.body_length)


def padded(size: int) -> int:
    return (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1)


def encode_batch(batch: pa.RecordBatch, compression: str) -> tuple[pa.Buffer, int]:
    """A batch as the body of a frame, and the number of the compression it got."""
    if compression == "none" or batch.nbytes < _WORTH_COMPRESSING:
        return batch.serialize(), 0
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
        end = sink.tell()
    start = batch.schema.serialize().size
    return sink.getvalue().slice(start, end - start), COMPRESSIONS.index(compression)


def encode_slices(batch: pa.RecordBatch, edges: Sequence[int], compression: str) -> list[tuple[pa.Buffer, int]]:
    """The same for the rows between each two edges. One stream for all costs half of as many messages by themselves."""
    slices = [batch.slice(first, last - first) for first, last in pairwise(edges)]
    if compression != "none" or len(slices) == 1:
        return [encode_batch(one, compression) for one in slices]
    sink = pa.BufferOutputStream()
    ends = [batch.schema.serialize().size]
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for one in slices:
            writer.write_batch(one)
            ends.append(sink.tell())
    stream = sink.getvalue()
    return [(stream.slice(first, last - first), 0) for first, last in pairwise(ends)]


def encode_frame(header: FrameHeader, body: pa.Buffer) -> list[Any]:
    """The frame's bytes as a list of buffers, so that the body is not copied."""
    packed = bytearray(
        _HEADER.pack(
            MAGIC,
            0,
            header.body_length,
            header.rows,
            header.base_offset,
            header.next_offset,
            header.first_arrival,
            header.last_arrival,
            header.min_time,
            header.max_time,
            header.max_lag,
            header.producer,
            header.epoch,
            header.sequence,
            header.transaction,
            header.schema_version,
            header.flags,
            header.compression,
        )
    )
    crc = google_crc32c.extend(google_crc32c.value(bytes(packed[8:])), body)
    _CRC.pack_into(packed, 4, crc)
    padding = header.size - HEADER_SIZE - header.body_length
    return [packed, body, _PADDING[padding]] if padding else [packed, body]


def decode_header(data: Any, position: int = 0) -> FrameHeader | None:
    """The header at `position`, or None where there is none. Its checksum is checked with the body's."""
    if len(data) - position < HEADER_SIZE:
        return None
    (
        magic,
        crc,
        body_length,
        rows,
        base_offset,
        next_offset,
        first_arrival,
        last_arrival,
        min_time,
        max_time,
        max_lag,
        producer,
        epoch,
        sequence,
        transaction,
        schema_version,
        flags,
        compression,
    ) = _HEADER.unpack_from(data, position)
    if magic != MAGIC or (rows < 1 and not flags & HAS_OFFSETS) or next_offset <= base_offset:
        return None
    return FrameHeader(
        body_length,
        rows,
        base_offset,
        next_offset,
        first_arrival,
        last_arrival,
        min_time,
        max_time,
        max_lag,
        schema_version,
        producer,
        epoch,
        sequence,
        transaction,
        flags,
        compression,
        crc,
    )


def frame_is_valid(data: pa.Buffer, position: int, header: FrameHeader) -> bool:
    """Whether the bytes match the checksum. `data` must be immutable for the checksum to be taken without a copy."""
    if position + HEADER_SIZE + header.body_length > data.size:
        return False
    return bool(google_crc32c.value(data.slice(position + 8, HEADER_SIZE - 8 + header.body_length)) == header.crc)


def frame_body(data: pa.Buffer, position: int, header: FrameHeader) -> pa.Buffer:
    return data.slice(position + HEADER_SIZE, header.body_length)
