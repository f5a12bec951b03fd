"""What is asked about: a table that is served, the query that keeps it, and how much of the log its rows include."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.errors import Overloaded, UsageError
from headrace.log.base import ARRIVAL, Log
from headrace.sql.expressions import ColumnRef, Comparison, Expression, Literal, Logical
from headrace.sql.plan import Aggregate, Join, Named, PersistentQuery, Project, Scan, may_be_late, scanned, walk
from headrace.sql.source import WINDOW_COLUMNS, Source
from headrace.store.arrivals import behind, has_arrivals
from headrace.store.base import Position, ViewStore
from headrace.store.cuts import Cut, Reading
from headrace.types import BOOLEAN, Column, display_name
from headrace.views.traced import Bounds

PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A table and what makes its rows. A table over a topic is made by a plan that only reads it."""

    source: Source
    version: int
    query: PersistentQuery
    query_id: str | None = None
    """None for a table over a topic."""
    query_version: int = 1
    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict, compare=False, hash=False)
    """Where the query began to read, if not at the beginning."""
    cut: Cut = field(default=0, compare=False, hash=False)
    """Where its batch layer ends, if it has one."""

    @property
    def late_topic(self) -> str | None:
        return f"_late.{self.query_id}" if self.query_id and may_be_late(self.query.root) else None

    @property
    def aggregate(self) -> Aggregate | None:
        """The one that rows come out of, if they do."""
        return next((node for node in walk(self.query.root) if isinstance(node, Aggregate)), None)


def over_topic(source: Source, version: int) -> Subject:
    """A table that is declared over a topic: the newest record of each key."""
    key, value = (
        tuple(Named(c.name, ColumnRef(c.name, type=c.type)) for c in part) for part in (source.key, source.value)
    )
    return Subject(source, version, PersistentQuery(source, Project(Scan(source), key, value)))


@dataclass(frozen=True, slots=True)
class Served:
    """Rows as they are served, by column name, and what they include: of the view's changelog everything before
    `position`, of the query's inputs `cut`."""

    rows: list[dict[str, Any]]
    position: Position
    cut: Cut


def served_rows(
    log: Log,
    subject: Subject,
    store: ViewStore,
    predicate: Expression | None,
    order: tuple[tuple[str, bool], ...] = (),
    limit: int | None = None,
    patience_s: float = PATIENCE_S,
    scan_s: float = 10.0,
) -> Served:
    """The rows of one moment at which the view has all that its query has written, so that both can be named."""
    check_order(log, subject)
    names = [
        column.name for column in (*subject.source.columns, Column("ROWTIME", subject.source.all_columns[-3].type))
    ]
    topic = subject.source.topic
    # In this order: a transaction that was seen in part is seen as a whole once the log has been at rest.
    written = [topic] if subject.late_topic is None else [topic, subject.late_topic]
    reading = reading_of(log, subject)
    deadline, pause = time.monotonic() + patience_s, threading.Event()
    while True:
        cut = committed_cut(log, subject, reading)
        if not behind(log.snapshot(), topic, store.position()):
            found, residual = store.select(names, predicate, order, limit, scan_s)
            unmoved = log.at_rest(written) and not behind(log.snapshot(), topic, found.position)
            if residual is None and unmoved and committed_cut(log, subject, reading) == cut:
                rows = [dict(zip(names, row, strict=True)) for row in found.rows]
                return Served(rows, found.position, _of_topic(log, topic, found.position) if cut is None else cut)
        if time.monotonic() > deadline:
            raise Overloaded(
                f"`{subject.source.name}` has not kept still for {patience_s:.0f} s", hint="its query is far behind"
            )
        pause.wait(0.005)


def reading_of(log: Log, subject: Subject) -> Reading | None:
    """How far its query has read. None for a table over a topic."""
    if subject.query_id is None:
        return None
    topics = tuple(source.topic for source in scanned(subject.query.root))
    return Reading(log, subject.query_id, subject.query_version, topics, subject.cut, subject.starts)


def committed_cut(log: Log, subject: Subject, reading: Reading | None) -> Cut | None:
    """What the query had read when it last wrote. None for a table over a topic."""
    if reading is None:
        return None
    cut = reading.cut()
    if cut is None and has_arrivals(log):
        return _arrival_after(log, subject, reading)
    if cut is None:
        raise UsageError(
            f"the last batch of `{reading.query}` does not say how far all of its inputs were read",
            hint="an older version wrote it; send an event, and the next batch will",
        )
    return cut


def _arrival_after(log: Log, subject: Subject, reading: Reading) -> int:
    """An older version wrote only how far the first input was read."""
    identity = log.last_identity(reading.query, reading.version)
    offsets = msgspec.json.decode(identity.offsets).get("partitions", {}) if identity is not None else {}
    topic, found = subject.query.inputs[0].topic, 0
    for partition, offset in offsets.items():
        if offset > log.snapshot().ends[topic][int(partition)].start:
            for records in log.read(topic, int(partition), offset - 1, offset, [ARRIVAL]):
                found = max(found, records.batch.column(ARRIVAL)[-1].as_py() + 1)
    return found


def _of_topic(log: Log, topic: str, position: Position) -> Cut:
    return position.arrival if has_arrivals(log) else {topic: position.offsets}


def check_order(log: Log, subject: Subject) -> None:
    """`UsageError` if rows depend on an order over several topics that the log does not keep."""
    if not is_ordered(log, subject):
        raise UsageError(
            f"`{display_name(subject.source.name)}` is made of a join with a stream, and on Kafka nothing says which "
            "of two topics' records its query met first: its rows cannot be computed again exactly",
            hint="on the local log they can; here what joins tables, and what one topic feeds, can",
        )


def is_ordered(log: Log, subject: Subject) -> bool:
    """What joins tables comes to the same, whichever side came first; a stream's row meets what was there."""
    joins = (node for node in walk(subject.query.root) if isinstance(node, Join))
    return has_arrivals(log) or all(join.form in ("table-table", "foreign-key") for join in joins)


def row_predicate(source: Source, key: Mapping[str, Any], window: Bounds | None = None) -> Expression:
    """The rows with that key, and in that window."""
    wanted = dict(key)
    if window is not None:
        wanted |= dict(zip((column.name for column in WINDOW_COLUMNS), window, strict=True))
    types = {column.name: column.type for column in source.all_columns}
    parts: list[Expression] = [
        Comparison("=", ColumnRef(name, type=types[name]), Literal(value, type=types[name]), type=BOOLEAN)
        for name, value in wanted.items()
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = Logical("AND", whole, part, type=BOOLEAN)
    return whole


SubjectOf = Callable[[str, str], Subject | None]
"""The stream or table of that name and topic, and what makes it; None if only the outside does."""
