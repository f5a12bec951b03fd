"""What a question reads: rows of views and records of streams, all of one moment of the log.

Every view has rows up to a position of its own. If a question reads several sources, the moment is the newest of the
views' positions (with a stream among them, now), and what a view has not applied by then is read from its topic and
laid over its rows. On a log without arrival numbers there is no such moment: each source is as it is when it is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from headrace.deliver.ask.as_of import ROWS_PER_STRETCH, PastView, view_as_of
from headrace.deliver.ask.budget import Budget, Chunks, Row, chunked
from headrace.deliver.base import Address, Delivery
from headrace.deliver.records import record_chunks
from headrace.errors import Overloaded
from headrace.log.base import TIME, Log, Records, Snapshot
from headrace.sql.ask_plan import AskQuery, Read, walk_nodes
from headrace.sql.clauses import AsOf, TimeRange
from headrace.sql.expressions import ColumnRef, Expression
from headrace.sql.source import Source
from headrace.sql.walk import walk
from headrace.store.arrivals import behind, has_arrivals, merge, position_at_end, read_stretch
from headrace.store.base import Key
from headrace.store.changes import net_changes
from headrace.store.columns import source_rows
from headrace.store.expiry import NEVER, newest_time
from headrace.store.layers import changelog_decoder
from headrace.store.ranges import clip
from headrace.store.rows import names_of, over_rows
from headrace.store.sqlite_sql import Layout
from headrace.store.sqlite_values import encoder
from headrace.types import BIGINT, Column, display_name

MOST_BEHIND = 100_000
"""Records that may be read on top of a view. One that is further behind is being filled."""


_Which: TypeAlias = tuple[str, AsOf | None]
"""A source by name, as it is or as it was."""


def _which(read: Read) -> _Which:
    return read.source.name, read.range if isinstance(read.range, AsOf) else None


def _view(delivery: Delivery, reads: list[Read], budget: Budget) -> PastView:
    _, as_of = _which(reads[0])
    serving = delivery.views.of_source(reads[0].source)
    if as_of is None:
        return PastView(serving)
    predicates = {read.predicate for read in reads}
    return view_as_of(delivery, serving, as_of, predicates.pop() if len(predicates) == 1 else None, budget)


class Opened:
    """The sources of one question, open until it is answered."""

    def __init__(self, delivery: Delivery, query: AskQuery, budget: Budget, stack: ExitStack) -> None:
        self.addresses: list[Address] = []
        self._log, self._budget = delivery.log, budget
        self._reads: dict[_Which, list[Read]] = {}
        for node in walk_nodes(query.root):
            if isinstance(node, Read):
                self._reads.setdefault(_which(node), []).append(node)
        several = len([which for which in self._reads if which[1] is None]) > 1
        # By name, so that two questions never wait for each other's last reader.
        self._views = {
            which: _OpenView(_view(delivery, reads, budget), delivery.log, reads, budget, stack, several)
            for which, reads in sorted(self._reads.items(), key=lambda one: (one[0][0], str(one[0][1])))
            if reads[0].source.kind == "table"
        }
        self._now = delivery.log.snapshot()
        if several and has_arrivals(delivery.log):
            self._meet()
        self._address()
        self._kept: dict[_Which, list[Row]] = {}

    def _meet(self) -> None:
        """All at one arrival number."""
        streams = len(self._views) < len(self._reads)
        # What is read as it was stays so.
        views = [view for which, view in self._views.items() if which[1] is None]
        moment = max(view.position.arrival for view in views) if not streams else self._now.arrival
        if moment > self._now.arrival:
            self._now = self._log.snapshot()
        for view in views:
            view.catch_up(self._log, replace(self._now, arrival=moment))

    def _address(self) -> None:
        for which, reads in self._reads.items():
            source, view = reads[0].source, self._views.get(which)
            if view is not None:
                self.addresses.append(Address(source.name, view.version, view.position, view.as_of))
            else:
                self.addresses.append(Address(source.name, None, position_at_end(self._log, self._now, source.topic)))

    def chunks(self, read: Read) -> Chunks:
        return self._table(read) if read.source.kind == "table" else self._stream(read)

    def _table(self, read: Read) -> Chunks:
        which = _which(read)
        view = self._views[which]
        if len(self._reads[which]) == 1:
            return view.chunks(read)
        # A scan is read once, and others want the same rows.
        if which not in self._kept:
            self._kept[which] = rows = []
            for chunk in view.rows():
                self._budget.hold(chunk)
                rows += chunk
        return view.chunks(read, self._kept[which])

    def _stream(self, read: Read) -> Chunks:
        needed = [*read.wanted, *_columns_of(read.predicate, read.source)]
        times = isinstance(read.range, TimeRange)
        if times:
            needed.append(_TIME)
        snapshot = clip(self._log, self._now, read)
        chunks = record_chunks(self._log, read.source, needed, snapshot)
        matches = None if read.predicate is None else over_rows(read.predicate, names_of(needed))
        for rows in chunks:
            self._budget.look()
            self._budget.read += len(rows)
            if isinstance(read.range, TimeRange):
                low, high = read.range.low, read.range.high
                rows = [row for row in rows if low <= row[-1] <= high]
            yield from _passing(rows, matches, len(read.wanted))


_TIME = Column(TIME, BIGINT)
"""Whatever a source's columns are called, this is the record's event time."""


def _columns_of(predicate: Expression | None, source: Source) -> list[Column]:
    if predicate is None:
        return []
    names = {part.name for part in walk(predicate) if isinstance(part, ColumnRef)}
    return [column for column in _columns(source).values() if column.name in names]


def _columns(source: Source) -> dict[str, Column]:
    """By name; of two that are called alike the first, which is the source's own."""
    return {column.name: column for column in reversed(source.all_columns)}


