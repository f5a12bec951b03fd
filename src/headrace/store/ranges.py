"""Which offsets of a topic a range is about."""

from __future__ import annotations

from dataclasses import replace

from headrace.log.base import Log, PartitionEnds, Snapshot
from headrace.sql.ask_plan import Read
from headrace.sql.clauses import OffsetRange, TimeRange
from headrace.sql.source import Source
from headrace.store.arrivals import topic_ends


def clip(log: Log, snapshot: Snapshot, read: Read) -> Snapshot:
    """The moment as if the topic held nothing but what can be in the range. What retention has removed, or what has not
    come yet, is not there to be read."""
    topic, range_ = read.source.topic, read.range
    ends = topic_ends(snapshot, topic)
    match range_:
        case OffsetRange(bounds):
            clipped = tuple(_offsets(bounds, number, one) for number, one in enumerate(ends))
        case TimeRange(low) if _by_topic_time(log, read.source):
            # A record of any earlier time may come later, so there is no such end.
            assert isinstance(low, int)
            starts = [log.offset_at_time(topic, number, low) for number in range(len(ends))]
            clipped = tuple(_between(one, start, one.end) for one, start in zip(ends, starts, strict=True))
        case _:
            return snapshot
    return replace(snapshot, ends={**snapshot.ends, topic: clipped})


def _by_topic_time(log: Log, source: Source) -> bool:
    """Whether the source's event time is the one the log has an index for."""
    stamp = log.topic(source.topic).spec.timestamp
    return source.timestamp is None or source.timestamp == (stamp.column if stamp else None)


def _offsets(bounds: tuple[tuple[int | None, int, int], ...], number: int, ends: PartitionEnds) -> PartitionEnds:
    for partition, low, high in bounds:
        if partition is None or partition == number:
            return _between(ends, low, high + 1)
    return _between(ends, ends.end, ends.end)


def _between(ends: PartitionEnds, low: int, high: int) -> PartitionEnds:
    start = min(max(ends.start, low), ends.end)
    return PartitionEnds(start, max(start, min(ends.end, high)))
