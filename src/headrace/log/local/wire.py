"""The owner's socket: lines of JSON, Arrow streams between them (docs/log-format.md)."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import IO, Any

import msgspec
import pyarrow as pa

from headrace.errors import HeadraceError, UsageError

MOST_LINE = 4 * 1024 * 1024


def read_line(file: IO[bytes]) -> dict[str, Any] | None:
    """The next line's object; None when the other side has hung up."""
    line = file.readline(MOST_LINE)
    if not line:
        return None
    if not line.endswith(b"\n"):
        if len(line) < MOST_LINE:
            return None
        raise UsageError(f"a line of the protocol is longer than {MOST_LINE} bytes")
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UsageError("a line of the protocol is not a JSON object", detail=str(error)) from error


def encode_line(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body) + b"\n"


def answer(body: dict[str, Any]) -> bytes:
    return encode_line({"ok": True} | body)


def failure(error: HeadraceError) -> bytes:
    return encode_line({"ok": False, "error": error.to_json()})


def read_batches(file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """The batches of one Arrow stream, to its end. What does not hold together is refused before anyone touches it."""
    source = _Whole(file)
    with pa.ipc.open_stream(source) as stream:
        for batch in stream:
            try:
                batch.validate(full=True)
            except pa.ArrowInvalid as error:
                raise UsageError("an Arrow batch is not valid", detail=str(error)) from error
            yield batch
    if source.broken:
        raise ConnectionError("the stream broke off")


class _Whole:
    """Notices that the sender hung up: Arrow takes that for the end of a stream, and would store half of it."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.broken = False

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.broken = self.broken or len(data) < size
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """The file stays open: the next request follows."""


def encode_batches(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return sink.getvalue()


def connect(path: str, timeout: float | None = None) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection
