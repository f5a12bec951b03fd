"""The files of a spool: writes, framed and checksummed, in the order they came.

A frame is its length, its CRC32C and its body; the body is a head in JSON and the batches as Arrow streams. A torn tail
is nothing that anybody was told is stored.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import msgspec
import pyarrow as pa

from headrace.errors import Overloaded
from headrace.log.base import Append
from headrace.log.local.files import make_folder, sync_file, sync_folder, write_all
from headrace.structs import ready

logger = logging.getLogger("headrace.spool")

ROLL_BYTES = 8 * 1024 * 1024
_HEAD = struct.Struct("<II")
MOST_SPOOLS = 256
ASIDE = ".refused-"
"""In the names of files with the body of one frame, which the log took neither as it is nor as letters."""


class _Part(msgspec.Struct, frozen=True):
    topic: str
    partition: int | None
    size: int


_parts = msgspec.json.Decoder(ready(list[_Part]))


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


def frames(path: Path, size: int | None = None) -> Iterator[bytes]:
    """The bodies of a file's frames, up to a torn tail or damage; of its first `size` bytes, if it is known how many
    count."""
    left = path.stat().st_size if size is None else size
    with path.open("rb") as file:
        while left >= _HEAD.size and len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, checksum = _HEAD.unpack(head)
            left -= frame_bytes(length)
            # A damaged length must not make us read what is not there.
            body = file.read(length) if left >= 0 else b""
            if len(body) < length or google_crc32c.value(body) != checksum:
                return
            yield body


def frame_bytes(body: int) -> int:
    """What a frame takes whose body has so many."""
    return _HEAD.size + body


def sound_bytes(path: Path) -> int:
    """How far a file's frames are whole."""
    return sum(frame_bytes(len(body)) for body in frames(path))


@dataclass(slots=True)
class Files:
    """A folder of numbered files: written at the end, taken away from the front. Held by one process."""

    folder: Path
    lock: int
    numbers: list[int]
    sizes: dict[int, int]
    last: int = -1
    """The greatest number there ever was."""
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
            # Whatever of it is on disk is cut off; where that fails, too, the next goes to another file, and nobody
            # reads this one any further.
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, self.sizes[last])
            self.seal()
            if not self.sizes[last]:
                self.drop(last)
            raise
        self.sizes[last] = end

    def _begin(self) -> None:
        self.seal()
        number = self.last + 1
        descriptor = os.open(self.path(number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            sync_folder(self.folder)
        except OSError:
            os.close(descriptor)
            raise
        self.descriptor, self.last = descriptor, number
        self.numbers.append(number)
        self.sizes[number] = 0

    def seal(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def drop(self, number: int) -> None:
        with contextlib.suppress(OSError):
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
        if (lock := _lock(folder)) is not None:
            return _read(folder, lock)
    raise Overloaded(f"{MOST_SPOOLS} processes hold spools in `{home}` already")


def left_behind(home: Path, own: Path) -> Iterator[Files]:
    """What processes left that were not started again: spools nobody holds, with something in them."""
    for folder in sorted(home.iterdir()):
        if folder == own or (not any(folder.glob("*.spool")) and not any(folder.glob(f"*{ASIDE}*"))):
            continue
        if (lock := _lock(folder)) is not None:
            yield _read(folder, lock)


def _lock(folder: Path) -> int | None:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _read(folder: Path, lock: int) -> Files:
    found = Files(folder, lock, [], {})
    paths = sorted(folder.glob("*.spool"))
    for path in paths:
        found.last = int(path.stem)
        size, sound = path.stat().st_size, sound_bytes(path)
        if sound < size and not (path == paths[-1] and _is_torn(path, sound)):
            keep_damage(path)
        elif sound < size:
            logger.warning("`%s`: %d bytes at its end are not whole, nobody was told of them", path, size - sound)
            os.truncate(path, sound)
        if sound:
            found.numbers.append(int(path.stem))
            found.sizes[int(path.stem)] = sound
        else:
            path.unlink()
    return found


def _is_torn(path: Path, sound: int) -> bool:
    """Whether what is not whole is the last frame there is: that was being written, and nothing followed it."""
    with path.open("rb") as file:
        file.seek(sound)
        head = file.read(_HEAD.size)
    return len(head) < _HEAD.size or sound + frame_bytes(_HEAD.unpack(head)[0]) >= path.stat().st_size


def keep_damage(path: Path) -> None:
    """A copy for somebody to look at: what is behind the damage may have been acknowledged."""
    copy = path.with_suffix(".damaged")
    shutil.copyfile(path, copy)
    sync_file(copy)
    sync_folder(copy.parent)
    logger.error("`%s` is damaged: what follows the damage is not handed over; all of it is kept in `%s`", path, copy)
