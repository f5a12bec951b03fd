"""A topic's records as they are: for the topic page and `headrace topic tail`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from headrace.deliver.base import HEARTBEAT_SECONDS, Delivery, FeedEvent
from headrace.deliver.changes import Changes, next_changes
from headrace.errors import NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import OFFSET, PARTITION, Log, Snapshot, Topic
from headrace.log.codecs.event_json import event_maker
from headrace.store.arrivals import behind, merge, position_at_end, position_at_start, read_stretch, topic_ends
from headrace.store.base import Position
from headrace.store.columns import arrow_rows

ROWS_PER_READ = 500


def _to_json(batch: Any, topic: Topic) -> list[dict[str, Any]]:
    make = event_maker(topic)
    return [make(row, row[PARTITION], row[OFFSET]) for row in arrow_rows(batch)]


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
    position = (position_at_start if from_beginning else position_at_end)(delivery.log, now, name)
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
            found = await next_changes(
                delivery.tails,
                ("tail", topic.id, tuple(position.offsets.items())),
                position,
                partial(read_tail, delivery.log, name, position, now),
            )
        except NotFound:
            continue  # gone since we looked; the next look says so
        except OffsetOutOfRange:
            yield cut("too slow: the log no longer holds what comes next")
            return
        position = found.position
        for event in found.events:
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


def read_tail(log: Log, name: str, after: Position, until: Snapshot) -> Changes:
    topic = log.topic(name)
    stretch = read_stretch(log, name, after, until, max_rows=ROWS_PER_READ)
    batch = merge(stretch.records, after)
    rows = [] if batch is None else _to_json(batch, topic)
    return Changes(tuple(FeedEvent("event", row) for row in rows), stretch.position)
