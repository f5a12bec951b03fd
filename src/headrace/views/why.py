"""Why this number? The records that made a row, those that came too late for it, the dead letters that would have
counted, and the row computed again from the log, which must be equal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headrace.errors import NotFound, UsageError
from headrace.log.base import Log
from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import Call, ColumnRef, Comparison, Expression, Logical
from headrace.sql.expressions import Literal as Constant
from headrace.sql.functions.arrays import hashable
from headrace.sql.plan import Filter, scanned
from headrace.sql.printer import print_expression
from headrace.sql.source import Source
from headrace.store.base import Position, ViewStore
from headrace.store.cuts import Cut, cut_now, offsets_at
from headrace.store.expiry import has_expired
from headrace.store.revisions import Revision, Revisions
from headrace.types import BIGINT, BOOLEAN, display_name
from headrace.views.aggregates import windows_of
from headrace.views.compare import differences
from headrace.views.dead import DeadRecord, dead_records
from headrace.views.evaluate import Evaluation, Question, answer
from headrace.views.keyless import Keyless, is_null, keyless_records
from headrace.views.late import admitted_late, late_records, margins, row_reader, row_revision
from headrace.views.ledger import LateEntry
from headrace.views.origins import Below, trace_down
from headrace.views.reading import Reader
from headrace.views.subject import Subject, SubjectOf, row_predicate, served_rows
from headrace.views.traced import Bounds, Origin
from headrace.views.unread import unread_records, unread_text

Order = Literal["newest", "oldest", "largest"]


@dataclass(frozen=True, slots=True)
class Page:
    """Which of a row's records to show."""

    limit: int = 20
    skip: int = 0
    order: Order = "newest"


@dataclass(frozen=True, slots=True)
class Why:
    """A row explained. Values are the evaluator's."""

    subject: Subject
    key: Mapping[str, Any]
    window: Bounds | None
    row: Mapping[str, Any] | None
    """As served."""
    again: Mapping[str, Any] | None
    """As computed again."""
    differs: list[str]
    """The columns in which both differ: none."""
    records: int
    page: list[Origin]
    below: Mapping[Origin, Below]
    """Of those on the page that a query wrote: what they are made of."""
    first: Origin | None
    last: Origin | None
    late: list[LateEntry]
    dead: list[DeadRecord]
    cut: Cut
    """What is included."""
    inputs: Mapping[str, Mapping[int, int]]
    """The same as offsets: by topic and partition, the next one."""
    position: Position
    looked_at: int
    missing: frozenset[str] = field(default_factory=frozenset)
    """Topics that no longer hold everything: the row cannot be computed again."""
    took_ms: float = 0.0
    revision: Revision | None = None
    """The newest repair that counted something late in it."""
    left_out: list[Origin] = field(default_factory=list)
    """Records of this key, and window, that the query's WHERE has left out, the newest first."""
    condition: str = ""
    """That WHERE."""
    expired: bool = False
    """It was there, and was kept for as long as it should be."""
    keyless: Keyless | None = None
    """Of who asks for a key that is NULL: the records that have none."""
    unread: Mapping[str, int] = field(default_factory=dict)
    """By topic: records that have yet to be read, and may change the row."""

    @property
    def verdict(self) -> Literal["equal", "different", "unknown"]:
        if self.missing:
            return "unknown"
        return "different" if self.differs else "equal"


def why(
    log: Log,
    subject: Subject,
    store: ViewStore,
    key: Mapping[str, Any],
    at: int | None = None,
    page: Page | None = None,
    subject_of: SubjectOf = lambda name, topic: None,
    revisions: Revisions | None = None,
    seconds: float = 30.0,
    watch: Callable[[Reader], None] = lambda reader: None,
) -> Why:
    """Explain the row with that key: in the window that begins at or contains `at`, or in the newest. `watch` is handed
    what reads the records: it knows how many were looked at, and ends when its deadline is moved."""
    started = time.monotonic()
    page = page or Page()
    window = _chosen_window(log, subject, store, key, at, started + seconds, subject_of)
    served = served_rows(log, subject, store, row_predicate(subject.source, key, window))
    row = next(iter(served.rows), None)
    asked = tuple(hashable(key[column.name]) for column in subject.source.key)
    revision = row_revision(revisions, subject, key, window)
    counted_late = admitted_late(log, subject, window, [revision])
    for margin in margins(log, subject):
        reader = row_reader(log, subject, served.cut, window, counted_late, started + seconds, margin)
        watch(reader)
        evaluation = Evaluation(reader, left_out=[])
        found = answer(evaluation, Question(subject.query, asked, window))
        again = found[-1] if found else None
        if not differences(subject.query, row, again.values if again else None):
            break
    expired = (
        row is None and again is not None and has_expired(subject.source, store.horizon(), again.time, again.window)
    )
    counted = revision.ledger if revision is not None else 0
    late = [entry for entry in late_records(log, subject, asked, window) if entry.place >= counted]
    ordered = _ordered(subject, again.origins if again else (), page.order)
    shown = ordered[page.skip : page.skip + page.limit]
    oldest = _ordered(subject, again.origins if again else (), "oldest")
    return Why(
        subject,
        key,
        window,
        row,
        again.values if again else None,
        [] if expired else differences(subject.query, row, again.values if again else None),
        len(ordered),
        shown,
        trace_down(log, shown, subject_of, started + seconds, revisions),
        oldest[0] if oldest else None,
        oldest[-1] if oldest else None,
        late,
        dead_records(log, subject, asked, window),
        served.cut,
        input_offsets(log, scanned(subject.query.root), served.cut),
        served.position,
        reader.looked_at,
        frozenset(reader.missing),
        (time.monotonic() - started) * 1000,
        revision,
        _left_out(evaluation, again.origins if again else ()),
        _condition(subject),
        expired,
        keyless_records(reader, subject, key) if row is None and any(map(is_null, key.values())) else None,
        unread_records(log, subject, subject_of),
    )


