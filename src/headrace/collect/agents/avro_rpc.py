"""Avro's RPC over TCP (`NettyTransceiver`), for Flume's `AvroSourceProtocol`: `append` and `appendBatch`.

A frame is a serial number, a number of buffers, and each buffer with its length. The first message of a connection
begins with a handshake, in which both sides show the hash of their protocol. We know one protocol, so a client with
another hash is answered that the hashes differ together with ours, and is understood nonetheless: the messages have
been the same in all of Flume 1.x.
"""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.collect.agents.avro_event import (
    Reader,
    pack_lists,
    write_event,
    write_events,
    write_headers,
    write_long,
    write_string,
)
from headrace.collect.agents.base import AgentError, Event
from headrace.collect.agents.sources.limits import Budget, Patience
from headrace.errors import UsageError

MAX_FRAME = 64 * 1024 * 1024
_HEAD = struct.Struct(">II")
_LENGTH = struct.Struct(">I")
BOTH, CLIENT, NONE = 0, 1, 2
OK, FAILED, UNKNOWN = 0, 1, 2
HASH_BYTES = 16

PROTOCOL = json.dumps(
    {
        "protocol": "AvroSourceProtocol",
        "namespace": "org.apache.flume.source.avro",
        "types": [
            {"type": "enum", "name": "Status", "symbols": ["OK", "FAILED", "UNKNOWN"]},
            {
                "type": "record",
                "name": "AvroFlumeEvent",
                "fields": [
                    {"name": "headers", "type": {"type": "map", "values": "string"}},
                    {"name": "body", "type": "bytes"},
                ],
            },
        ],
        "messages": {
            "append": {"request": [{"name": "event", "type": "AvroFlumeEvent"}], "response": "Status"},
            "appendBatch": {
                "request": [{"name": "events", "type": {"type": "array", "items": "AvroFlumeEvent"}}],
                "response": "Status",
            },
        },
    },
    separators=(",", ":"),
)
OUR_HASH = hashlib.md5(PROTOCOL.encode(), usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    events: list[Event]


class Stream:
    """Bytes of a socket, in whole pieces; compressed both ways if asked."""

    def __init__(
        self,
        connection: socket.socket,
        compress: bool = False,
        level: int = 6,
        patience: Patience | None = None,
        budget: Budget | None = None,
    ) -> None:
        """`patience` and `budget` are for a side that anybody may connect to."""
        self._socket, self._patience, self._budget = connection, patience, budget
        self._held = 0
        self._buffer = bytearray()
        self._in = zlib.decompressobj() if compress else None
        self._out = zlib.compressobj(level) if compress else None

    def read(self, size: int) -> bytes | None:
        """None if the other side has gone in between messages."""
        while len(self._buffer) < size:
            if self._patience is not None:
                self._patience.wait()
            data = self._socket.recv(256 * 1024)
            if self._patience is not None:
                self._patience.came()
            if not data:
                if self._buffer:
                    raise UsageError("the connection ended within a message")
                return None
            self._add(data)
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    def need(self, size: int) -> bytes:
        found = self.read(size)
        if found is None:
            raise UsageError("the connection ended within a message")
        return found

    def begin(self) -> None:
        """The message before is answered."""
        if self._patience is not None:
            self._patience.begin()
        self._hold(len(self._buffer))

    def release(self) -> None:
        """At the end."""
        self._buffer.clear()
        self._hold(0)

    def _hold(self, size: int) -> None:
        """So many bytes from now on."""
        if self._budget is None:
            return
        if size > self._held and not self._budget.take(size - self._held):
            raise UsageError(f"more than {self._budget.most} bytes at once", hint="send again")
        if size < self._held:
            self._budget.give_back(self._held - size)
        self._held = size

    def _add(self, data: bytes) -> None:
        if self._in is None:
            self._hold(self._held + len(data))
            self._buffer += data
            return
        while data:
            plain = self._in.decompress(data, MAX_FRAME)
            self._hold(self._held + len(plain))
            self._buffer += plain
            data = self._in.unconsumed_tail
            if len(self._buffer) > 2 * MAX_FRAME:
                raise UsageError(f"a message of more than {MAX_FRAME} bytes", hint="make the batches smaller")

    def write(self, data: bytes) -> None:
        if self._out is not None:
            data = self._out.compress(data) + self._out.flush(zlib.Z_SYNC_FLUSH)
        if self._patience is not None:
            # What was left for the message to come is no measure for the answer to it.
            self._patience.begin()
            self._patience.wait()
        self._socket.sendall(data)


def read_frame(stream: Stream) -> tuple[int, bytes] | None:
    """Serial number and message; None at the end."""
    head = stream.read(_HEAD.size)
    if head is None:
        return None
    serial, buffers = _HEAD.unpack(head)
    if buffers > 1_000_000:
        raise UsageError("this is not Avro's RPC", hint="an avro source is for avro sinks")
    parts: list[bytes] = []
    size = 0
    for _ in range(buffers):
        (length,) = _LENGTH.unpack(stream.need(_LENGTH.size))
        size += length
        if size > MAX_FRAME:
            raise UsageError(f"a message of more than {MAX_FRAME} bytes", hint="make the batches smaller")
        parts.append(stream.need(length) if length else b"")
    return serial, b"".join(parts)


# The server's side


def read_handshake(reader: Reader) -> bool:
    """Whether the client's idea of us is ours."""
    reader.fixed(HASH_BYTES)
    if reader.long():
        reader.string()
    theirs = reader.fixed(HASH_BYTES)
    if reader.long():
        _skip_meta(reader)
    return theirs == OUR_HASH


def answer_handshake(known: bool) -> bytes:
    if known:
        return write_long(BOTH) + write_long(0) + write_long(0) + write_long(0)
    return write_long(CLIENT) + write_long(1) + write_string(PROTOCOL) + write_long(1) + OUR_HASH + write_long(0)


def read_call(reader: Reader) -> Call:
    """A call with an empty name only wants the handshake."""
    _skip_meta(reader)
    name = reader.string()
    match name:
        case "":
            return Call(name, [])
        case "append":
            return Call(name, [reader.event()])
        case "appendBatch":
            return Call(name, reader.events())
    raise UsageError(f"there is no call `{name[:40]}`", hint="`append` and `appendBatch` are")


def answer_status(status: int) -> bytes:
    return write_headers({}) + b"\x00" + write_long(status)


def answer_error(message: str) -> bytes:
    """An error that the protocol does not declare is a string."""
    return write_headers({}) + b"\x01" + write_long(0) + write_string(message)


def _skip_meta(reader: Reader) -> None:
    while count := reader.count():
        for _ in range(count):
            reader.string()
            reader.bytes_()


# The client's side


class AvroClient:
    """One connection to an avro source, ours or Flume's. For one thread."""

    def __init__(
        self, host: str, port: int, connect_s: float, request_s: float, compress: bool = False, level: int = 6
    ) -> None:
        try:
            self._socket = socket.create_connection((host, port), connect_s)
        except OSError as error:
            raise AgentError(
                f"`{host}:{port}` cannot be reached: {(error.strerror or str(error)).lower()}",
                hint="is the next agent running? events wait in the channel meanwhile",
            ) from None
        self._socket.settimeout(request_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = Stream(self._socket, compress, level)
        self._serial = 0
        self._server_hash = OUR_HASH
        self._shaken = False

    def append_batch(self, events: Sequence[Event]) -> None:
        """Return when the other side has them."""
        if len(events) == 1:
            self._call("append", write_event(events[0]))
        else:
            self._call("appendBatch", write_events(list(events)))

    def _call(self, name: str, parameters: bytes) -> None:
        call = write_headers({}) + write_string(name) + parameters
        try:
            answer = self._ask(call)
            if answer.boolean():
                raise AgentError(f"the next agent failed: {_error_text(answer)}")
            if (status := answer.long()) != OK:
                raise AgentError(f"the next agent did not take the events: {('ok', 'failed', 'unknown')[status]}")
        except (OSError, UsageError) as error:
            self.close()
            raise AgentError(f"the connection to the next agent broke: {error}") from error

    def _ask(self, call: bytes) -> Reader:
        """Up to the answer's content. A server that does not know our protocol is shown it."""
        reader = self._exchange(call)
        if not self._shaken:
            if self._read_handshake(reader) == NONE:
                reader = self._exchange(call)
                if self._read_handshake(reader) == NONE:
                    raise UsageError("the next agent does not speak Flume's protocol")
            self._shaken = True
        _skip_meta(reader)
        return reader

    def _exchange(self, call: bytes) -> Reader:
        shake = b"" if self._shaken else self._handshake()
        self._serial += 1
        self._stream.write(pack_lists(self._serial, shake + call))
        while True:
            frame = read_frame(self._stream)
            if frame is None:
                raise UsageError("it was closed before the answer")
            if frame[0] == self._serial:
                return Reader(frame[1])

    def _handshake(self) -> bytes:
        return OUR_HASH + write_long(1) + write_string(PROTOCOL) + self._server_hash + write_long(0)

    def _read_handshake(self, reader: Reader) -> int:
        match = reader.long()
        if reader.long():
            reader.string()
        if reader.long():
            self._server_hash = reader.fixed(HASH_BYTES)
        if reader.long():
            _skip_meta(reader)
        return match

    def close(self) -> None:
        self._socket.close()


def _error_text(reader: Reader) -> str:
    reader.long()
    return reader.string()
