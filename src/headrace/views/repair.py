"""Repair: closed windows computed again with what came too late for them.

A query never touches a closed window again. A record is late by its own stamp: its window's end plus grace is not after
the topic's stream time when it arrived, and stream time never goes back. So once one late record of a window is in the
ledger, which is written with the batch that read it, everything that arrived before has been read, and everything that
arrives later for this window is late too. A session is repaired only once the session that comes of it is closed. On
Kafka stream time belongs to a partition: a window is repaired once it is closed in all of them.

Each window is one atomic append of the revised rows and of what they were. Killed before it, nothing has happened;
after it, the rows are as they should be, and a second repair finds nothing to do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.clock import Clock
from headrace.errors import UsageError
from headrace.log.base import TIME, TOMBSTONE, WINDOW_END, WINDOW_START, Append, Log
from headrace.sql.expressions import ColumnRef, Expression, In, Literal
from headrace.sql.functions.arrays import hashable
from headrace.sql.plan import scanned
from headrace.sql.source import Window
from headrace.store.base import ViewStore
from headrace.store.decode import to_arrow
from headrace.store.expiry import has_expired
from headrace.store.revisions import REVISIONS_SPEC, Revision, Revisions, append_revisions, row_text
from headrace.types import BOOLEAN, BigInt, Timestamp, display_name
from headrace.views.closing import is_closed
from headrace.views.compare import differences
from headrace.views.evaluate import Evaluation, Question, answer
from headrace.views.late import late_keys, margins, row_reader
from headrace.views.ledger import LateEntry, ledger_end, places_of, read_ledger
from headrace.views.reading import Offsets, holds
from headrace.views.subject import Served, Subject, row_predicate, served_rows
from headrace.views.traced import Bounds, Traced, plain

MOST_LOOKED_UP = 500
SCAN_S = 600.0
"""A repair is no question that somebody waits for: reading a window's rows may take longer than a pull query."""
PATIENCE_S = 60.0
"""How long a view that changes all the time is waited for."""

Key = tuple[Any, ...]
Place = tuple[str, int, int]


@dataclass(slots=True)
class Repaired:
    """What a repair did."""

    windows: int = 0
    """Windows that something late belongs to."""
    late: int = 0
    """Late records that are counted now and were not before."""
    revised: list[Revision] = field(default_factory=list)
    waiting: int = 0
    """Sessions, or final results, that cannot be repaired yet: they are not closed."""
    missing: set[str] = field(default_factory=set)
    """Topics that no longer hold what would be needed: windows that need it are left as they are."""
    through: int = 0
    """Of the ledger, everything before this is counted, or never will be: the next repair goes on from there."""


@dataclass(frozen=True, slots=True)
class _Change:
    key: dict[str, Any]
    window: Bounds
    old: dict[str, Any] | None
    new: Traced | None
    same: bool = False
    """What came late makes no difference; that it is counted is written down all the same."""


def repair(
    log: Log,
    subject: Subject,
    store: ViewStore,
    clock: Clock,
    revisions: Revisions,
    only: Bounds | None = None,
    dry_run: bool = False,
    since: int = 0,
    progress: Callable[[int, int], bool] = lambda done, all_: True,
    found: Repaired | None = None,
) -> Repaired:
    """Repair all windows that something came too late for; with `only`, those that touch that time. What the ledger has
    before `since` is known to be counted. `progress` is told how many windows are done, and says whether to go on.
    `found` is filled in while windows are repaired: after an error it says what was done before."""
    window = check_repairable(subject)
    found = Repaired() if found is None else found
    found.through = since
    end = ledger_end(log, subject.late_topic)
    by_window = _late_windows(log, subject, window, since, only)
    if not dry_run and by_window:
        log.create_topic(REVISIONS_SPEC)
    for done, (bounds, entries) in enumerate(sorted(by_window.items())):
        if not progress(done, len(by_window)):
            return found
        _Repair(log, subject, store, clock, revisions, window, found).run(bounds, entries, dry_run)
    progress(len(by_window), len(by_window))
    if only is None and not dry_run and not found.waiting and not found.missing:
        found.through = end
    return found


def _late_windows(
    log: Log, subject: Subject, window: Window, since: int, only: Bounds | None
) -> dict[Bounds, list[LateEntry]]:
    """The windows of which the ledger has something new, with all that it has of them."""
    new = read_ledger(log, subject.late_topic, since, only)
    if not new:
        return {}
    touched = {entry.window for entry in new}
    between = (min(start for start, _ in touched), max(end for _, end in touched))
    entries = read_ledger(log, subject.late_topic, between=None if window.kind == "session" else between)
    if window.kind == "session":
        # Late records name no session: those of one key belong together.
        return {(0, 0): entries}
    by_window: dict[Bounds, list[LateEntry]] = defaultdict(list)
    for entry in entries:
        if entry.window in touched:
            by_window[entry.window].append(entry)
    return by_window


