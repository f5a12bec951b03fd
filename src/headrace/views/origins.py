"""Records that a query wrote, followed down to what they are made of, to the topics that were sent to."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import DeadlineExceeded
from headrace.log.base import Log
from headrace.sql.functions.arrays import hashable
from headrace.sql.plan import Aggregate, Join, scanned, walk
from headrace.store.arrivals import has_arrivals
from headrace.store.cuts import cut_now
from headrace.store.revisions import Revisions
from headrace.views.compare import differences
from headrace.views.evaluate import Evaluation, Question, answer
from headrace.views.late import admitted_late, row_revision
from headrace.views.reading import Reader
from headrace.views.subject import Subject, SubjectOf
from headrace.views.traced import Bounds, Origin, Traced

SAMPLES = 3
DEEPEST = 8
TRIES = 20


@dataclass(frozen=True, slots=True)
class Below:
    """What a derived record is made of: how many records, the newest of them, and whether they give the same again."""

    query_id: str
    records: int
    newest: tuple[Origin, ...]
    same: bool
    below: Mapping[Origin, Below] = field(default_factory=dict, compare=False, hash=False)


def trace_down(
    log: Log,
    origins: Sequence[Origin],
    subject_of: SubjectOf,
    deadline: float,
    revisions: Revisions | None = None,
    depth: int = 0,
) -> dict[Origin, Below]:
    """For those of the records that a query wrote. What there is no time for is left out."""
    found: dict[Origin, Below] = {}
    for origin in origins:
        subject = subject_of(origin.source, origin.topic)
        if subject is None or subject.query_id is None or depth >= DEEPEST or time.monotonic() > deadline:
            continue
        if not has_arrivals(log) and not _is_stateless(subject):
            continue  # which batch wrote it, and so what it had read, nobody knows
        try:
            row = _reproduced(log, subject, origin, deadline, revisions)
        except DeadlineExceeded:
            continue
        newest = sorted(row.origins, key=lambda one: one.arrival, reverse=True)[:SAMPLES] if row else []
        deeper = trace_down(log, newest, subject_of, deadline, revisions, depth + 1)
        found[origin] = Below(
            subject.query_id, len(row.origins) if row else 0, tuple(newest), _same(subject, origin, row), deeper
        )
    return found


def _reproduced(
    log: Log, subject: Subject, origin: Origin, deadline: float, revisions: Revisions | None
) -> Traced | None:
    """The row again. What its batch had read is not written down: it is what had arrived when the row did, or a little
    less. So a little less is tried."""
    if not has_arrivals(log):
        everything = cut_now(log, log.snapshot(), [source.topic for source in scanned(subject.query.root)])
        return _computed(subject, origin, Reader(log, everything, deadline=deadline, starts=subject.starts))
    cut, found = origin.arrival, None
    revised = row_revision(revisions, subject, origin.values, origin.window)
    late = admitted_late(log, subject, origin.window, [revised])
    for _ in range(TRIES):
        again = _computed(subject, origin, Reader(log, cut, late, deadline=deadline, starts=subject.starts))
        if again is None:
            break
        found = found or again
        if _same(subject, origin, again) or subject.source.kind == "stream":
            return again
        cut = max((one.arrival for one in again.origins), default=0)
    return found


def _computed(subject: Subject, origin: Origin, reader: Reader) -> Traced | None:
    key = tuple(hashable(origin.values[column.name]) for column in subject.source.key)
    window: Bounds | None = None
    if subject.source.window is not None:
        window = origin.window
    elif _is_stateless(subject) and subject.source.timestamp is None:
        # A projection keeps the time: only records of that very moment can have made it.
        window = (origin.time_ms, origin.time_ms + 1)
    rows = answer(Evaluation(reader), Question(subject.query, key, window))
    if subject.source.kind == "table":
        return rows[-1] if rows else None
    alike = [row for row in rows if row.time == origin.time_ms and _same(subject, origin, row)]
    return alike[-1] if alike else None


def _is_stateless(subject: Subject) -> bool:
    return not any(isinstance(node, Aggregate | Join) for node in walk(subject.query.root))


def _same(subject: Subject, origin: Origin, row: Traced | None) -> bool:
    return row is not None and not differences(subject.query, origin.values, row.values)
