"""The file of a file channel: frames of events that were put, and of places that were taken.

A frame is a header (magic, kind, bytes of the payload, sequence number of the first event, number of events, CRC32C
over all of it and the payload) and a payload: the events as MessagePack, header values that are no text as bytes. A
frame that takes has none. Events are numbered through all files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec

from headrace.collect.agents.base import Event, Headers
from headrace.collect.agents.texts import from_bytes, is_plain, readable, to_bytes
from headrace.errors import CorruptFrame
from headrace.structs import ready

MAGIC = b"HRC1"
PUT, TAKE = 1, 2
_FIELDS = struct.Struct("<4sB3xIQI")
_CRC = struct.Struct("<I")
HEADER_BYTES = _FIELDS.size + _CRC.size
MAX_PAYLOAD = 1 << 30

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ready(list[Event]))
_any_decoder = msgspec.msgpack.Decoder(list[tuple[bytes, dict[str, Any], str | None, str]])


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame's header, and where it is."""

    kind: int
    offset: int
    length: int
    """Of the payload."""
    first: int
    count: int

    @property
    def end(self) -> int:
        return self.offset + HEADER_BYTES + self.length


def put_frame(first: int, events: Sequence[Event]) -> bytes:
    return _frame(PUT, first, len(events), _encode(events))


def take_frame(first: int, count: int) -> bytes:
    return _frame(TAKE, first, count, b"")


def _frame(kind: int, first: int, count: int, payload: bytes) -> bytes:
    fields = _FIELDS.pack(MAGIC, kind, len(payload), first, count)
    return fields + _CRC.pack(_checksum(fields, payload)) + payload


def _checksum(fields: bytes, payload: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(fields), payload))


def read_events(descriptor: int, frame: Frame, file: Path) -> list[Event]:
    """`CorruptFrame` if it is not what was written."""
    data = os.pread(descriptor, HEADER_BYTES + frame.length, frame.offset)
    payload = data[HEADER_BYTES:]
    if len(payload) < frame.length or not _matches(data[: _FIELDS.size], data[_FIELDS.size : HEADER_BYTES], payload):
        raise CorruptFrame(f"`{file}` is damaged at byte {frame.offset}: {frame.count} events cannot be read")
    try:
        return _decode(payload)
    except msgspec.DecodeError as error:
        raise CorruptFrame(f"`{file}` cannot be understood at byte {frame.offset}: {error}") from error


def _encode(events: Sequence[Event]) -> bytes:
    try:
        return _encoder.encode(events)
    except UnicodeEncodeError:
        return _encoder.encode([_stored(event) for event in events])


def _stored(event: Event) -> tuple[bytes, dict[str, str | bytes], str | None, str]:
    headers = {readable(name): _plain(value) for name, value in event.headers.items()}
    return event.body, headers, event.id and readable(event.id), readable(event.origin)


def _plain(value: str) -> str | bytes:
    return value if is_plain(value) else to_bytes(value)


def _decode(payload: bytes) -> list[Event]:
    try:
        return _decoder.decode(payload)
    except msgspec.ValidationError:
        return [Event(body, _headers(stored), id_, at) for body, stored, id_, at in _any_decoder.decode(payload)]


def _headers(stored: dict[str, Any]) -> Headers:
    return {name: from_bytes(value) if isinstance(value, bytes) else str(value) for name, value in stored.items()}


def walk(descriptor: int, verify: bool) -> Iterator[Frame]:
    """The frames up to the first that is torn. Payloads are looked at only if they are to be verified."""
    size, offset = os.fstat(descriptor).st_size, 0
    while offset + HEADER_BYTES <= size:
        header = os.pread(descriptor, HEADER_BYTES, offset)
        magic, kind, length, first, count = _FIELDS.unpack(header[: _FIELDS.size])
        frame = Frame(kind, offset, length, first, count)
        if magic != MAGIC or kind not in (PUT, TAKE) or length > MAX_PAYLOAD or frame.end > size:
            return
        if verify or kind == TAKE:
            payload = os.pread(descriptor, length, offset + HEADER_BYTES)
            if not _matches(header[: _FIELDS.size], header[_FIELDS.size :], payload):
                return
        yield frame
        offset = frame.end


def _matches(fields: bytes, crc: bytes, payload: bytes) -> bool:
    return len(crc) == _CRC.size and _CRC.unpack(crc)[0] == _checksum(fields, payload)
