"""How far each file was read: Flume's position file, with what makes a line's id beside it."""

from __future__ import annotations

import json
import os
import secrets
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.collect.agents.base import Headers
from headrace.errors import ConfigError

MARK_BYTES = 64
"""So many bytes before the offset are remembered, to see whether the file is still the same."""


Key = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True, slots=True)
class Position:
    path: str
    offset: int
    generation: str = ""
    mark: int = 0
    """CRC32 of the bytes before the offset."""


@dataclass(slots=True, eq=False)
class TailedFile:
    path: Path
    descriptor: int
    offset: int = 0
    generation: str = ""
    headers: Headers = field(default_factory=dict)
    tail: bytes = b""
    """What stands before the offset."""
    rotated: bool = False
    """It has no name any more that anybody asked for."""
    replaced: bool = False
    _grown: float = field(default_factory=time.monotonic)
    _size: int = -1

    def has_more(self) -> bool:
        size = os.fstat(self.descriptor).st_size
        if size != self._size:
            self._size, self._grown = size, time.monotonic()
        return size != self.offset or self.replaced

    def idle_s(self) -> float:
        return time.monotonic() - self._grown

    def go_on(self, known: Position) -> None:
        """From where somebody stopped before, if it is still the file that one read."""
        self.offset, self.generation, self.tail = known.offset, known.generation, self._before(known.offset)
        self.replaced = bool(known.generation) and zlib.crc32(self.tail) != known.mark

    def skip(self, offset: int) -> None:
        self.offset, self.tail = offset, self._before(offset)

    def was_rewritten(self) -> bool:
        """Truncated, or truncated and grown again: what stands before the offset is not what was read."""
        return self.replaced or self._before(self.offset) != self.tail

    def start_again(self, generation: str) -> None:
        self.offset, self.generation, self.tail, self.replaced = 0, generation, b"", False

    def advance(self, read: bytes) -> None:
        self.offset += len(read)
        self.tail = read[-MARK_BYTES:] if len(read) >= MARK_BYTES else (self.tail + read)[-MARK_BYTES:]

    def _before(self, offset: int) -> bytes:
        start = max(0, offset - MARK_BYTES)
        return os.pread(self.descriptor, offset - start, start)

    def position(self) -> Position:
        return Position(str(self.path), self.offset, self.generation, zlib.crc32(self.tail))


def key_of(status: os.stat_result) -> Key:
    return status.st_dev, status.st_ino


def open_tailed(path: Path, key: Key) -> TailedFile | None:
    """None if it is gone, or another one by now: the next look finds it. `OSError` if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if key_of(os.fstat(descriptor)) != key:
        os.close(descriptor)
        return None
    return TailedFile(path, descriptor)


def new_generation() -> str:
    return secrets.token_hex(8)


def load_positions(file: Path) -> dict[Key, Position]:
    """By device and inode. Flume's own file has neither device nor generation: it is taken as it is."""
    try:
        entries = json.loads(file.read_text(encoding="utf-8") or "[]")
    except FileNotFoundError:
        return {}
    except (ValueError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None
    found = {}
    try:
        for entry in entries:
            device = entry.get("device") or _device(entry["file"])
            if device is not None:
                mark = int(entry.get("mark", 0))
                known = Position(entry["file"], int(entry["pos"]), entry.get("generation", ""), mark)
                found[device, int(entry["inode"])] = known
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(file, error) from None
    return found


def _unreadable(file: Path, error: Exception) -> ConfigError:
    return ConfigError(
        f"position file `{file}` cannot be read: {error}",
        hint="mend it, or take it away: then all files are read from their beginning",
    )


def _device(path: str) -> int | None:
    try:
        return os.stat(path).st_dev
    except OSError:
        return None


def save_positions(file: Path, positions: Mapping[Key, Position]) -> None:
    """Whole or not at all, and synced."""
    entries = [
        {
            "inode": inode,
            "pos": known.offset,
            "file": known.path,
            "device": device,
            "generation": known.generation,
            "mark": known.mark,
        }
        for (device, inode), known in positions.items()
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.new")
    with beside.open("w", encoding="utf-8") as writing:
        json.dump(entries, writing)
        writing.flush()
        os.fsync(writing.fileno())
    beside.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
