"""Avro's object container files: a schema, then blocks of records.

Read by hand as far as the blocks, because a block says itself how large it is once it is decompressed: no more is made
of it than the caller allows.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import fastavro
import pyarrow as pa
import zstandard

from headrace.errors import TooLarge, UsageError
from headrace.log.codecs.avro_loading import load_schema
from headrace.log.codecs.avro_types import avro_schema
from headrace.log.codecs.avro_writer import AvroWriter
from headrace.log.codecs.proto_text import varint
from headrace.types import Column

MAGIC = b"Obj\x01"
SYNC = 16
_MAX_HEADER_ENTRIES = 1000


@dataclass(frozen=True, slots=True)
class Block:
    count: int
    data: bytes
    """Records one after another, decompressed."""


@dataclass(frozen=True, slots=True)
class Container:
    schema: str
    codec: str
    body: bytes
    start: int
    sync: bytes

    def blocks(self, max_bytes: int) -> Iterator[Block]:
        """`UsageError` at damage, `TooLarge` beyond `max_bytes` in all. What was given before it is good."""
        source = _Source(self.body, self.start)
        left = max_bytes
        while source.place < len(self.body):
            count, size = source.long(), source.long()
            if count < 0 or size < 0:
                raise UsageError("the Avro file is damaged: a block has a negative size")
            data = _decompress(source.take(size), self.codec, left)
            left -= len(data)
            if source.take(SYNC) != self.sync:
                raise UsageError("the Avro file is damaged: a block does not end where it should")
            yield Block(count, data)


class _Source:
    def __init__(self, body: bytes, place: int) -> None:
        self.body, self.place = body, place

    def take(self, count: int) -> bytes:
        if count > len(self.body) - self.place:
            raise UsageError("the Avro file ends too early")
        self.place += count
        return self.body[self.place - count : self.place]

    def long(self) -> int:
        number = shift = 0
        while True:
            [byte] = self.take(1)
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (number >> 1) ^ -(number & 1)
            if shift > 63:
                raise UsageError("the Avro file is damaged: a number is too long")

    def sized(self) -> bytes:
        size = self.long()
        if size < 0:
            raise UsageError("the Avro file is damaged: a negative size")
        return self.take(size)


def open_container(body: bytes) -> Container:
    """`UsageError` if it is none."""
    if not body.startswith(MAGIC):
        raise UsageError("this is not an Avro file", hint="it begins with `Obj` and a byte 1")
    source = _Source(body, len(MAGIC))
    entries: dict[str, bytes] = {}
    while (count := source.long()) != 0:
        if count < 0:
            source.long()
        for _ in range(abs(count)):
            if len(entries) > _MAX_HEADER_ENTRIES:
                raise UsageError("the Avro file is damaged: its header has no end")
            name = source.sized().decode("utf-8", "replace")
            entries[name] = source.sized()
    if "avro.schema" not in entries:
        raise UsageError("the Avro file has no schema")
    codec = entries.get("avro.codec", b"null").decode("utf-8", "replace")
    return Container(
        entries["avro.schema"].decode("utf-8", "replace"), codec, body, source.place + SYNC, source.take(SYNC)
    )


def _decompress(data: bytes, codec: str, most: int) -> bytes:
    match codec:
        case "null":
            found = data
        case "deflate":
            found = _inflate(data, most)
        case "zstandard":
            found = _unzstd(data, most)
        case "snappy":
            found = _unsnappy(data, most)
        case _:
            raise UsageError(
                f"Avro files compressed with `{codec}` cannot be read", hint="deflate, snappy or zstandard"
            )
    if len(found) > most:
        raise TooLarge("the Avro file is too large once it is decompressed", hint="send several smaller ones")
    return found


def _inflate(data: bytes, most: int) -> bytes:
    try:
        return zlib.decompressobj(wbits=-15).decompress(data, most + 1)
    except zlib.error as error:
        raise UsageError("the Avro file is damaged", detail=str(error)) from None


def _unzstd(data: bytes, most: int) -> bytes:
    try:
        with zstandard.ZstdDecompressor(max_window_size=8 * 1024 * 1024).stream_reader(data) as stream:
            return stream.read(most + 1)
    except zstandard.ZstdError as error:
        raise UsageError("the Avro file is damaged", detail=str(error)) from None


def _unsnappy(data: bytes, most: int) -> bytes:
    """A checksum of four bytes follows what snappy made, which begins with the size it had."""
    size = shift = 0
    for byte in data[:10]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size > most:
        raise TooLarge("the Avro file is too large once it is decompressed", hint="send several smaller ones")
    try:
        found = bytes(pa.decompress(data[:-4], size, "snappy", asbytes=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError("the Avro file is damaged", detail=str(error)) from None
    if zlib.crc32(found).to_bytes(4, "big") != data[-4:]:
        raise UsageError("the Avro file is damaged: a block does not match its checksum")
    return found


def write_container(
    columns: Sequence[Column],
    batches: Iterable[pa.RecordBatch],
    codec: Literal["null", "deflate"] = "deflate",
    name: str | None = None,
) -> bytes:
    """A file of these columns, with the schema that `avro_types` makes of them."""
    text = avro_schema(columns, True, name)
    schema = load_schema(text)
    writer = AvroWriter(columns, schema)

    def records() -> Iterator[Any]:
        for batch in batches:
            errors: dict[int, str] = {}
            found = writer.records(batch, errors)
            if errors:
                raise UsageError(f"row {min(errors)} cannot be written: {errors[min(errors)]}")
            yield from found

    stream = io.BytesIO()
    # Records are written as plain numbers and bytes; the schema that goes into the file says what they mean.
    fastavro.writer(stream, schema.parsed, records(), codec=codec, metadata={})
    return _with_schema(stream.getvalue(), text)


def _with_schema(body: bytes, schema: str) -> bytes:
    """The same file with another schema in its header."""
    found = open_container(body)
    header = io.BytesIO()
    header.write(MAGIC)
    header.write(varint(4))
    for key, value in (("avro.schema", schema), ("avro.codec", found.codec)):
        header.write(varint(2 * len(key)) + key.encode() + varint(2 * len(value.encode())) + value.encode())
    header.write(varint(0) + found.sync)
    return header.getvalue() + body[found.start :]
