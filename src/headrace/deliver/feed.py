"""Feeds: a view's changes as they happen, each with an id to continue from.

A feed reads the view's changelog in order of arrival, at its client's pace: nobody slow holds up anybody else, and
nothing is queued for them. `ids` says what an id is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from headrace.deliver.base import Delivery, FeedEvent
from headrace.deliver.changes import read_changes, snapshot_columns, snapshot_events
from headrace.deliver.ids import id_after, position_after
from headrace.errors import NotFound, OffsetOutOfRange
from headrace.log.base import Log, Snapshot
from headrace.store.arrivals import behind, has_arrivals, position_at_end, position_at_start
from headrace.store.base import Position, ViewStore
from headrace.types import display_name

HEARTBEAT_SECONDS = 5.0
MAX_BEHIND = 100_000
"""A feed that once had caught up and falls this many changes behind is cut: its client does not read."""
SNAPSHOT_ROWS = 100_000
ROWS_PER_READ = 500


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


async def _follow(
    delivery: Delivery, view: ViewStore, position: Position, options: FeedOptions
) -> AsyncIterator[FeedEvent]:
    source, version = view.source, view.version
    caught_up = False
    yield heartbeat(delivery.log, version, position)
    while True:
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
            changes = await delivery.tails.share(
                ("changes", source.name, version, tuple(position.offsets.items())),
                partial(read_changes, delivery.log, source, version, position, now, ROWS_PER_READ),
            )
        except NotFound:
            continue  # gone since we looked; the next look says so
        except OffsetOutOfRange:
            yield cut("too slow: the log no longer holds what comes next")
            return
        for event in changes.events:
            yield event
        position = changes.position


def why_to_end(delivery: Delivery, view: ViewStore, now: Snapshot) -> str | None:
    if delivery.tails.closed:
        return "the server is stopping"
    name = display_name(view.source.name)
    try:
        serving = delivery.views.view(view.source.name)
    except NotFound:
        return f"`{name}` was dropped"
    if view.source.topic not in now.ends:
        return f"`{name}` was dropped"
    return None if serving.version == view.version else f"`{name}` has a new version, {serving.version}"


def heartbeat(log: Log, version: int, position: Position) -> FeedEvent:
    """Says how far the feed has come."""
    return FeedEvent("heartbeat", {}, id_after(log, version, position))


def cut(reason: str) -> FeedEvent:
    data: dict[str, Any] = {"reason": reason}
    return FeedEvent("cut", data)
