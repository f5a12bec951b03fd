"""Feeds: a view's changes as they happen, each with an id to continue from.

A feed reads the view's changelog in order of arrival, at its client's pace: nobody slow holds up anybody else, and
nothing is queued for them. `ids` says what an id is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from headrace.deliver.base import Delivery, FeedEvent
from headrace.deliver.changes import Changes, next_changes, read_changes, snapshot_columns, snapshot_events
from headrace.deliver.crossing import Crossing, cross
from headrace.deliver.ids import id_after, parse_id, position_after
from headrace.errors import NotFound, OffsetOutOfRange
from headrace.log.base import Log, PartitionEnds, Snapshot
from headrace.store.arrivals import behind, has_arrivals, position_at_end, position_at_start, topic_ends
from headrace.store.base import Position, ViewStore
from headrace.types import display_name

HEARTBEAT_SECONDS = 5.0
MAX_BEHIND = 100_000
"""A feed that once had caught up and falls this many changes behind is cut: its client does not read."""
SNAPSHOT_ROWS = 100_000
ROWS_PER_READ = 500
CROSS_AGAIN_SECONDS = 0.02
ENDED = Position(-1, {})
"""After a feed's last event."""


@dataclass(frozen=True, slots=True)
class FeedOptions:
    heartbeat_s: float = HEARTBEAT_SECONDS
    max_behind: int = MAX_BEHIND
    snapshot_rows: int = SNAPSHOT_ROWS


def feed(
    delivery: Delivery,
    view_name: str,
    *,
    after: str | None = None,
    start: Literal["now", "beginning"] = "now",
    snapshot: bool = False,
    options: FeedOptions | None = None,
) -> AsyncIterator[FeedEvent]:
    """The events of a feed: `change`, now and then `heartbeat`, and `cut` as the last if we end it. `after` wins over
    `snapshot`, which wins over `start`: a client that reconnects says both.

    A heartbeat has an id too, for clients that have seen no change yet. Raises at once: `NotFound`, `UsageError` for
    what is no id, `Gone` for an id that cannot be continued from."""
    view = delivery.views.view(view_name)
    options = options or FeedOptions()
    now = delivery.log.snapshot()
    topic = view.source.topic
    if after is not None:
        view = _version_of(delivery, view, after)
        return _follow(delivery, view, position_after(delivery.log, now, view, after), options)
    if snapshot:
        return _snapshot(delivery, view, options)
    begin = position_at_end if start == "now" else position_at_start
    position = begin(delivery.log, now, topic)
    return _follow(delivery, view, position, options)


async def _snapshot(delivery: Delivery, view: ViewStore, options: FeedOptions) -> AsyncIterator[FeedEvent]:
    """The rows as they are, then what follows the very position they were read at."""
    names = [column.name for column in snapshot_columns(view.source)]
    rows, _ = await asyncio.to_thread(view.select, names, limit=options.snapshot_rows + 1)
    if len(rows.rows) > options.snapshot_rows:
        yield cut(f"the view has more than {options.snapshot_rows} rows: query it, and follow it from now")
        return
    last_id = id_after(delivery.log, view.version, rows.position)
    for event in snapshot_events(view.source, view.version, rows.rows, last_id):
        yield event
    async for event in _follow(delivery, view, rows.position, options):
        yield event


def _version_of(delivery: Delivery, serving: ViewStore, id_: str) -> ViewStore:
    """The version that an id is of, as long as it is kept: a feed continues in it, and crosses over."""
    number = parse_id(id_).version
    if number == serving.version:
        return serving
    try:
        return delivery.views.version(serving.source.name, number)
    except NotFound:
        return serving  # where the id is refused


