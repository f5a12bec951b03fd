"""Feeds: a view's changes as they happen, each with an id to continue from.

A feed reads the view's changelog in order of arrival, at its client's pace: nobody slow holds up anybody else, and
nothing is queued for them. `ids` says what an id is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from headrace.deliver.base import HEARTBEAT_SECONDS, Delivery, FeedEvent
from headrace.deliver.ids import parse_midway
from headrace.deliver.way import Way, changes_after, cut, heartbeat, place_after, travel, way_from
from headrace.errors import NotFound, OffsetOutOfRange
from headrace.log.base import Snapshot
from headrace.store.arrivals import behind, has_arrivals, position_at_end, position_at_start
from headrace.store.base import Position, ViewStore
from headrace.types import display_name

MAX_BEHIND = 100_000
"""A feed that once had caught up and falls this many changes behind is cut: its client does not read."""


@dataclass(frozen=True, slots=True)
class FeedOptions:
    heartbeat_s: float = HEARTBEAT_SECONDS
    max_behind: int = MAX_BEHIND


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
        if midway := parse_midway(after):
            return _begin(delivery, way_from(delivery, now, view, midway), options)
        view, position = place_after(delivery, now, view, after)
        return _follow(delivery, view, position, options)
    if snapshot:
        return _begin(delivery, Way(view), options)
    begin = position_at_end if start == "now" else position_at_start
    position = begin(delivery.log, now, topic)
    return _follow(delivery, view, position, options)


async def _begin(delivery: Delivery, way: Way, options: FeedOptions) -> AsyncIterator[FeedEvent]:
    """To the rows as they are, then what follows the very position they were read at."""
    async for step in travel(delivery, way):
        if isinstance(step, FeedEvent):
            yield step
            continue
        async for event in _follow(delivery, way.new, step, options):
            yield event


async def _follow(
    delivery: Delivery, view: ViewStore, position: Position, options: FeedOptions
) -> AsyncIterator[FeedEvent]:
    caught_up = False
    yield heartbeat(delivery.log, view.version, position)
    while True:
        source, version = view.source, view.version
        serving = _serving(delivery, source.name)
        if serving is not None and serving.version != version:
            async for step in travel(delivery, Way(serving, view, position)):
                if isinstance(step, FeedEvent):
                    yield step
                else:
                    view, position, caught_up = serving, step, False
            if view is not serving:
                return
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
            changes = await changes_after(delivery, view, position, now)
        except NotFound:
            continue  # gone since we looked; the next look says so
        except OffsetOutOfRange:
            yield cut("too slow: the log no longer holds what comes next")
            return
        for event in changes.events:
            yield event
        position = changes.position


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
