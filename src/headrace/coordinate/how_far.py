"""How far queries are: what they have read, and what they have yet to read."""

from __future__ import annotations

from headrace.coordinate.base import QueryDefinition
from headrace.log.base import Log
from headrace.process.progress import parse_offsets
from headrace.store.arrivals import has_arrivals
from headrace.store.cuts import Cut, Reading
from headrace.store.cuts import offsets_at as offsets_of

Offsets = tuple[int, ...]


def cut_of(log: Log, query: QueryDefinition) -> Cut:
    """What the query has read, by what it last committed."""
    topics = tuple(query.reads.values())
    begun = query.cut if query.layer == "speed" else 0
    found = Reading(log, query.id, query.version, topics, begun, query.starts).cut()
    if found is not None:
        return found
    # An older version said less: of several topics how far the first was read.
    identity = log.last_identity(query.id, query.version)
    known = {topics[0]: parse_offsets(identity.offsets)} if identity is not None and topics else {}
    return 0 if has_arrivals(log) else known


def offsets_at(log: Log, topic: str, cut: Cut) -> Offsets:
    return tuple(offsets_of(log, log.snapshot(), topic, cut).values())


def ends_of(log: Log, topic: str) -> Offsets:
    return tuple(end.end for end in log.snapshot().ends.get(topic, ()))


def lag_of(log: Log, query: QueryDefinition, until: Cut | None = None) -> int:
    """Records that the query has yet to read: of all that is there, or before a cut."""
    cut, now = cut_of(log, query), log.snapshot()
    left = 0
    for topic in query.reads.values():
        read = offsets_of(log, now, topic, cut)
        bounds = {} if until is None else offsets_of(log, now, topic, until)
        for number, end in enumerate(now.ends.get(topic, ())):
            left += max(0, bounds.get(number, end.end) - max(end.start, read[number]))
    return left


def read_by(log: Log, query: QueryDefinition) -> int:
    """How many records the query has read."""
    snapshot, left = log.snapshot(), lag_of(log, query)
    held = sum(end.end - end.start for topic in query.reads.values() for end in snapshot.ends.get(topic, ()))
    return max(0, held - left)
