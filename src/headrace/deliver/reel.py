"""Changes in a file without a name, in order of their places: written once, read a block at a time by as many as like,
each at its own pace. The file goes with the last who holds the reel, and with the process."""

from __future__ import annotations

import os
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

BLOCK_BYTES = 64 * 1024
BLOCK_ROWS = 500


@dataclass(frozen=True, slots=True)
class Block:
    first: int
    """The place of its first change. Changes of one place are in one block."""
    start: int
    size: int


class Reel:
    def __init__(self, file: IO[bytes], blocks: tuple[Block, ...], rows: int) -> None:
        self.blocks, self.rows = blocks, rows
        self._file = file
        weakref.finalize(self, file.close)

    def block_of(self, place: int) -> int:
        """The number of the first block that may have changes from this place on."""
        return max(0, bisect_right(self.blocks, place, key=lambda block: block.first) - 1)

    def read(self, number: int) -> list[tuple[int, bytes]]:
        """Places and changes of a block."""
        block = self.blocks[number]
        lines = os.pread(self._file.fileno(), block.size, block.start).splitlines()
        return [(int(place), change) for place, _, change in (line.partition(b"\t") for line in lines)]


def wind(changes: Iterable[tuple[int, bytes]], folder: Path | None = None) -> Reel:
    """`changes` in order of their places; each is one line of text."""
    file, blocks, rows = temporary(folder), list[Block](), 0
    try:
        start, size, count, first, last = 0, 0, 0, 0, -1
        for place, change in changes:
            if place != last and (count >= BLOCK_ROWS or size >= BLOCK_BYTES):
                blocks.append(Block(first, start, size))
                start, size, count = start + size, 0, 0
            first = first if count else place
            size += file.write(b"%d\t%b\n" % (place, change))
            last, count, rows = place, count + 1, rows + 1
        if count:
            blocks.append(Block(first, start, size))
        file.flush()
    except BaseException:
        file.close()
        raise
    return Reel(file, tuple(blocks), rows)


def temporary(folder: Path | None) -> IO[bytes]:
    """A file that nobody else can open, and that is gone when it is closed, whoever is killed."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=folder)
