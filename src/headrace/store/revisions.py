"""Revisions: rows of closed windows that were computed again with what had come too late, and written once more.

A revised row is an ordinary record of the view's changelog, so stores, feeds and other queries take it as any change,
and a store that is filled again ends with it. That it is a revision, and what was there before, is a record of the
topic `_revisions`, written in the same atomic append: neither is ever there without the other.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from headrace.log.base import TIME, Append, Log, TopicSpec
from headrace.log.codecs.json_encode import row_to_json, to_json
from headrace.log.schema import arrow_type
from headrace.store.decode import to_arrow
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


class Revisions:
    """All revisions that count, by row. Follows the log; every answer is caught up with it. Safe to use from several
    threads."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._next = 0
        self._by_row: dict[RowId, list[Revision]] = {}
        self._by_view: dict[tuple[str, int], list[Revision]] = defaultdict(list)

    def of_row(self, row: RowId) -> Revision | None:
        """The newest."""
        with self._lock:
            self._catch_up()
            found = self._by_row.get(row)
            return found[-1] if found else None

    def with_value(self, row: RowId, new: str | None) -> Revision | None:
        """The newest that made the row this."""
        with self._lock:
            self._catch_up()
            made = [one for one in self._by_row.get(row, ()) if one.new == new != one.old]
            return made[-1] if made else None

    def of_view(self, view: str, version: int) -> list[Revision]:
        """Oldest first."""
        with self._lock:
            self._catch_up()
            return list(self._by_view.get((view, version), ()))

    def _catch_up(self) -> None:
        ends = self._log.snapshot().ends.get(REVISIONS_TOPIC)
        if not ends or ends[0].end <= self._next:
            return
        names = [TIME, *(column.name for column in _COLUMNS)]
        for records in self._log.read(REVISIONS_TOPIC, 0, max(self._next, ends[0].start), ends[0].end, names):
            for row, offset in zip(records.batch.to_pylist(), records.each_offset(), strict=True):
                self._add(Revision(**{c.name.lower(): row[c.name] for c in _COLUMNS}, time_ms=row[TIME], offset=offset))
        self._next = ends[0].end

    def _add(self, revision: Revision) -> None:
        self._by_row.setdefault(revision.row, []).append(revision)
        self._by_view[revision.view, revision.version].append(revision)


def row_text(columns: Iterable[Column], values: Mapping[str, Any]) -> str:
    """A row's columns as a JSON object, by the names people see: the same for the same values."""
    found = list(columns)
    plain = [to_arrow([values[column.name]], column.type).to_pylist()[0] for column in found]
    return to_json(row_to_json(found, plain)).decode()


def parse_row(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
