"""A topic's records as they are: for the topic page and `headrace topic tail`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Literal, TypeAlias

from headrace.deliver.base import Delivery, FeedEvent
from headrace.errors import NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import OFFSET, PARTITION, Log, PartitionEnds, Snapshot, Topic
from headrace.log.codecs.event_json import record_to_json
from headrace.store.arrivals import behind, merge, position_at_end, position_at_start, read_stretch, topic_ends
from headrace.store.base import Position
from headrace.store.columns import arrow_rows

From: TypeAlias = Literal["newest", "oldest"] | int
"""Where to begin: at an offset if it is a number (then a partition must be named, or the topic has only one)."""

HEARTBEAT_SECONDS = 5.0
ROWS_PER_READ = 500


def read_events(
    log: Log,
    name: str,
    *,
    start: From = "newest",
    time_ms: int | None = None,
    partition: int | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Up to `limit` Event objects of the HTTP API: the newest first, or from the oldest, an offset or a time on."""
    topic = log.topic(name)
    ends = topic_ends(log.snapshot(), name)
    partitions = range(len(ends)) if partition is None else [check_partition(partition, len(ends))]
    newest = start == "newest" and time_ms is None
    found: list[dict[str, Any]] = []
    for number in partitions:
        first, last = _range(log, name, number, ends[number], start, time_ms, limit, len(ends), partition)
        found += _events(log, topic, number, first, last)
    found.sort(key=lambda event: event["arrival"], reverse=newest)
    return found[:limit]


def _range(
    log: Log,
    name: str,
    number: int,
    ends: PartitionEnds,
    start: From,
    time_ms: int | None,
    limit: int,
    partitions: int,
    partition: int | None,
) -> tuple[int, int]:
    """Offsets of the records that may be among the first `limit`."""
    if time_ms is not None:
        first = max(ends.start, log.offset_at_time(name, number, time_ms))
    elif start == "newest":
        return max(ends.start, ends.end - limit), ends.end
    elif start == "oldest":
        first = ends.start
    elif partition is None and partitions > 1:
        raise UsageError(f"an offset needs a partition: `{name}` has {partitions}", hint="add ?partition=0")
    else:
        first = max(ends.start, start)
    return first, min(ends.end, first + limit)


def _events(log: Log, topic: Topic, number: int, first: int, last: int) -> list[dict[str, Any]]:
    if first >= last:
        return []
    batch = merge(list(log.read(topic.name, number, first, last)))
    return [] if batch is None else _to_json(batch, topic)


def _to_json(batch: Any, topic: Topic) -> list[dict[str, Any]]:
    return [record_to_json(row, topic, row[PARTITION], row[OFFSET]) for row in arrow_rows(batch)]


def check_partition(partition: int, partitions: int) -> int:
    if not 0 <= partition < partitions:
        raise UsageError(f"there is no partition `{partition}`", hint=f"partitions are 0 to {partitions - 1}")
    return partition


def tail(
    delivery: Delivery,
    name: str,
    *,
    from_beginning: bool = False,
    partition: int | None = None,
    heartbeat_s: float = HEARTBEAT_SECONDS,
) -> AsyncIterator[FeedEvent]:
    """Records as they arrive, each an `event`; `heartbeat` when idle, `cut` at the end. `NotFound` at once."""
    topic = delivery.log.topic(name)
    now = delivery.log.snapshot()
    if partition is not None:
        check_partition(partition, len(topic_ends(now, name)))
    position = position_at_start(now, name) if from_beginning else position_at_end(now, name)
    return _tail(delivery, topic, position, partition, heartbeat_s)


async def _tail(
    delivery: Delivery, topic: Topic, position: Position, partition: int | None, heartbeat_s: float
) -> AsyncIterator[FeedEvent]:
    name = topic.name
    while True:
        now = await delivery.tails.wait(name, position, heartbeat_s)
        if delivery.tails.closed or not _is_there(delivery.log, topic):
            yield cut("the server is stopping" if delivery.tails.closed else "the topic is gone")
            return
        if not behind(now, name, position):
            yield FeedEvent("heartbeat", {})
            continue
        try:
            events, position = await delivery.tails.share(
                ("tail", topic.id, tuple(position.offsets.items())),
                partial(read_tail, delivery.log, name, position, now),
            )
        except NotFound:
            continue  # gone since we looked; the next look says so
        except OffsetOutOfRange:
            yield cut("too slow: the log no longer holds what comes next")
            return
        for event in events:
            if partition is None or event.data["partition"] == partition:
                yield event


def _is_there(log: Log, topic: Topic) -> bool:
    """Another topic of the same name is another topic."""
    try:
        return log.topic(topic.name).id == topic.id
    except NotFound:
        return False


def cut(reason: str) -> FeedEvent:
    return FeedEvent("cut", {"reason": reason})


def read_tail(log: Log, name: str, after: Position, until: Snapshot) -> tuple[tuple[FeedEvent, ...], Position]:
    topic = log.topic(name)
    stretch = read_stretch(log, name, after, until, max_rows=ROWS_PER_READ)
    batch = merge(stretch.records, after.arrival)
    rows = [] if batch is None else _to_json(batch, topic)
    return tuple(FeedEvent("event", row) for row in rows), stretch.position
