"""The files of a spool: writes, framed and checksummed, in the order they came.

A frame is its length, its CRC32C and its body; the body is a head in JSON and the batches as Arrow streams. A torn tail
is nothing that anybody was told is stored.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import msgspec
import pyarrow as pa

from headrace.errors import Overloaded
from headrace.log.base import Append
from headrace.log.local.files import make_folder, sync_folder, write_all

logger = logging.getLogger("headrace.spool")

ROLL_BYTES = 8 * 1024 * 1024
_HEAD = struct.Struct("<II")
MOST_SPOOLS = 256


class _Part(msgspec.Struct, frozen=True):
    topic: str
    partition: int | None
    size: int


_parts = msgspec.json.Decoder(list[_Part])


def encode(appends: Sequence[Append]) -> bytes:
    """One atomic write as a frame."""
    streams = [_stream(append.batch) for append in appends]
    head = msgspec.json.encode(
        [_Part(append.topic, append.partition, len(stream)) for append, stream in zip(appends, streams, strict=True)]
    )
    body = struct.pack("<I", len(head)) + head + b"".join(streams)
    return _HEAD.pack(len(body), google_crc32c.value(body)) + body


def decode(body: bytes) -> list[Append]:
    (length,) = struct.unpack_from("<I", body)
    at = 4 + length
    found = []
    for part in _parts.decode(body[4:at]):
        with pa.ipc.open_stream(pa.py_buffer(body[at : at + part.size])) as reader:
            found.append(Append(part.topic, reader.read_next_batch(), part.partition))
        at += part.size
    return found


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def frames(path: Path) -> Iterator[bytes]:
    """The bodies of a file's frames, up to a torn tail or damage."""
    with path.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, checksum = _HEAD.unpack(head)
            body = file.read(length)
            if len(body) < length or google_crc32c.value(body) != checksum:
                return
            yield body


def sound_bytes(path: Path) -> int:
    """How far a file's frames are whole."""
    return sum(_HEAD.size + len(body) for body in frames(path))


@dataclass(slots=True)
class Files:
    """A folder of numbered files: written at the end, taken away from the front. Held by one process."""

    folder: Path
    lock: int
    numbers: list[int]
    sizes: dict[int, int]
    descriptor: int = -1

    @property
    def size(self) -> int:
        return sum(self.sizes.values())

    def path(self, number: int) -> Path:
        return self.folder / f"{number:012}.spool"

    def write(self, content: Sequence[bytes]) -> None:
        """Durable when it returns."""
        if self.descriptor < 0 or self.sizes[self.numbers[-1]] >= ROLL_BYTES:
            self._begin()
        last = self.numbers[-1]
        try:
            end = write_all(self.descriptor, content, self.sizes[last])
            os.fdatasync(self.descriptor)
        except OSError:
            # Whatever of it is on disk is cut off, or written over by the next.
            os.ftruncate(self.descriptor, self.sizes[last])
            raise
        self.sizes[last] = end

    def _begin(self) -> None:
        self.seal()
        number = self.numbers[-1] + 1 if self.numbers else 0
        self.descriptor = os.open(self.path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        sync_folder(self.folder)
        self.numbers.append(number)
        self.sizes[number] = 0

    def seal(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def drop(self, number: int) -> None:
        self.path(number).unlink(missing_ok=True)
        self.numbers.remove(number)
        del self.sizes[number]

    def close(self) -> None:
        self.seal()
        os.close(self.lock)


def open_files(home: Path) -> Files:
    """The first spool that nobody holds, which may be one that a killed process left."""
    for number in range(MOST_SPOOLS):
        folder = home / str(number)
        make_folder(folder)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return _read(folder, lock)
    raise Overloaded(f"{MOST_SPOOLS} processes hold spools in `{home}` already")


def _read(folder: Path, lock: int) -> Files:
    found = Files(folder, lock, [], {})
    for path in sorted(folder.glob("*.spool")):
        size, sound = path.stat().st_size, sound_bytes(path)
        if sound < size:
            logger.warning("`%s`: %d bytes at its end are not whole, nobody was told of them", path, size - sound)
            os.truncate(path, sound)
        if sound:
            found.numbers.append(int(path.stem))
            found.sizes[int(path.stem)] = sound
        else:
            path.unlink()
    return found
