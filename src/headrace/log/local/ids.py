"""Which event ids a topic has seen (contract 11).

A SQLite file per topic maps a digest of the id to where the record is. It is a cache: a watermark per partition says
how much of the log it knows, and the rest is read from the log when it is opened. Ids that are committed but not yet in
the file wait in memory, and there are never more than `MOST_RECENT` of them.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from headrace.errors import LogError

logger = logging.getLogger(__name__)

FLUSH_AT = 20_000
MOST_RECENT = 200_000
_CHUNK = 500

Place = tuple[int, int]
"""Partition and offset."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS ids (digest BLOB PRIMARY KEY, partition INTEGER NOT NULL, offset INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS watermarks (partition INTEGER PRIMARY KEY, offset INTEGER NOT NULL);
"""


class IdIndex:
    """`known` and `remember` are called by the commit thread, `flush` and `purge` by maintenance.

    A connection costs three open files, so a topic without ids has one only while it notes how far the log goes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._recent: dict[bytes, Place] = {}
        self._flushing: dict[bytes, Place] = {}
        self._ends: dict[int, int] = {}
        self._flushed: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._closed = False
        path.parent.mkdir(exist_ok=True)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA mmap_size=1073741824")
            connection.execute("PRAGMA cache_size=-16000")
            connection.execute("PRAGMA wal_autocheckpoint=8000")
            connection.executescript(_SCHEMA)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._writing:
            if self._closed:
                raise LogError("the index of event ids is closed")
            connection = self._writer or self._connect()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                self._writer = None
                connection.close()
                raise
            if self._reader is not None:
                self._writer = connection
            else:
                connection.close()

    def watermarks(self) -> dict[int, int]:
        """How much of each partition the file knows."""
        with closing(self._connect()) as connection:
            return dict(connection.execute("SELECT partition, offset FROM watermarks"))

    def catch_up(
        self, watermark: int, partition: int, start: int, end: int, read: Callable[[int], Iterable[tuple[int, bytes]]]
    ) -> None:
        """Learn what the log has and the file has not. `read(from)` gives (offset, digest) of records with an id."""
        if watermark > end:
            raise LogError(f"the index of event ids `{self._path.name}` is ahead of the log")
        self._ends[partition] = max(watermark, start)
        self._starts[partition] = start
        for offset, digest in read(max(watermark, start)):
            self._recent[digest] = (partition, offset)
            self._ends[partition] = offset + 1
            if len(self._recent) >= FLUSH_AT:
                self.flush()
        self._ends[partition] = end

    def known(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those of the digests that a record of the topic has."""
        return set(self.places(digests))

    def places(self, digests: Sequence[bytes]) -> dict[bytes, Place]:
        """Where the records are that have these digests."""
        with self._lock:
            recent, flushing = self._recent, self._flushing
            found = {
                digest: place for digest in digests if (place := recent.get(digest) or flushing.get(digest)) is not None
            }
            rest = [digest for digest in digests if digest not in found]
        if self._reader is None:
            self._reader = self._connect()
        for first in range(0, len(rest), _CHUNK):
            chunk = rest[first : first + _CHUNK]
            marks = ",".join("?" * len(chunk))
            query = f"SELECT digest, partition, offset FROM ids WHERE digest IN ({marks})"
            for digest, partition, offset in self._reader.execute(query, chunk):
                if offset >= self._starts.get(partition, 0):
                    found[digest] = (partition, offset)
        return found

    def remember(self, places: dict[bytes, Place], ends: dict[int, int]) -> bool:
        """After a commit: its ids, and how far the log goes now. Whether it is time to flush."""
        with self._lock:
            self._recent.update(places)
            self._ends.update(ends)
            waiting = len(self._recent)
        if waiting >= MOST_RECENT:
            self.flush()
        return waiting >= FLUSH_AT

    def flush_if_due(self) -> None:
        """From time to time: so that little has to be read from the log after a crash."""
        if self._recent or self._ends != self._flushed:
            self.flush()

    def flush(self) -> None:
        """Write what waits in memory. Whoever looks ids up is not held up."""
        with self._transaction() as connection:
            with self._lock:
                # What a flush that failed left behind goes with this one.
                self._flushing, self._recent = self._flushing | self._recent, {}
                ends = dict(self._ends)
            rows = sorted((digest, *place) for digest, place in self._flushing.items())
            connection.executemany("INSERT OR REPLACE INTO ids VALUES (?, ?, ?)", rows)
            connection.executemany("INSERT OR REPLACE INTO watermarks VALUES (?, ?)", ends.items())
        with self._lock:
            self._flushing, self._flushed = {}, ends

    def started(self, partition: int, start: int) -> None:
        """Retention moved a partition's start: ids before it may be used again."""
        self._starts[partition] = start

    def purge(self, stopped: Callable[[], bool]) -> None:
        """Delete ids of records that are gone, in small steps."""
        for first in range(256):
            low, high = bytes([first]), bytes([first + 1]) if first < 255 else b"\xff" * 17
            for partition, start in list(self._starts.items()):
                if stopped():
                    return
                with self._transaction() as connection:
                    connection.execute(
                        "DELETE FROM ids WHERE digest >= ? AND digest < ? AND partition = ? AND offset < ?",
                        (low, high, partition, start),
                    )

    def close(self, *, flush: bool = True) -> None:
        try:
            if flush:
                self.flush_if_due()
        except sqlite3.Error as error:
            logger.warning("cannot write the index of event ids `%s`: %s", self._path, error)
        with self._writing:
            self._closed = True
            for connection in (self._writer, self._reader):
                if connection is not None:
                    connection.close()


def delete_index(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
