"""Flume's event in Avro's binary form: `{headers: map<string>, body: bytes}`. Also what Avro's RPC is made of."""

from __future__ import annotations

import struct

from headrace.collect.agents.base import NO_HEADERS, Event, Headers
from headrace.collect.agents.texts import from_bytes, readable, to_bytes
from headrace.errors import UsageError

ID_HEADER = "headrace.id"
"""An event's id, between agents and in Kafka: so it stays the same event."""


def write_long(number: int) -> bytes:
    """
    >>> write_long(0), write_long(-1), write_long(64)
    (b'\\x00', b'\\x01', b'\\x80\\x01')
    """
    value = (number << 1) ^ (number >> 63)
    if 0 <= value < 0x80:
        return bytes((value,))
    out = bytearray()
    value &= (1 << 64) - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_bytes(data: bytes) -> bytes:
    return write_long(len(data)) + data


def write_string(text: str) -> bytes:
    return write_bytes(to_bytes(text))


def write_headers(headers: Headers) -> bytes:
    if not headers:
        return b"\x00"
    pairs = b"".join(write_string(name) + write_string(value) for name, value in headers.items())
    return write_long(len(headers)) + pairs + b"\x00"


def write_event(event: Event) -> bytes:
    headers = event.headers if event.id is None else event.headers | {ID_HEADER: event.id}
    return write_headers(headers) + write_bytes(event.body)


class Reader:
    """Reads what Avro wrote; `UsageError` where it cannot be that."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._data)

    def fixed(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if size < 0 or len(found) < size:
            raise UsageError("the Avro message is cut off, or is none")
        self._at += size
        return found

    def long(self) -> int:
        value = shift = 0
        while True:
            byte = self.fixed(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise UsageError("the Avro message has a number that is too long")

    def boolean(self) -> bool:
        return self.fixed(1) != b"\x00"

    def bytes_(self) -> bytes:
        return self.fixed(self.long())

    def string(self) -> str:
        """As `texts` says: any bytes."""
        return from_bytes(self.bytes_())

    def count(self) -> int:
        """Of the next block of a map or an array; 0 at its end."""
        count = self.long()
        if count < 0:
            self.long()
            count = -count
        # Every element takes a byte at least.
        if count > len(self._data) - self._at:
            raise UsageError("the Avro message promises more than it has")
        return count

    def headers(self) -> Headers:
        found: Headers = {}
        while count := self.count():
            for _ in range(count):
                name = readable(self.string())
                found[name] = self.string()
        return found

    def event(self) -> Event:
        headers = self.headers()
        id_ = headers.pop(ID_HEADER, None)
        return Event(self.bytes_(), headers or NO_HEADERS, None if not id_ else readable(id_))

    def events(self) -> list[Event]:
        found: list[Event] = []
        while count := self.count():
            found += [self.event() for _ in range(count)]
        return found


def write_events(events: list[Event]) -> bytes:
    if not events:
        return b"\x00"
    return write_long(len(events)) + b"".join(map(write_event, events)) + b"\x00"


def pack_lists(serial: int, message: bytes) -> bytes:
    """Avro's frame over TCP, as Netty writes it: a serial number and a list of buffers."""
    return struct.pack(">III", serial, 1, len(message)) + message
