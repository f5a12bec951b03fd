"""Pieces of an answer between the thread that makes them and the client that takes them.

A thread that reads a view holds a read transaction. It must not wait for a slow client, so what the client has not
taken waits in memory, and beyond that in a file without a name; only when that is full, too, does the thread wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import IO

from headrace.deliver.reel import temporary
from headrace.errors import DeadlineExceeded, DiskFull, QueryFailed

MEMORY_BYTES = 4 * 1024 * 1024


class PieceQueue:
    """One producer in a thread, one consumer on the event loop. `fail` hands an error to the consumer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path | None, disk_bytes: int) -> None:
        self._loop, self._folder, self._disk_bytes = loop, folder, disk_bytes
        self._changed = threading.Condition()
        self._memory: deque[bytes] = deque()
        self._memory_bytes = 0
        self._file: IO[bytes] | None = None
        self._sizes: deque[int] = deque()
        """Of the pieces in the file that were not taken."""
        self._written = self._taken = 0
        self._ended: BaseException | bool = False
        self._closed = False
        self._available = asyncio.Event()

    # The producer's side

    def put(self, piece: bytes, deadline: float | None) -> None:
        """Add a piece. Waits for the consumer when the disk share is used up, until `deadline` (monotonic); None for a
        small piece that is added without waiting."""
        with self._changed:
            while (
                deadline is not None
                and self._written
                and self._written + len(piece) > self._disk_bytes
                and not self._closed
            ):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise DeadlineExceeded(
                        "the client receives the answer too slowly",
                        hint="[server] stream_seconds and stream_disk_bytes bound how long reading waits for it",
                    )
                self._changed.wait(left)
            if self._closed:
                raise QueryFailed("nobody waits for the answer any more")
            if not self._sizes and self._memory_bytes + len(piece) <= MEMORY_BYTES:
                self._memory.append(piece)
                self._memory_bytes += len(piece)
            else:
                self._write(piece)
        self._wake()

    def _write(self, piece: bytes) -> None:
        try:
            self._file = self._file or temporary(self._folder)
            view = memoryview(piece)
            while view:
                view = view[os.pwrite(self._file.fileno(), view, self._written + len(piece) - len(view)) :]
        except OSError as error:
            raise DiskFull("what the client has not received cannot be put on disk", detail=str(error)) from error
        self._written += len(piece)
        self._sizes.append(len(piece))

    def end(self) -> None:
        """Say that there are no further pieces."""
        self._end(True)

    def fail(self, error: BaseException) -> None:
        """Hand an error to the consumer, after the pieces that were put before it."""
        self._end(error)

    def _end(self, how: BaseException | bool) -> None:
        with self._changed:
            self._ended = how
        self._wake()

    @property
    def closed(self) -> bool:
        """Whether the consumer has left."""
        return self._closed

    def _wake(self) -> None:
        # A loop that is closed has no consumer any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._available.set)

    # The consumer's side

    async def wait(self, seconds: float) -> bool:
        """Wait until there is a piece, or the end. False if there is neither after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._available.wait()
        except TimeoutError:
            return False
        return True

    def take(self) -> bytes | None:
        """Return the next piece, None if there is none yet, or no more (`ended`)."""
        with self._changed:
            if self._memory:
                piece = self._memory.popleft()
                self._memory_bytes -= len(piece)
                return piece
            if self._sizes:
                return self._read()
            if not self._ended:
                self._available.clear()
            return None

    def _read(self) -> bytes:
        assert self._file is not None
        size = self._sizes.popleft()
        piece = os.pread(self._file.fileno(), size, self._taken)
        self._taken += size
        if not self._sizes:
            # The client has caught up: the file is used from its beginning again.
            self._written = self._taken = 0
            os.ftruncate(self._file.fileno(), 0)
        self._changed.notify_all()
        return piece

    @property
    def ended(self) -> bool:
        """Whether everything was taken and no more will come."""
        with self._changed:
            return bool(self._ended) and not self._memory and not self._sizes

    @property
    def error(self) -> BaseException | None:
        """What the producer failed with."""
        return self._ended if isinstance(self._ended, BaseException) else None

    def close(self) -> None:
        """Let go of everything; the producer is told at its next piece."""
        with self._changed:
            self._closed = True
            self._memory.clear()
            self._sizes.clear()
            if self._file is not None:
                self._file.close()
            self._changed.notify_all()