def _passing(rows: list[Row], matches: Callable[[Row], Any] | None, width: int) -> Chunks:
    """Those that match, without the columns that only that needed."""
    if matches is not None:
        rows = [row for row in rows if matches(row) is True]
    if rows:
        yield rows if len(rows[0]) == width else [row[:width] for row in rows]


class _OpenView:
    """One view's rows, read once. With `keyed` they can be brought up to a later moment."""

    def __init__(
        self,
        past: PastView,
        log: Log,
        reads: list[Read],
        budget: Budget,
        stack: ExitStack,
        keyed: bool,
    ) -> None:
        view, self.as_of = past.view, past.note
        if past.until is not None:
            # A snapshot is opened for this question alone.
            stack.callback(view.close)
            keyed = True
        self.version, self._view, self._budget = view.version, view, budget
        self._source = source = view.source
        predicates = {read.predicate for read in reads}
        self._predicate = predicates.pop() if len(predicates) == 1 else None
        names = [column.name for read in reads for column in read.wanted]
        names += [column.name for read in reads for column in _columns_of(read.predicate, source)]
        self._key = [_columns(source)[name] for name in Layout(source).key]
        names += [column.name for column in self._key] if keyed else []
        self._columns = [_columns(source)[name] for name in dict.fromkeys(names)]
        wanted = [column.name for column in self._columns]
        self._scan = stack.enter_context(view.scan(wanted, self._predicate, (), None, budget.left))
        self.position = self._scan.position
        self._newer: list[Row] = []
        self._stale: set[Key] = set()
        if past.until is not None:
            self._replay(log, past.until)

    def _replay(self, log: Log, until: Snapshot) -> None:
        """Lay what the changelog has between a snapshot and a moment of the past over the snapshot's rows."""
        topic, position, newest = self._source.topic, self.position, NEVER
        decoder = changelog_decoder(log, self._view)
        while behind(until, topic, position):
            stretch = read_stretch(log, topic, position, until, decoder.columns, ROWS_PER_STRETCH)
            for records in stretch.records:
                newest = newest_time(records.batch, newest)
                self._budget.read += records.batch.num_rows
            self._budget.look()
            if stretch.records:
                self._lay([decoder.decode(records) for records in stretch.records])
            self.position = position = stretch.position
        if self.as_of is not None and not self.as_of.exact and newest != NEVER:
            self.as_of = replace(self.as_of, represents_ms=max(newest, self.as_of.represents_ms or newest))

    def catch_up(self, log: Log, until: Snapshot) -> None:
        """Lay what the topic has between the view's position and this moment over its rows."""
        source, position = self._source, self.position
        if behind(until, source.topic, position) > MOST_BEHIND:
            message = f"table `{display_name(source.name)}` is being filled"
            raise Overloaded(message, retry_after=1.0, detail="it cannot be read together with others yet")
        decoder = changelog_decoder(log, self._view)
        while position.arrival < until.arrival:
            stretch = read_stretch(log, source.topic, position, until, decoder.columns)
            position = stretch.position
            if stretch.records:
                self._lay([decoder.decode(records) for records in stretch.records])
        self.position = position

    def _lay(self, changes: Sequence[Records]) -> None:
        batch = merge(changes, self.position)
        if batch is None:
            return
        net = net_changes(batch, self._source, self._key)
        stale = {*net.keys, *net.deleted}
        key = self._key_of()
        self._newer = [row for row in self._newer if key(row) not in stale]
        self._newer += source_rows(net.batch, self._source, self._columns)
        self._stale |= stale
        self._budget.hold(self._newer)

    def _key_of(self) -> Callable[[Row], Key]:
        """A row's key, as changes know it."""
        names = names_of(self._columns)
        parts = [(names.index(column.name), encoder(column.type)) for column in self._key]
        return lambda row: tuple(
            row[place] if encode is None or row[place] is None else encode(row[place]) for place, encode in parts
        )

    def rows(self) -> Chunks:
        """All that satisfy the predicate, with all columns that somebody wants."""
        names = names_of(self._columns)
        residual = None if self._scan.residual is None else over_rows(self._scan.residual, names)
        width, key = len(names), self._key_of() if self._stale else None
        for chunk in chunked(self._scan.rows, self._budget):
            self._budget.read += len(chunk)
            fresh = chunk if key is None else [row for row in chunk if key(row) not in self._stale]
            yield from _passing(fresh, residual, width)
        whole = None if self._predicate is None else over_rows(self._predicate, names)
        yield from _passing(self._newer, whole, width)

    def chunks(self, read: Read, kept: list[Row] | None = None) -> Chunks:
        """What one place of the question wants of it."""
        names = names_of(self._columns)
        places = [names.index(column.name) for column in read.wanted]
        same = places == list(range(len(names)))
        checked = read.predicate is None or read.predicate == self._predicate
        matches = None if checked or read.predicate is None else over_rows(read.predicate, names)
        for chunk in self.rows() if kept is None else chunked(iter(kept), self._budget):
            for rows in _passing(chunk, matches, len(names)):
                yield rows if same else [tuple([row[place] for place in places]) for row in rows]


@contextmanager
def opened(delivery: Delivery, query: AskQuery, budget: Budget) -> Iterator[Opened]:
    with ExitStack() as stack:
        yield Opened(delivery, query, budget, stack)
