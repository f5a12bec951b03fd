"""A queue in files: put at the end, taken from the beginning, settled in any order.

Files are numbered; the newest is written to, and one that has nothing left to take is deleted once all before it are.
After a crash the newest file is cut at its first torn frame. Damage anywhere else costs that frame only: it
is set aside, counted and passed over.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import threading
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.collect.agents.base import Event
from headrace.collect.agents.channels.frames import HEADER_BYTES, PUT, Frame, put_frame, read_events, take_frame, walk
from headrace.collect.agents.channels.room import TAKE_BYTES
from headrace.errors import CorruptFrame

logger = logging.getLogger("headrace.agent.file_channel")

KEPT_BYTES = 32 * 1024 * 1024
"""Events put most recently stay in memory as well, so that nobody reads what was just written."""


@dataclass(slots=True)
class DataFile:
    number: int
    path: Path
    descriptor: int
    size: int = 0
    pending: int = 0
    """Events of it that are not settled."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Events in a row of one frame. `events` is None until they are read."""

    file: int
    frame: Frame
    first: int
    count: int
    events: list[Event] | None = None
    kept: int = 0
    """Bytes counted as kept in memory, until the last of them is settled."""

    @property
    def end(self) -> int:
        return self.first + self.count


class Spool:
    """Safe to use from several threads."""

    def __init__(self, folder: Path, file_bytes: int, min_free_bytes: int, damaged: Callable[[int], None]) -> None:
        self._folder, self._file_bytes, self._min_free = folder, file_bytes, min_free_bytes
        self._damaged = damaged
        self._lock = threading.Lock()
        self._files: dict[int, DataFile] = {}
        self._waiting: deque[Piece] = deque()
        self._back: list[Piece] = []
        """Taken and given back: first in line, by sequence number."""
        self._next = 0
        self._kept_bytes = 0
        folder.mkdir(parents=True, exist_ok=True)
        self.id = _identity(folder)
        self._recover()

    @property
    def pending(self) -> int:
        return sum(file.pending for file in self._files.values())

    def size(self) -> int:
        return sum(file.size for file in list(self._files.values()))

    # Putting

    def put(self, events: Sequence[Event]) -> None:
        """Durable when it returns; `OSError` if not, and then nothing is there."""
        with self._lock:
            frame = put_frame(self._next, events)
            self._check_disk(len(frame))
            file = self._writable()
            offset = file.size
            self._write(file, frame, sync=True)
            kept = len(frame) if self._kept_bytes + len(frame) <= KEPT_BYTES else 0
            self._kept_bytes += kept
            place = Frame(PUT, offset, len(frame) - HEADER_BYTES, self._next, len(events))
            self._waiting.append(
                Piece(file.number, place, self._next, len(events), list(events) if kept else None, kept)
            )
            file.pending += len(events)
            self._next += len(events)

    def _check_disk(self, size: int) -> None:
        if self._min_free:
            found = os.statvfs(self._folder)
            if found.f_bavail * found.f_frsize < self._min_free + size:
                raise OSError(errno.ENOSPC, f"less than {self._min_free} bytes free", str(self._folder))

    def _writable(self) -> DataFile:
        newest = self._files[max(self._files)] if self._files else None
        if newest is None or newest.size >= self._file_bytes:
            if newest is not None:
                # Only the newest file may be torn.
                os.fdatasync(newest.descriptor)
            return self._begin(newest.number + 1 if newest else 1)
        return newest

    def _begin(self, number: int) -> DataFile:
        path = self._folder / f"log-{number}"
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        file = self._files[number] = DataFile(number, path, descriptor)
        # How far the numbers have come, before the files that would tell are deleted: a number must not come twice.
        self._write(file, take_frame(self._next, 0), sync=False)
        os.fdatasync(descriptor)
        _sync_folder(self._folder)
        self._sweep()
        return file

    def _write(self, file: DataFile, data: bytes, sync: bool) -> None:
        try:
            view, offset = memoryview(data), file.size
            while view:
                written = os.pwrite(file.descriptor, view, offset)
                view, offset = view[written:], offset + written
        except OSError:
            # What is half there must not be found after a restart.
            os.ftruncate(file.descriptor, file.size)
            raise
        if sync:
            self._sync(file)
        file.size += len(data)

    def _sync(self, file: DataFile) -> None:
        try:
            os.fdatasync(file.descriptor)
        except OSError:
            # Nobody knows what of the file is on disk: it is not trusted with more, nor synced again.
            os.ftruncate(file.descriptor, file.size)
            self._begin(file.number + 1)
            raise

    # Taking

    def take(self, most: int) -> tuple[list[Piece], int]:
        """Up to so many of the oldest, and how many were found damaged on the way: those are gone."""
        taken: list[Piece] = []
        lost = size = 0
        with self._lock:
            while most > 0 and size < TAKE_BYTES:
                piece = self._oldest()
                if piece is None:
                    break
                try:
                    piece = self._read(piece)
                except CorruptFrame as error:
                    lost += self._set_aside(piece, error)
                    continue
                if piece.count > most:
                    piece, rest = _split(piece, most)
                    self._put_first(rest)
                size += sum(len(event.body) for event in piece.events or ())
                taken.append(piece)
                most -= piece.count
        return taken, lost

    def _oldest(self) -> Piece | None:
        if self._back and (not self._waiting or self._back[0].first < self._waiting[0].first):
            return self._back.pop(0)
        return self._waiting.popleft() if self._waiting else None

    def _put_first(self, piece: Piece) -> None:
        if not self._back:
            self._waiting.appendleft(piece)
        else:
            insort(self._back, piece, key=lambda one: one.first)

    def _read(self, piece: Piece) -> Piece:
        if piece.events is not None:
            return piece
        file = self._files[piece.file]
        events = read_events(file.descriptor, piece.frame, file.path)
        start = piece.first - piece.frame.first
        return replace(piece, events=events[start : start + piece.count])

    def give_back(self, pieces: Sequence[Piece]) -> None:
        with self._lock:
            for piece in pieces:
                insort(self._back, piece, key=lambda one: one.first)

    def settle(self, pieces: Sequence[Piece]) -> None:
        """They are never to be taken again."""
        with self._lock:
            data = b"".join(take_frame(first, count) for first, count in _runs(pieces))
            # Not synced: what is forgotten here is taken again, which is allowed; that it be put again is not needed.
            self._write(self._files[max(self._files)], data, sync=False)
            for piece in pieces:
                self._files[piece.file].pending -= piece.count
                self._kept_bytes -= piece.kept
            self._sweep()

    def _sweep(self) -> None:
        """Delete what is settled, oldest first: a younger file says what was taken of the older ones."""
        newest = max(self._files)
        for number in sorted(self._files):
            file = self._files[number]
            if file.pending or number == newest:
                return
            os.close(file.descriptor)
            file.path.unlink(missing_ok=True)
            del self._files[number]

    def _set_aside(self, piece: Piece, error: CorruptFrame) -> int:
        file = self._files[piece.file]
        aside = self._folder / f"damaged-{file.number}-{piece.frame.offset}"
        aside.write_bytes(os.pread(file.descriptor, piece.frame.end - piece.frame.offset, piece.frame.offset))
        logger.error("%s; set aside as `%s`", error.message, aside)
        file.pending -= piece.count
        self._damaged(piece.count)
        return piece.count

    # Opening and closing

    def _recover(self) -> None:
        numbers = sorted(int(path.name[4:]) for path in self._folder.glob("log-*") if path.name[4:].isdecimal())
        puts: list[Piece] = []
        takes: list[tuple[int, int]] = []
        for number in numbers:
            path = self._folder / f"log-{number}"
            file = self._files[number] = DataFile(number, path, os.open(path, os.O_RDWR | os.O_CLOEXEC))
            for frame in walk(file.descriptor, verify=number == numbers[-1]):
                file.size = frame.end
                self._next = max(self._next, frame.first + frame.count)
                if frame.kind == PUT:
                    puts.append(Piece(number, frame, frame.first, frame.count))
                else:
                    takes.append((frame.first, frame.first + frame.count))
            self._cut(file, last=number == numbers[-1])
        for piece in _untaken(puts, takes):
            self._waiting.append(piece)
            self._files[piece.file].pending += piece.count
        if self._files:
            self._sweep()

    def _cut(self, file: DataFile, last: bool) -> None:
        torn = os.fstat(file.descriptor).st_size - file.size
        if not torn:
            return
        if last:
            logger.warning("`%s`: cut %d bytes of an unfinished write", file.path, torn)
            os.ftruncate(file.descriptor, file.size)
            os.fdatasync(file.descriptor)
        else:
            logger.error("`%s` is damaged from byte %d on: %d bytes cannot be read", file.path, file.size, torn)
            aside = self._folder / f"damaged-{file.number}-{file.size}"
            aside.write_bytes(os.pread(file.descriptor, torn, file.size))

    def close(self) -> None:
        with self._lock:
            for file in self._files.values():
                os.fdatasync(file.descriptor)
                os.close(file.descriptor)
            self._files.clear()