async def _follow(
    delivery: Delivery, view: ViewStore, position: Position, options: FeedOptions
) -> AsyncIterator[FeedEvent]:
    caught_up = False
    yield heartbeat(delivery.log, view.version, position)
    while True:
        source, version = view.source, view.version
        serving = _serving(delivery, source.name)
        if serving is not None and serving.version != version:
            async for event, at in _cross(delivery, view, serving, position, options):
                yield event
                position = at
            if position is ENDED:
                return
            view = serving
            continue
        now = await delivery.tails.wait(source.topic, position, options.heartbeat_s)
        reason = why_to_end(delivery, view, now)
        if reason is not None:
            yield cut(reason)
            return
        lag = behind(now, source.topic, position)
        if not lag:
            caught_up = True
            if has_arrivals(delivery.log):
                position = Position(max(position.arrival, now.arrival), position.offsets)
            yield heartbeat(delivery.log, version, position)
            continue
        if caught_up and lag > options.max_behind:
            yield cut(f"too slow: {lag} changes behind")
            return
        try:
            changes = await _changes(delivery, view, position, now)
        except NotFound:
            continue  # gone since we looked; the next look says so
        except OffsetOutOfRange:
            yield cut("too slow: the log no longer holds what comes next")
            return
        for event in changes.events:
            yield event
        position = changes.position


async def _cross(
    delivery: Delivery, old: ViewStore, new: ViewStore, position: Position, options: FeedOptions
) -> AsyncIterator[tuple[FeedEvent, Position]]:
    """Events on the way from one version to another, each with the position after it; the last one's is in `new`."""
    try:
        crossing = await _crossing(delivery, old, new, position, options)
        while behind_position(position, crossing.old):
            now = _bounded(delivery.log.snapshot(), old.source.topic, crossing.old)
            changes = await _changes(delivery, old, position, now, crossing.old)
            for event in changes.events:
                yield event, position
            position = changes.position
    except (NotFound, OffsetOutOfRange):
        # Nobody knows any more what the client has.
        name = display_name(new.source.name)
        yield cut(f"`{name}` has a new version, {new.version}, and the one before is gone: begin again"), ENDED
        return
    if crossing.events is None:
        yield cut(f"a new version serves, and it has more than {options.snapshot_rows} rows: query it"), ENDED
        return
    for event in crossing.events:
        yield event, position
    yield heartbeat(delivery.log, new.version, crossing.new), crossing.new


async def _crossing(
    delivery: Delivery, old: ViewStore, new: ViewStore, position: Position, options: FeedOptions
) -> Crossing:
    """One for all who cross together, unless somebody is ahead of where it was read: rows follow the log closely."""
    load = partial(cross, delivery.log, old, new, options.snapshot_rows)
    key = ("crossing", old.source.name, old.version, new.version, id(new))
    crossing: Crossing = await delivery.tails.share(key, load)
    while behind_position(crossing.old, position):
        delivery.tails.forget(key)
        await asyncio.sleep(CROSS_AGAIN_SECONDS)
        crossing = await delivery.tails.share(key, load)
    return crossing


def behind_position(position: Position, other: Position) -> bool:
    return any(position.offsets.get(number, 0) < offset for number, offset in other.offsets.items())


def _bounded(now: Snapshot, topic: str, until: Position) -> Snapshot:
    """The log as if the topic ended there."""
    ends = tuple(
        PartitionEnds(end.start, min(end.end, until.offsets.get(number, 0)))
        for number, end in enumerate(topic_ends(now, topic))
    )
    return replace(now, arrival=min(now.arrival, until.arrival), ends={**now.ends, topic: ends})


async def _changes(
    delivery: Delivery, view: ViewStore, position: Position, now: Snapshot, until: Position | None = None
) -> Changes:
    source, version = view.source, view.version
    bound = None if until is None else tuple(until.offsets.items())
    return await next_changes(
        delivery.tails,
        ("changes", source.name, version, tuple(position.offsets.items()), bound),
        position,
        partial(read_changes, delivery.log, view, position, now, ROWS_PER_READ, delivery.revisions),
    )


def _serving(delivery: Delivery, name: str) -> ViewStore | None:
    try:
        return delivery.views.view(name)
    except NotFound:
        return None


def why_to_end(delivery: Delivery, view: ViewStore, now: Snapshot) -> str | None:
    if delivery.tails.closed:
        return "the server is stopping"
    name = display_name(view.source.name)
    if _serving(delivery, view.source.name) is None or view.source.topic not in now.ends:
        return f"`{name}` was dropped"
    return None


def heartbeat(log: Log, version: int, position: Position) -> FeedEvent:
    """Says how far the feed has come."""
    return FeedEvent("heartbeat", {}, id_after(log, version, position))


def cut(reason: str) -> FeedEvent:
    data: dict[str, Any] = {"reason": reason}
    return FeedEvent("cut", data)
