"""What came too late for a row, and what of it a repair has counted since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.log.base import Log
from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import ColumnRef
from headrace.sql.plan import scanned
from headrace.store.arrivals import has_arrivals
from headrace.store.cuts import Cut, cut_now, offsets_at
from headrace.store.revisions import Revision, Revisions, row_text
from headrace.views.evaluate import Evaluation
from headrace.views.ledger import LateEntry, places_of, read_ledger, stamps_of
from headrace.views.reading import Offsets, Reader
from headrace.views.stamping import Stamps
from headrace.views.subject import Subject
from headrace.views.traced import Bounds, key_of

DAY_MS = 24 * 3600 * 1000


def row_reader(
    log: Log,
    subject: Subject,
    cut: Cut,
    window: Bounds | None,
    late: Offsets | None = None,
    deadline: float | None = None,
    margin_ms: int = 0,
    entries: Sequence[LateEntry] | None = None,
) -> Reader:
    """For rows of a window, or of all. What was late is known to the ledger (`entries`, if they were read before);
    where the log stamps nothing, only to it (`views.stamping`)."""
    stamps: Stamps = {}
    if not has_arrivals(log):
        # A late record names no session: any may be near one.
        between = None if subject.source.window is not None and subject.source.window.kind == "session" else window
        stamps = stamps_of(read_ledger(log, subject.late_topic, between=between) if entries is None else entries)
    return Reader(log, cut, late or {}, deadline=deadline, starts=subject.starts, stamps=stamps, margin_ms=margin_ms)


def margins(log: Log, subject: Subject) -> tuple[int, ...]:
    """How much earlier than its window a record may stand by Kafka's timestamps: none, unless its time is a column
    and another program wrote it; then it may say that it is of later than it was written. The last is always enough
    (for times up to a day ahead)."""
    if has_arrivals(log):
        return (0,)
    topics = [log.topic(source.topic).spec for source in scanned(subject.query.root)]
    return (0, DAY_MS) if any(topic.timestamp is not None for topic in topics) else (0,)


def late_records(log: Log, subject: Subject, key: tuple[Any, ...], window: Bounds | None) -> list[LateEntry]:
    """What came too late for this row."""
    aggregate = subject.aggregate
    if aggregate is None or aggregate.window is None or window is None:
        return []
    entries = read_ledger(log, subject.late_topic, between=window)
    if aggregate.window.kind != "session":
        entries = [entry for entry in entries if entry.window == window]
    places = places_of(entries)
    if not places:
        return []
    own = _with_key(log, subject, places, key)
    entries = [entry for entry in entries if (entry.topic, entry.partition, entry.offset) in own]
    counted = {entry.place for entry in _in_batch(log, subject, entries)}
    return [entry for entry in entries if entry.place not in counted]


def _with_key(log: Log, subject: Subject, places: Offsets, key: tuple[Any, ...]) -> set[tuple[str, int, int]]:
    return {place for place, found in late_keys(log, subject, places).items() if key in found}


def late_keys(log: Log, subject: Subject, places: Offsets) -> dict[tuple[str, int, int], set[tuple[Any, ...]]]:
    """The keys, as the sink has them, of the groups that records would have belonged to."""
    aggregate = subject.aggregate
    assert aggregate is not None
    reader = Reader(log, cut_now(log, log.snapshot(), {topic for topic, _ in places}), only=places)
    computed = {named.name: compile_expression(named.expression) for named in aggregate.keys}
    # The sink's key columns are the aggregate's keys, in the order of the sink.
    names = tuple(named.expression.name for named in subject.query.root.key if isinstance(named.expression, ColumnRef))
    found: dict[tuple[str, int, int], set[tuple[Any, ...]]] = {}
    for row in Evaluation(reader).rows(aggregate.input):
        values = {name: compute(row.values) for name, compute in computed.items()}
        for origin in row.origins:
            place = (origin.topic, origin.partition, origin.offset)
            found.setdefault(place, set()).add(key_of(values, names))
    return found


def row_revision(
    revisions: Revisions | None, subject: Subject, key: Mapping[str, Any], window: Bounds | None
) -> Revision | None:
    """The newest repair of a row."""
    if revisions is None or window is None:
        return None
    name = subject.source.name
    return revisions.of_row((name, subject.version, row_text(subject.source.key, key), *window))


def admitted_late(
    log: Log, subject: Subject, bounds: Bounds | None, revisions: Sequence[Revision | None] = ()
) -> Offsets:
    """The late records that are counted in rows of one window, because repairs or a batch layer did."""
    repaired = max((revision.ledger for revision in revisions if revision is not None), default=0)
    if bounds is None or not (repaired or subject.query.counts_late):
        return {}
    entries = read_ledger(log, subject.late_topic, between=bounds)
    window = subject.aggregate.window if subject.aggregate is not None else None
    if window is not None and window.kind != "session":
        entries = [entry for entry in entries if entry.window == bounds]
    counted = [entry for entry in entries if entry.place < repaired]
    return places_of([*counted, *_in_batch(log, subject, entries)])


def _in_batch(log: Log, subject: Subject, entries: Sequence[LateEntry]) -> list[LateEntry]:
    """Those that the batch layer counts, because they are before its cut."""
    if not subject.query.counts_late or not subject.cut:
        return []
    now, topics = log.snapshot(), {entry.topic for entry in entries}
    ends = {topic: offsets_at(log, now, topic, subject.cut) for topic in topics}
    return [
        entry
        for entry in entries
        if entry.partition is not None
        and entry.offset is not None
        and entry.offset < ends[entry.topic].get(entry.partition, 0)
    ]