def _identity(folder: Path) -> str:
    """A random name, the same for as long as the folder is there."""
    file = folder / "id"
    try:
        found = file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        found = ""
    if not found:
        found = secrets.token_hex(8)
        with file.open("w", encoding="ascii") as writing:
            writing.write(found)
            writing.flush()
            os.fsync(writing.fileno())
        _sync_folder(folder)
    return found


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _split(piece: Piece, count: int) -> tuple[Piece, Piece]:
    assert piece.events is not None
    first = replace(piece, count=count, events=piece.events[:count], kept=0)
    rest = replace(piece, first=piece.first + count, count=piece.count - count, events=piece.events[count:])
    return first, rest


def _runs(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """Neighbours joined: (first, count)."""
    runs: list[tuple[int, int]] = []
    for piece in pieces:
        if runs and sum(runs[-1]) == piece.first:
            runs[-1] = (runs[-1][0], runs[-1][1] + piece.count)
        else:
            runs.append((piece.first, piece.count))
    return runs


def _untaken(puts: Sequence[Piece], takes: Sequence[tuple[int, int]]) -> list[Piece]:
    """What is left of the puts, in order."""
    left: list[Piece] = []
    ordered = deque(sorted(takes))
    for piece in sorted(puts, key=lambda one: one.first):
        at = piece.first
        while ordered and ordered[0][1] <= at:
            ordered.popleft()
        for start, end in ordered:
            if start >= piece.end:
                break
            if start > at:
                left.append(replace(piece, first=at, count=start - at))
            at = max(at, end)
        if at < piece.end:
            left.append(replace(piece, first=at, count=piece.end - at))
    return left
