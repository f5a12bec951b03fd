"""Growing files: which there are, how far each was read, and what is new in them.

A file is known by its inode and by how it begins, so it may be renamed (rotated) while it is read, and a new one may
have its name, its inode, or be the same one emptied (copytruncate): what is left of the old one is read first, wherever
it went in its folder. It is kept open, too, so one that was deleted or moved elsewhere is read to its end. What is lost
all the same, and what cannot be read, is said (`told`, `unreadable`).
"""

from __future__ import annotations

import glob
import io
import os
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

CHUNK_BYTES = 2 * 1024 * 1024
HEAD_BYTES = 256
MOST_HELD = 256
"""Files that are kept open: those that grew last."""
IDLE_S = 120.0
"""How long a file that is nowhere any more may still be written to by somebody who has not noticed."""


class Place(msgspec.Struct, frozen=True):
    """How far a file was read. Kept in the cursor."""

    path: str
    inode: int
    offset: int = 0
    head: int = 0
    """How many of its first bytes are known, and their checksum: what makes it the same file."""
    checksum: int = 0
    state: dict[str, Any] = {}
    """What the lines before say about those to come: the fields of a W3C log, the first line of a CSV file."""
    skipping: bool = False
    """In the middle of a line that was too long."""
    size: int = 0
    """Of the whole file, when it was last read."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of a file."""

    place: Place
    """Before them."""
    data: bytes
    too_long: bool = False
    """It is the beginning of a line longer than lines may be."""

    @property
    def following(self) -> Place:
        return msgspec.structs.replace(self.place, offset=self.place.offset + len(self.data))


@dataclass(slots=True)
class _Gone:
    """A file that is nowhere any more, but open."""

    place: Place
    file: io.FileIO
    since: float
    """When it grew last."""


