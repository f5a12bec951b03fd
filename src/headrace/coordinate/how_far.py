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


def next_offsets(log: Log, query: QueryDefinition, topic: str) -> dict[int, int]:
    """By partition: the first record that the query has neither read nor was told to leave out. Of what a replay leaves
    out its commits do not speak, and one from now on has no place to name until something arrives."""
    starts, snapshot = query.starts.get(topic, {}), log.snapshot()
    read = offsets_of(log, snapshot, topic, cut_of(log, query))
    ends = snapshot.ends.get(topic, ())
    return {number: max(end.start, read[number], starts.get(number, 0)) for number, end in enumerate(ends)}


def lag_of(log: Log, query: QueryDefinition, until: Cut | None = None) -> int:
    """Records that the query has yet to read: of all that is there, or before a cut."""
    left = 0
    for topic in query.reads.values():
        read, now = next_offsets(log, query, topic), log.snapshot()
        bounds = {} if until is None else offsets_of(log, now, topic, until)
        for number, end in enumerate(now.ends.get(topic, ())):
            left += max(0, bounds.get(number, end.end) - read.get(number, end.start))
    return left


def read_by(log: Log, query: QueryDefinition) -> int:
    """How many records the query has read."""
    snapshot, left = log.snapshot(), lag_of(log, query)
    held = 0
    for topic in query.reads.values():
        starts = query.starts.get(topic, {})
        held += sum(end.end - max(end.start, starts.get(n, 0)) for n, end in enumerate(snapshot.ends.get(topic, ())))
    return max(0, held - left)
