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
from headrace.sql.plan import Aggregate, Named, PersistentQuery, Project, Scan, may_be_late, walk
from headrace.sql.source import WINDOW_COLUMNS, Source
from headrace.store.arrivals import behind, has_arrivals
from headrace.store.base import Position, ViewStore
from headrace.types import BOOLEAN, Column
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
    cut: int = 0
    """The arrival number that its batch layer ends at, if it has one."""

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
    `position`, of the query's inputs everything that arrived before `cut`."""

    rows: list[dict[str, Any]]
    position: Position
    cut: int


def served_rows(
    log: Log,
    subject: Subject,
    store: ViewStore,
    predicate: Expression | None,
    order: tuple[tuple[str, bool], ...] = (),
    limit: int | None = None,
    patience_s: float = PATIENCE_S,
) -> Served:
    """The rows of one moment at which the view has all that its query has written, so that both can be named."""
    check_arrivals(log)
    names = [
        column.name for column in (*subject.source.columns, Column("ROWTIME", subject.source.all_columns[-3].type))
    ]
    deadline, pause = time.monotonic() + patience_s, threading.Event()
    while True:
        cut = committed_cut(log, subject)
        if not behind(log.snapshot(), subject.source.topic, store.position()):
            found, residual = store.select(names, predicate, order, limit)
            unmoved = not behind(log.snapshot(), subject.source.topic, found.position)
            if residual is None and unmoved and committed_cut(log, subject) == cut:
                rows = [dict(zip(names, row, strict=True)) for row in found.rows]
                return Served(rows, found.position, found.position.arrival if cut is None else cut)
        if time.monotonic() > deadline:
            raise Overloaded(
                f"`{subject.source.name}` has not kept still for {patience_s:.0f} s", hint="its query is far behind"
            )
        pause.wait(0.005)


def committed_cut(log: Log, subject: Subject) -> int | None:
    """What the query had read when it last wrote: an arrival number. None for a table over a topic."""
    if subject.query_id is None:
        return None
    identity = log.last_identity(subject.query_id, subject.query_version)
    if identity is None:
        return subject.cut
    body = msgspec.json.decode(identity.offsets)
    if "arrival" in body:
        return int(body["arrival"])
    # An older version wrote only how far the first input was read.
    return _arrival_after(log, subject.query.inputs[0].topic, body.get("partitions", {}))


def _arrival_after(log: Log, topic: str, offsets: Mapping[str, int]) -> int:
    found = 0
    for partition, offset in offsets.items():
        if offset > log.snapshot().ends[topic][int(partition)].start:
            for records in log.read(topic, int(partition), offset - 1, offset, [ARRIVAL]):
                found = max(found, records.batch.column(ARRIVAL)[-1].as_py() + 1)
    return found


def check_arrivals(log: Log) -> None:
    if not has_arrivals(log):
        raise UsageError(
            "this log gives no arrival numbers, so what a row includes cannot be said exactly",
            hint="on the local log it can",
        )


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
