"""Which event ids a topic has seen (contract 11).

A SQLite file per topic maps a digest of the id to where the record is. It is a cache: a watermark per partition says
how much of the log it knows, and the rest is read from the log when it is opened. Ids that are committed but not yet in
the file wait in memory, and there are never more than `MOST_RECENT` of them.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
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
    """`known` and `remember` are called by the commit thread, `flush` and `purge` by maintenance."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._recent: dict[bytes, Place] = {}
        self._flushing: dict[bytes, Place] = {}
        self._ends: dict[int, int] = {}
        self._flushed: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        path.parent.mkdir(exist_ok=True)
        self._reader, self._writer = self._connect(), self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.executescript(_SCHEMA)
        return connection

    def watermarks(self) -> dict[int, int]:
        return dict(self._reader.execute("SELECT partition, offset FROM watermarks"))

    def catch_up(
        self, partition: int, start: int, end: int, read: Callable[[int], Iterable[tuple[int, bytes]]]
    ) -> None:
        """Learn what the log has and the index has not. `read(from)` gives (offset, digest) of records with an id."""
        watermark = self.watermarks().get(partition, 0)
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
        with self._lock:
            found = {digest for digest in digests if digest in self._recent or digest in self._flushing}
            rest = [digest for digest in digests if digest not in found]
        for first in range(0, len(rest), _CHUNK):
            chunk = rest[first : first + _CHUNK]
            marks = ",".join("?" * len(chunk))
            query = f"SELECT digest, partition, offset FROM ids WHERE digest IN ({marks})"
            for digest, partition, offset in self._reader.execute(query, chunk):
                if offset >= self._starts.get(partition, 0):
                    found.add(digest)
        return found

    def remember(self, places: dict[bytes, Place], ends: dict[int, int]) -> None:
        """After a commit: its ids, and how far the log goes now."""
        with self._lock:
            self._recent.update(places)
            self._ends.update(ends)
            crowded = len(self._recent) >= MOST_RECENT
        if crowded:
            self.flush()

    def flush_if_due(self) -> None:
        """From time to time: so that little has to be read from the log after a crash."""
        if self._recent or self._ends != self._flushed:
            self.flush()

    def flush(self) -> None:
        """Write what waits in memory. Readers of the file are not held up."""
        with self._writing:
            with self._lock:
                self._flushing, self._recent = self._recent, {}
                ends = dict(self._ends)
            rows = sorted((digest, *place) for digest, place in self._flushing.items())
            with self._transaction():
                self._writer.executemany("INSERT OR REPLACE INTO ids VALUES (?, ?, ?)", rows)
                self._writer.executemany("INSERT OR REPLACE INTO watermarks VALUES (?, ?)", ends.items())
            with self._lock:
                self._flushing, self._flushed = {}, ends

    def _transaction(self) -> _Transaction:
        return _Transaction(self._writer)

    def started(self, partition: int, start: int) -> None:
        """Retention moved a partition's start: ids before it may be used again."""
        self._starts[partition] = start

    def purge(self, stopped: Callable[[], bool]) -> None:
        """Delete ids of records that are gone, in small steps."""
        for first in range(256):
            if stopped():
                return
            low, high = bytes([first]), bytes([first + 1]) if first < 255 else b"\xff" * 17
            for partition, start in list(self._starts.items()):
                if not start:
                    continue
                with self._writing, self._transaction():
                    self._writer.execute(
                        "DELETE FROM ids WHERE digest >= ? AND digest < ? AND partition = ? AND offset < ?",
                        (low, high, partition, start),
                    )

    def close(self, *, flush: bool = True) -> None:
        try:
            if flush:
                self.flush()
        except sqlite3.Error as error:
            logger.warning("cannot write the index of event ids `%s`: %s", self._path, error)
        finally:
            self._reader.close()
            self._writer.close()


class _Transaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._connection.execute("ROLLBACK" if kind else "COMMIT")


def delete_index(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