def _place(entry: LateEntry) -> Place:
    return entry.topic, -1 if entry.partition is None else entry.partition, -1 if entry.offset is None else entry.offset


def check_repairable(subject: Subject) -> Window:
    """The view's window. `UsageError` where nothing can be late, or it cannot be put right."""
    name = display_name(subject.source.name)
    aggregate = subject.aggregate
    if aggregate is None or aggregate.window is None:
        raise UsageError(f"nothing comes too late for `{name}`: it has no windows of its own")
    if len(scanned(aggregate.input)) > 1:
        raise UsageError(
            f"`{name}` is made of a join: what came too late for it cannot be put right here",
            hint="a new version of it, built from the log, counts by the same rules",
        )
    return aggregate.window


@dataclass(slots=True)
class _Repair:
    """One window, or all sessions."""

    log: Log
    subject: Subject
    store: ViewStore
    clock: Clock
    revisions: Revisions
    window: Window
    found: Repaired

    def run(self, bounds: Bounds, entries: list[LateEntry], dry_run: bool) -> None:
        if self.window.kind != "session" and self._has_expired(bounds):
            return
        places = places_of(entries)
        by_place = late_keys(self.log, self.subject, places)
        pending = [entry for entry in entries if self._is_pending(bounds, entry, by_place)]
        keys = frozenset(key for entry in pending for key in by_place.get(_place(entry), ()))
        if not keys:
            return
        session = self.window.kind == "session"
        served = self._served(keys, None if session else bounds)
        if not session and not is_closed(self.log, self.subject, served.cut, bounds[1] + self.window.grace_ms):
            self.found.waiting += 1
            return
        window = None if session else bounds
        margin = margins(self.log, self.subject)[-1]
        reader = row_reader(self.log, self.subject, served.cut, window, places, None, margin, entries)
        question = Question(self.subject.query, window=window, keys=keys)
        rows = answer(Evaluation(reader), question)
        if reader.missing:
            self.found.missing |= reader.missing
            return
        changes = self._sessions(rows, served, places) if session else self._one_window(rows, served, bounds, keys)
        self.found.windows += len({change.window for change in changes}) if session else 1
        if self.subject.query.emit == "final":
            changes = self._closed(changes, bounds, session)
        if changes:
            self._write(changes, entries, {entry.place for entry in pending}, by_place, dry_run)

    def _has_expired(self, bounds: Bounds) -> bool:
        """A row that the view would let go of at once is not put right."""
        return has_expired(self.subject.source, self.store.horizon(), bounds[1], bounds)

    def _is_pending(self, bounds: Bounds, entry: LateEntry, by_place: dict[Place, set[Key]]) -> bool:
        """Whether no repair has counted it yet."""
        if self.window.kind == "session":
            return True
        for key in by_place.get(_place(entry), ()):
            known = self.revisions.of_row((*self._identity(key), *bounds))
            if known is None or known.ledger <= entry.place:
                return True
        return False

    def _identity(self, key: Key) -> tuple[str, int, str]:
        source = self.subject.source
        values = {column.name: plain(part) for column, part in zip(source.key, key, strict=True)}
        return source.name, self.subject.version, row_text(source.key, values)

    def _served(self, keys: frozenset[Key], bounds: Bounds | None) -> Served:
        """The rows of these keys, at one moment."""
        predicate = row_predicate(self.subject.source, {}, bounds) if bounds is not None else self._with_keys(keys)
        served = served_rows(self.log, self.subject, self.store, predicate, patience_s=PATIENCE_S, scan_s=SCAN_S)
        rows = [row for row in served.rows if self._key(row) in keys]
        return Served(rows, served.position, served.cut)

    def _with_keys(self, keys: frozenset[Key]) -> Expression | None:
        """Few keys are looked up; of many all rows are read."""
        [column, *more] = self.subject.source.key
        if more or len(keys) > MOST_LOOKED_UP:
            return None
        options = tuple(Literal(plain(part), type=column.type) for (part,) in keys)
        return In(ColumnRef(column.name, type=column.type), options, type=BOOLEAN)

    def _key(self, row: Any) -> Key:
        return tuple(hashable(row[column.name]) for column in self.subject.source.key)

    def _named(self, values: Any) -> dict[str, Any]:
        return {column.name: values[column.name] for column in self.subject.source.key}

    def _one_window(self, rows: list[Traced], served: Served, bounds: Bounds, keys: frozenset[Key]) -> list[_Change]:
        old = {self._key(row): row for row in served.rows}
        new = {self._key(row.values): row for row in rows}
        changes = []
        for key in keys:
            before, after = old.get(key), new.get(key)
            if before is not None or after is not None:
                same = not differences(self.subject.query, before, after.values if after else None)
                named = self._named(before if after is None else after.values)
                changes.append(_Change(named, bounds, before, after, same))
        return changes

    def _sessions(self, rows: list[Traced], served: Served, places: Offsets) -> list[_Change]:
        """The sessions that something late is now part of, and those that are part of them."""
        old: dict[Key, dict[Bounds, dict[str, Any]]] = defaultdict(dict)
        for served_row in served.rows:
            old[self._key(served_row)][served_row["WINDOWSTART"], served_row["WINDOWEND"]] = served_row
        changes = []
        for row in rows:
            assert row.window is not None
            late = any(holds(places, one.topic, one.partition, one.offset) for one in row.origins)
            if not late or self._has_expired(row.window):
                continue
            closes = row.window[1] + self.window.size_ms + self.window.grace_ms + 1
            if not is_closed(self.log, self.subject, served.cut, closes):
                self.found.waiting += 1
                continue
            key = self._key(row.values)
            named = self._named(row.values)
            for bounds, before in old[key].items():
                if row.window[0] <= bounds[0] and bounds[1] <= row.window[1] and bounds != row.window:
                    changes.append(_Change(named, bounds, before, None))
            before_ = old[key].get(row.window)
            if differences(self.subject.query, before_, row.values):
                changes.append(_Change(named, row.window, before_, row))
        return changes

    def _closed(self, changes: list[_Change], bounds: Bounds, session: bool) -> list[_Change]:
        """EMIT FINAL writes a window some time after it is closed, and would write over a revision that came before.
        It has been written if its row is there, or one of a window that ended no earlier."""
        if session or not changes:
            return [change for change in changes if change.old is not None or session]
        newest, _ = self.store.select(["WINDOWEND"], None, (("WINDOWEND", True),), 1, SCAN_S)
        passed = bool(newest.rows) and newest.rows[0][0] >= bounds[1]
        written = [change for change in changes if change.old is not None or passed]
        self.found.waiting += len(changes) - len(written)
        return written

    def _write(
        self,
        changes: Sequence[_Change],
        entries: list[LateEntry],
        pending: set[int],
        by_place: dict[Place, set[Key]],
        dry_run: bool,
    ) -> None:
        source = self.subject.source
        now = self.clock.now_ms()
        by_key: dict[Key, list[LateEntry]] = defaultdict(list)
        for entry in entries:
            for key in by_place.get(_place(entry), ()):
                by_key[key].append(entry)
        made = []
        counted: set[int] = set()
        for change in changes:
            own = by_key[self._key(change.key)]
            revision = Revision(
                view=source.name,
                version=self.subject.version,
                query=self.subject.query_id or "",
                key=row_text(source.key, change.key),
                window_start=change.window[0],
                window_end=change.window[1],
                old=None if change.old is None else row_text(source.value, change.old),
                new=None if change.new is None else row_text(source.value, change.new.values),
                late=len(own),
                ledger=max((one.place for one in own), default=-1) + 1,
                time_ms=now,
            )
            made.append(revision)
            counted |= {one.place for one in own}
        if not dry_run:
            different = [change for change in changes if not change.same]
            rows = [Append(source.topic, self._batch(different))] if different else []
            self.log.append([*rows, append_revisions(made)]).result()
        self.found.revised += [one for one in made if one.old != one.new]
        self.found.late += len(counted & pending)

    def _batch(self, changes: Sequence[_Change]) -> pa.RecordBatch:
        source = self.subject.source
        columns: dict[str, pa.Array] = {}
        for column in source.key + source.value:
            key = column in source.key
            values = [c.key[column.name] if key else c.new and c.new.values[column.name] for c in changes]
            columns[column.name] = to_arrow(values, column.type)
        columns[TIME] = pa.array([self._time(change) for change in changes], pa.int64())
        columns[TOMBSTONE] = pa.array([change.new is None for change in changes], pa.bool_())
        columns[WINDOW_START] = pa.array([change.window[0] for change in changes], pa.int64())
        columns[WINDOW_END] = pa.array([change.window[1] for change in changes], pa.int64())
        return pa.record_batch(columns)

    def _time(self, change: _Change) -> int:
        """As the query would have it."""
        if change.new is None:
            return int(change.old["ROWTIME"]) if change.old else change.window[0]
        stamp = self.subject.query.sink.timestamp
        types = {column.name: column.type for column in self.subject.source.value + self.subject.source.key}
        own = change.new.values.get(stamp) if stamp and isinstance(types.get(stamp), BigInt | Timestamp) else None
        return own if isinstance(own, int) and own >= 0 else change.new.time