def _left_out(evaluation: Evaluation, counted: Iterable[Origin]) -> list[Origin]:
    """Each record once, the newest first. One that a flat map or a join made several rows of may count in another."""
    inside = set(counted)
    found = {origin for row in evaluation.left_out or () for origin in row.origins if origin not in inside}
    return sorted(found, key=lambda origin: origin.arrival, reverse=True)


def _condition(subject: Subject) -> str:
    below = subject.aggregate.input if subject.aggregate is not None else None
    return print_expression(below.predicate) if isinstance(below, Filter) else ""


def _chosen_window(
    log: Log,
    subject: Subject,
    store: ViewStore,
    key: Mapping[str, Any],
    at: int | None,
    deadline: float,
    subject_of: SubjectOf,
) -> Bounds | None:
    try:
        return _choose_window(log, subject, store, key, at)
    except NotFound as error:
        said = []
        if any(map(is_null, key.values())):
            everything = cut_now(log, log.snapshot(), [source.topic for source in scanned(subject.query.root)])
            reader = Reader(log, everything, deadline=deadline, starts=subject.starts)
            said.append(str(keyless_records(reader, subject, key)))
        if unread := unread_records(log, subject, subject_of):
            said.append(f"it is behind: {unread_text(unread)}")
        error.detail = "\n".join(said) or error.detail
        raise


def _choose_window(
    log: Log, subject: Subject, store: ViewStore, key: Mapping[str, Any], at: int | None
) -> Bounds | None:
    window = subject.source.window
    if window is None:
        if at is not None:
            raise UsageError(f"`{display_name(subject.source.name)}` has no windows", hint="leave the window out")
        return None
    predicate = row_predicate(subject.source, key)
    if at is not None:
        starts = ColumnRef("WINDOWSTART", type=BIGINT)
        before = Comparison("<=", starts, Constant(at, type=BIGINT), type=BOOLEAN)
        predicate = Logical("AND", predicate, before, type=BOOLEAN)
    newest = served_rows(log, subject, store, predicate, (("WINDOWSTART", True),), 1000)
    bounds = [(row["WINDOWSTART"], row["WINDOWEND"]) for row in newest.rows]
    if at is None and bounds:
        return bounds[0]
    inside = [one for one in bounds if at is not None and (one[0] == at or at < one[1] + (window.kind == "session"))]
    if inside:
        return inside[0]
    if at is None or window.kind == "session" or window.size_ms <= 0:
        name = display_name(subject.source.name)
        raise NotFound(
            f"`{name}` has no window of this key{'' if at is None else ' then'}",
            hint=f"see its rows:  headrace view get {name}",
        )
    # There is no row; perhaps all that belongs there came too late.
    return windows_of(replace(window, advance_ms=window.advance_ms or window.size_ms), at)[-1]


def _ordered(subject: Subject, origins: Iterable[Origin], order: Order) -> list[Origin]:
    """By arrival, or by what a record adds to the first aggregate that adds numbers up."""
    found = sorted(origins, key=lambda origin: origin.arrival, reverse=order != "oldest")
    measure = _measure(subject) if order == "largest" else None
    if measure is not None:
        found.sort(key=lambda origin: _size(measure, origin), reverse=True)
    return found


def _measure(subject: Subject) -> Expression | None:
    aggregate = subject.aggregate
    calls = [named.expression for named in aggregate.aggregates] if aggregate is not None else []
    for call in calls:
        if isinstance(call, Call) and call.name in ("SUM", "AVG", "MAX", "MIN") and call.arguments:
            return call.arguments[0]
    return None


def _size(measure: Expression, origin: Origin) -> float:
    try:
        value = compile_expression(measure)({"ROWTIME": origin.time_ms, **origin.values})
        return abs(float(value))
    except (KeyError, TypeError, ValueError):
        return -1.0


def input_offsets(log: Log, sources: Iterable[Source], cut: Cut) -> dict[str, dict[int, int]]:
    """A cut as offsets of the topics that are read."""
    now = log.snapshot()
    return {source.topic: offsets_at(log, now, source.topic, cut) for source in sources}
