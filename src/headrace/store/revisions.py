"""Revisions: rows of closed windows that were computed again with what had come too late, and written once more.

A revised row is an ordinary record of the view's changelog, so stores, feeds and other queries take it as any change,
and a store that is filled again ends with it. That it is a revision, and what was there before, is a record of the
topic `_revisions`, written in the same atomic append: neither is ever there without the other.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from headrace.log.base import TIME, Append, Log, TopicSpec
from headrace.log.codecs.json_encode import from_json, row_to_json, to_json
from headrace.log.schema import arrow_type
from headrace.store.decode import to_arrow
from headrace.store.readers import translate
from headrace.types import BIGINT, VARCHAR, Column

REVISIONS_TOPIC = "_revisions"
_COLUMNS = (
    Column("VIEW", VARCHAR),
    Column("VERSION", BIGINT),
    Column("QUERY", VARCHAR),
    Column("KEY", VARCHAR),
    Column("WINDOW_START", BIGINT),
    Column("WINDOW_END", BIGINT),
    Column("OLD", VARCHAR),
    Column("NEW", VARCHAR),
    Column("LATE", BIGINT),
    Column("LEDGER", BIGINT),
)
REVISIONS_SPEC = TopicSpec(REVISIONS_TOPIC, value=_COLUMNS, role="derived")

RowId = tuple[str, int, str, int, int]
"""View, version, key as JSON, window."""


@dataclass(frozen=True, slots=True)
class Revision:
    """Values are JSON objects as text; None for a row that is not there. `ledger`: what the late ledger had before this
    offset is counted."""

    view: str
    version: int
    query: str
    key: str
    window_start: int
    window_end: int
    old: str | None
    new: str | None
    late: int
    ledger: int
    time_ms: int
    """When it was made."""
    offset: int = -1

    @property
    def row(self) -> RowId:
        return self.view, self.version, self.key, self.window_start, self.window_end


def append_revisions(revisions: Sequence[Revision]) -> Append:
    """Belongs into the same call as the rows."""
    fields = [(column, column.name.lower()) for column in _COLUMNS]
    columns = {c.name: pa.array([getattr(one, name) for one in revisions], arrow_type(c.type)) for c, name in fields}
    columns[TIME] = pa.array([one.time_ms for one in revisions], pa.int64())
    return Append(REVISIONS_TOPIC, pa.record_batch(columns))


_CREATE = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    """CREATE TABLE revisions (view TEXT, version INTEGER, query TEXT, key TEXT, window_start INTEGER,
    window_end INTEGER, old TEXT, new TEXT, late INTEGER, ledger INTEGER, time_ms INTEGER,
    "offset" INTEGER PRIMARY KEY)""",
    "CREATE INDEX by_row ON revisions (view, version, window_start, window_end, key)",
)
_NAMES = [field.name for field in fields(Revision)]
_OF_VIEW = "view = ? AND version = ?"
_OF_ROW = f"{_OF_VIEW} AND key = ? AND window_start = ? AND window_end = ?"
_CHANGED = "old IS NOT new"


class Revisions:
    """All revisions that count, by row. Follows the log; every answer is caught up with it. Safe to use from several
    threads. They lie in a file without a name, which SQLite removes: over the years there may be millions."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._next = 0
        self._rows: sqlite3.Connection | None = None
        self._close: Callable[[], object] = lambda: None

    def of_row(self, row: RowId) -> Revision | None:
        """The newest."""
        return self._newest(_OF_ROW, row)

    def with_value(self, row: RowId, new: str | None) -> Revision | None:
        """The newest that made the row this."""
        return self._newest(f"{_OF_ROW} AND new IS ? AND {_CHANGED}", (*row, new))

    def has(self, view: str, version: int) -> bool:
        return bool(self._ask(f"SELECT 1 FROM revisions WHERE {_OF_VIEW} LIMIT 1", (view, version)))

    def changed(self, view: str, version: int, limit: int) -> tuple[list[Revision], int]:
        """Those that made a difference, the newest first, and how many there are."""
        where = f"FROM revisions WHERE {_OF_VIEW} AND {_CHANGED}"
        [(count,)] = self._ask(f"SELECT count(*) {where}", (view, version))
        return self._found(f'{where} ORDER BY "offset" DESC LIMIT ?', (view, version, limit)), count

    def windows(self, view: str, version: int) -> tuple[int, int] | None:
        """From the first to the last window that was changed."""
        what = f"SELECT min(window_start), max(window_end) FROM revisions WHERE {_OF_VIEW} AND {_CHANGED}"
        [(first, last)] = self._ask(what, (view, version))
        return None if first is None else (first, last)

    def _newest(self, where: str, values: Sequence[Any]) -> Revision | None:
        found = self._found(f'FROM revisions WHERE {where} ORDER BY "offset" DESC LIMIT 1', values)
        return found[0] if found else None

    def _found(self, what: str, values: Sequence[Any]) -> list[Revision]:
        names = ", ".join(f'"{name}"' for name in _NAMES)
        return [Revision(*row) for row in self._ask(f"SELECT {names} {what}", values)]

    def _ask(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                rows = self._opened()
                self._catch_up(rows)
                return rows.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                # As the log has them: they are read again. A full disk must not stay full of those that were.
                self._next, self._rows = 0, None
                self._close()
                raise translate(error) from error

    def _opened(self) -> sqlite3.Connection:
        if self._rows is None:
            self._rows = _opened()
            self._close = weakref.finalize(self, self._rows.close)
        return self._rows

    def _catch_up(self, rows: sqlite3.Connection) -> None:
        ends = self._log.snapshot().ends.get(REVISIONS_TOPIC)
        if not ends or ends[0].end <= self._next:
            return
        names = [TIME, *(column.name for column in _COLUMNS)]
        for records in self._log.read(REVISIONS_TOPIC, 0, max(self._next, ends[0].start), ends[0].end, names):
            columns = [records.batch.column(column.name).to_pylist() for column in _COLUMNS]
            found = zip(*columns, records.batch.column(TIME).to_pylist(), records.each_offset(), strict=True)
            rows.executemany(f"INSERT OR REPLACE INTO revisions VALUES ({', '.join('?' * len(_NAMES))})", found)
        self._next = ends[0].end


def _opened() -> sqlite3.Connection:
    connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    for statement in _CREATE:
        connection.execute(statement)
    return connection


def row_text(columns: Iterable[Column], values: Mapping[str, Any]) -> str:
    """A row's columns as a JSON object, by the names people see: the same for the same values."""
    found = list(columns)
    plain = [to_arrow([values[column.name]], column.type).to_pylist()[0] for column in found]
    return to_json(row_to_json(found, plain)).decode()


def parse_row(text: str | None) -> Any:
    return None if text is None else from_json(text)