class Tail:
    """The files of one collector. What was read counts when `advance` is told."""

    def __init__(
        self,
        folder: Path,
        patterns: list[str],
        most_line: int,
        places: list[Place],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._patterns, self._most_line, self._now = folder, patterns, most_line, now
        self._places: dict[str, Place] = {}
        self._displaced: list[Place] = []
        """Of a former process: whose names belong to others now."""
        for place in places:
            if place.path in self._places:
                self._displaced.append(self._places[place.path])
            self._places[place.path] = place
        self._held: dict[str, io.FileIO] = {}
        self._gone: dict[int, _Gone] = {}
        self.unreadable: dict[str, str] = {}
        """Files that match and cannot be read, and why."""
        self._told: list[str] = []
        self.lock = threading.Lock()
        """For whoever reads in a thread that may outlive its reader."""

    @property
    def places(self) -> list[Place]:
        return [*(gone.place for gone in self._gone.values()), *self._places.values()]

    def told(self) -> list[str]:
        """What went wrong since the last time."""
        told, self._told = self._told, []
        return told

    def advance(self, place: Place) -> None:
        gone = self._gone.get(place.inode)
        if gone is not None and gone.place.path == place.path:
            gone.place = place
        else:
            self._places[place.path] = place

    def begin_at_end(self, state: Callable[[bytes], dict[str, Any]] = lambda head: {}) -> None:
        """Only what comes from now on. `state` says what a file's beginning tells about its lines."""
        for path in self._matching():
            with self._readable(path), _opened(path) as file:
                if file is not None:
                    found = os.fstat(file)
                    end = _after_last_line(file, found.st_size)
                    head = os.pread(file, min(end, CHUNK_BYTES), 0)
                    known = _known(Place(path, found.st_ino, end, size=end), file)
                    self.advance(msgspec.structs.replace(known, state=state(head[: head.rfind(b"\n") + 1])))

    def new(self) -> Iterator[Piece]:
        """Whole lines that came since, piece by piece; each must be advanced before the next is asked for."""
        self._follow_renamed()
        for gone in list(self._gone.values()):
            yield from self._finish(gone)
        matching = self._matching()
        # Whoever writes a file that was rotated may not have noticed yet.
        others = [path for path in self._places if path not in matching]
        for path in [*others, *matching]:
            while (piece := self._next(path)) is not None:
                yield piece

    def close(self) -> None:
        with self.lock:
            for file in [*self._held.values(), *(gone.file for gone in self._gone.values())]:
                file.close()
            self._held, self._gone = {}, {}

    # Which there are

    def _matching(self) -> list[str]:
        found = {path for pattern in self._patterns for path in glob.glob(str(self._folder / pattern), recursive=True)}
        self.unreadable = {path: why for path, why in self.unreadable.items() if path in found or path in self._places}
        return sorted((path for path in found if self._is_file(path)), key=_age)

    def _is_file(self, path: str) -> bool:
        try:
            return stat.S_ISREG(os.stat(path).st_mode)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._cannot(path, error)
            return False

    def _follow_renamed(self) -> None:
        """Files are where they are now, whatever they were called."""
        moved: dict[str, Place] = {}
        held: dict[str, io.FileIO] = {}
        for place in [*self._displaced, *self._places.values()]:
            path = place.path if _is_there(place) else self._elsewhere(place)
            file = self._held.pop(place.path, None)
            if path is not None:
                moved[path] = msgspec.structs.replace(place, path=path)
                if file is not None:
                    held[path] = file
            elif file is not None:
                self._gone[place.inode] = _Gone(place, file, self._now())
            else:
                self._lost(place, place.size)
        self._places, self._displaced = moved, []
        self._held |= held

    def _elsewhere(self, place: Place) -> str | None:
        """Where a file is now, in its folder; where it was, if nobody can say."""
        try:
            with os.scandir(Path(place.path).parent) as entries:
                for entry in entries:
                    if entry.inode() == place.inode and entry.path != place.path and self._same(place, entry.path):
                        return entry.path
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            return place.path
        return None

    def _same(self, place: Place, path: str) -> bool:
        try:
            with _opened(path) as file:
                return file is not None and _is_same(place, file)
        except OSError as error:
            # That it cannot be read any more does not make it another one.
            self._cannot(path, error)
            return isinstance(error, PermissionError)

    def _lost(self, place: Place, size: int) -> None:
        if size > place.offset:
            count = size - place.offset
            self._told.append(f"{place.path} is gone before it was read to its end: {count} bytes of it are lost")

    # What is in them

    def _finish(self, gone: _Gone) -> Iterator[Piece]:
        with self._readable(gone.place.path):
            while (piece := self._read(gone.place, gone.file.fileno())) is not None:
                gone.since = self._now()
                yield piece
            if self._now() - gone.since < IDLE_S:
                return
            self._lost(gone.place, os.fstat(gone.file.fileno()).st_size)
        gone.file.close()
        del self._gone[gone.place.inode]

    def _next(self, path: str) -> Piece | None:
        piece = None
        with self._readable(path), _opened(path) as file:
            if file is not None:
                piece = self._next_of(path, file)
        return piece

    def _next_of(self, path: str, file: int) -> Piece | None:
        found = os.fstat(file)
        place = self._places.get(path)
        if place is not None and place.inode != found.st_ino:
            # It was replaced just now: where the old one went is looked for first.
            return None
        if place is None or found.st_size < place.offset or not _is_same(place, file):
            if place is not None:
                self._lost(place, place.size)
            place = Place(path, found.st_ino)
            self._release(path)
        self._hold(path, file)
        piece = self._read(place, file)
        if piece is not None and path in self._held:
            self._held[path] = self._held.pop(path)
        return piece

    def _read(self, place: Place, file: int) -> Piece | None:
        """The next whole lines after a place."""
        while True:
            size = os.fstat(file).st_size
            if size <= place.offset:
                return None
            place = msgspec.structs.replace(_known(place, file), size=size)
            data = os.pread(file, max(CHUNK_BYTES, self._most_line + 1), place.offset)
            if not place.skipping or not data:
                return self._cut(place, data)
            at = data.find(b"\n")
            rest = len(data) if at < 0 else at + 1
            place = msgspec.structs.replace(place, offset=place.offset + rest, skipping=at < 0)
            self.advance(place)

    def _cut(self, place: Place, data: bytes) -> Piece | None:
        end = data.rfind(b"\n") + 1
        if end:
            return Piece(place, data[:end])
        if len(data) > self._most_line:
            return Piece(msgspec.structs.replace(place, skipping=True), data[: self._most_line + 1], too_long=True)
        return None

    def _hold(self, path: str, file: int) -> None:
        if path not in self._held:
            self._held[path] = io.FileIO(os.dup(file))
            if len(self._held) > MOST_HELD:
                self._release(next(iter(self._held)))

    def _release(self, path: str) -> None:
        file = self._held.pop(path, None)
        if file is not None:
            file.close()

    @contextmanager
    def _readable(self, path: str) -> Iterator[None]:
        """One that cannot be read is left out, and said; the others go on."""
        try:
            yield
        except OSError as error:
            self._cannot(path, error)
        else:
            self.unreadable.pop(path, None)

    def _cannot(self, path: str, error: OSError) -> None:
        if path not in self.unreadable:
            self._told.append(f"{path} cannot be read: {error.strerror}")
        self.unreadable[path] = error.strerror or type(error).__name__


class _opened:
    """A file descriptor, None if there is no such file (any more)."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = None

    def __enter__(self) -> int | None:
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        return self._file

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)


def _is_there(place: Place) -> bool:
    try:
        return os.stat(place.path).st_ino == place.inode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # Nobody can say; it is not forgotten for that.
        return True


def _after_last_line(file: int, size: int) -> int:
    """The offset behind its last line's end, looked for from the end: a file may be larger than the memory."""
    end = size
    while end > 0:
        start = max(0, end - CHUNK_BYTES)
        at = os.pread(file, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def _age(path: str) -> tuple[int, str]:
    """The oldest first: that is the order in which rotated files were written."""
    try:
        return os.stat(path).st_mtime_ns, path
    except OSError:
        return 0, path


def _is_same(place: Place, file: int) -> bool:
    return os.fstat(file).st_ino == place.inode and zlib.crc32(os.pread(file, place.head, 0)) == place.checksum


def _known(place: Place, file: int) -> Place:
    """With as much of its beginning as there is."""
    if place.head >= HEAD_BYTES:
        return place
    head = os.pread(file, HEAD_BYTES, 0)
    return msgspec.structs.replace(place, head=len(head), checksum=zlib.crc32(head))
