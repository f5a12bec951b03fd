"""A few read-only connections to one SQLite file, lent to one reader at a time."""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import DeadlineExceeded, DiskFull, HeadraceError, NotFound, StoreDamaged
from headrace.sql.like import like_matcher
from headrace.store.sqlite_sql import LIKE_FUNCTION

ON_SPARK = "ask on Spark:  headrace.spark.sql(session, 'SELECT …')  (docs/howto/pyspark.md)"

# Steps of SQLite's machine between two looks at the clock: about a tenth of a millisecond.
STEPS = 5_000


class Reader:
    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        self.deadline = 0.0
        self.connection.set_progress_handler(self._late, STEPS)
        self.connection.create_function(LIKE_FUNCTION, 3, like, deterministic=True)

    def _late(self) -> bool:
        return time.monotonic() > self.deadline


class Readers:
    """At most `size` readers at a time; others wait, as long as their own deadline allows."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._closed = threading.Event()
        # Not opened yet: None. Last in, first out, so that few connections stay warm.
        self._free: queue.LifoQueue[Reader | None] = queue.LifoQueue()
        for _ in range(max(1, size)):
            self._free.put(None)

    @contextmanager
    def lend(self, seconds: float) -> Iterator[sqlite3.Connection]:
        """A connection with an open read transaction. Whatever goes wrong in it is raised as one of our errors."""
        deadline = time.monotonic() + seconds
        reader = self._take(seconds)
        try:
            reader = reader or self._opened()
            reader.deadline = deadline
            reader.connection.execute("BEGIN")
            yield reader.connection
        except sqlite3.Error as error:
            raise translate(error, seconds) from error
        finally:
            self._give_back(reader)

    def _take(self, seconds: float) -> Reader | None:
        if self._closed.is_set():
            raise closed()
        try:
            reader = self._free.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise too_late(seconds, "all readers are busy") from None
        if self._closed.is_set():
            # Closed while this one waited; the next who waits is to see it, too.
            self._give_back(reader)
            raise closed()
        return reader

    def _opened(self) -> Reader:
        try:
            return Reader(self._path)
        except sqlite3.Error:
            if self._closed.is_set():
                raise closed() from None  # and the file is gone with it
            raise

    def _give_back(self, reader: Reader | None) -> None:
        if reader is not None:
            try:
                reader.connection.rollback()
            except sqlite3.Error:
                _close(reader)
                reader = None
        if self._closed.is_set():
            _close(reader)
            reader = None
        self._free.put(reader)

    def close(self) -> None:
        """Readers that are out are closed when they come back; whoever waits for one is told."""
        self._closed.set()
        while True:
            try:
                _close(self._free.get_nowait())
            except queue.Empty:
                break
        self._free.put(None)


def _close(reader: Reader | None) -> None:
    if reader is not None:
        reader.connection.close()


def translate(error: sqlite3.Error, seconds: float = 0.0) -> HeadraceError:
    """SQLite's error as one of ours."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    match code:
        case 9:
            return too_late(seconds)
        case 11 | 26:
            return StoreDamaged("the view's file is damaged", detail=str(error), hint="it is being filled again")
        case 13:
            return DiskFull("the disk is full: the view cannot be written", detail=str(error))
        case _:
            return HeadraceError("the view's file cannot be used", detail=f"SQLite says: {error}")


def closed() -> NotFound:
    return NotFound("this view is closed: it was dropped or replaced")


def too_late(seconds: float, detail: str | None = None) -> DeadlineExceeded:
    hint = f"ask for fewer rows, or for rows by key; or {ON_SPARK}"
    return DeadlineExceeded(f"the query took longer than `{seconds:g}` s", detail=detail, hint=hint)


def like(text: str | None, pattern: str | None, escape: str | None) -> bool | None:
    """SQL's LIKE, which unlike SQLite's own tells upper from lower case."""
    if text is None or pattern is None:
        return None
    return like_matcher(pattern, escape)(text)
