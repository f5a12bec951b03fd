"""Growing files: which there are, how far each was read, and what is new in them.

A file is known by its inode and by how it begins, so it may be renamed (rotated) while it is read, and a new one may
have its name, its inode, or be the same one emptied (copytruncate): what is left of the old one is read first, wherever
it went in its folder.
"""

from __future__ import annotations

import glob
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

CHUNK_BYTES = 2 * 1024 * 1024
HEAD_BYTES = 256


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


class Tail:
    """The files of one collector. What was read counts when `advance` is told."""

    def __init__(self, folder: Path, patterns: list[str], most_line: int, places: list[Place]) -> None:
        self._folder, self._patterns, self._most_line = folder, patterns, most_line
        self._places = {place.path: place for place in places}

    @property
    def places(self) -> list[Place]:
        return list(self._places.values())

    def advance(self, place: Place) -> None:
        self._places[place.path] = place

    def begin_at_end(self) -> None:
        """Only what comes from now on."""
        for path in self._matching():
            with _opened(path) as file:
                if file is not None:
                    size = os.fstat(file).st_size
                    data = os.pread(file, size, 0)
                    self.advance(_known(Place(path, os.fstat(file).st_ino, data.rfind(b"\n") + 1), file))

    def new(self) -> Iterator[Piece]:
        """Whole lines that came since, piece by piece; each must be advanced before the next is asked for."""
        self._follow_renamed()
        matching = self._matching()
        # Whoever writes a file that was rotated may not have noticed yet.
        others = [path for path in self._places if path not in matching]
        for path in [*others, *matching]:
            while (piece := self._next(path)) is not None:
                yield piece

    def _matching(self) -> list[str]:
        found = {path for pattern in self._patterns for path in glob.glob(str(self._folder / pattern), recursive=True)}
        return sorted((path for path in found if os.path.isfile(path)), key=_age)

    def _follow_renamed(self) -> None:
        """Files are where they are now, whatever they were called."""
        moved: dict[str, Place] = {}
        for path, place in self._places.items():
            other = path if _inode(path) == place.inode else self._elsewhere(place)
            # One that is nowhere any more was read as far as it could be.
            if other is not None:
                moved[other] = msgspec.structs.replace(place, path=other)
        self._places = moved

    def _elsewhere(self, place: Place) -> str | None:
        """Where a file is now, in its folder."""
        try:
            with os.scandir(Path(place.path).parent) as entries:
                for entry in entries:
                    if entry.inode() == place.inode and entry.path != place.path:
                        with _opened(entry.path) as file:
                            if file is not None and _is_same(place, file):
                                return entry.path
        except OSError:
            return None
        return None

    def _next(self, path: str) -> Piece | None:
        with _opened(path) as file:
            if file is None:
                return None
            found = os.fstat(file)
            place = self._places.get(path)
            if place is None or found.st_size < place.offset or not _is_same(place, file):
                place = Place(path, found.st_ino)
            if found.st_size <= place.offset:
                return None
            place = _known(place, file)
            data = os.pread(file, max(CHUNK_BYTES, self._most_line + 1), place.offset)
            return self._cut(place, data)

    def _cut(self, place: Place, data: bytes) -> Piece | None:
        if place.skipping:
            at = data.find(b"\n")
            rest = len(data) if at < 0 else at + 1
            self.advance(msgspec.structs.replace(place, offset=place.offset + rest, skipping=at < 0))
            return self._next(place.path) if rest else None
        end = data.rfind(b"\n") + 1
        if end:
            return Piece(place, data[:end])
        if len(data) > self._most_line:
            return Piece(msgspec.structs.replace(place, skipping=True), data[: self._most_line + 1], too_long=True)
        return None


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


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


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
