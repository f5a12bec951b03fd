"""Feeds: a view's changes as they happen, each with an id to continue from.

A feed reads the view's changelog in order of arrival numbers, at its client's pace: nobody slow holds up anybody else,
and nothing is queued for them. An id is `VERSION-ARRIVAL`; what follows it is what arrived later, so a feed that is
continued has neither a gap nor a repeat, whoever was restarted in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from headrace.deliver.base import Delivery, FeedEvent
from headrace.deliver.changes import event_id, read_changes, snapshot_columns, snapshot_events
from headrace.errors import Gone, NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import Log, Snapshot
from headrace.store.arrivals import behind, position_at_end, position_at_start, topic_ends
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
    position = position_at_end(now, topic) if start == "now" else position_at_start(now, topic)
    return _follow(delivery, view, position, options)


def position_after(log: Log, now: Snapshot, view: ViewStore, id_: str) -> Position:
    """Right behind an event. `Gone` if what follows it may no longer be complete."""
    version, arrival = parse_id(id_)
    name = display_name(view.source.name)
    if version != view.version:
        raise gone(id_, f"`{name}` is at version {view.version} now")
    if arrival >= now.arrival:
        raise gone(id_, "the log has not got that far: it must be another one")
    topic = view.source.topic
    offsets: dict[int, int] = {}
    for number, ends in enumerate(topic_ends(now, topic)):
        offsets[number] = log.offset_at_arrival(topic, number, arrival + 1)
        # At a start that moved, nobody knows whether something between the id and it was removed.
        if offsets[number] <= ends.start and ends.start > 0:
            raise gone(id_, f"topic `{topic}` no longer holds all that came after it")
    return Position(arrival + 1, offsets)


def gone(id_: str, detail: str) -> Gone:
    return Gone(f"a feed cannot be continued after `{id_}`", detail=detail, hint="begin again with ?snapshot=true")


def parse_id(text: str) -> tuple[int, int]:
    """
    >>> parse_id("1-48112")
    (1, 48112)
    """
    version, _, arrival = text.partition("-")
    known = arrival.isdecimal() or arrival == "-1"  # before everything
    if not (version.isdecimal() and known and text.isascii() and len(text) < 40):
        raise UsageError(
            f"`{text[:40]}` is not an event id", hint="an id looks like 1-48112: version and arrival number"
        )
    return int(version), int(arrival)


async def _snapshot(delivery: Delivery, view: ViewStore, options: FeedOptions) -> AsyncIterator[FeedEvent]:
    """The rows as they are, then what follows the very position they were read at."""
    names = [column.name for column in snapshot_columns(view.source)]
    rows, _ = await asyncio.to_thread(view.select, names, limit=options.snapshot_rows + 1)
    if len(rows.rows) > options.snapshot_rows:
        yield cut(f"the view has more than {options.snapshot_rows} rows: query it, and follow it from now")
        return
    last_id = event_id(view.version, rows.position.arrival - 1)
    for event in snapshot_events(view.source, view.version, rows.rows, last_id):
        yield event
    async for event in _follow(delivery, view, rows.position, options):
        yield event


async def _follow(
    delivery: Delivery, view: ViewStore, position: Position, options: FeedOptions
) -> AsyncIterator[FeedEvent]:
    source, version = view.source, view.version
    caught_up = False
    yield heartbeat(version, position)
    while True:
        now = await delivery.tails.wait(source.topic, position, options.heartbeat_s)
        reason = why_to_end(delivery, view, now)
        if reason is not None:
            yield cut(reason)
            return
        lag = behind(now, source.topic, position)
        if not lag:
            caught_up = True
            position = Position(max(position.arrival, now.arrival), position.offsets)
            yield heartbeat(version, position)
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


def heartbeat(version: int, position: Position) -> FeedEvent:
    """Says how far the feed has come."""
    return FeedEvent("heartbeat", {}, event_id(version, position.arrival - 1))


def cut(reason: str) -> FeedEvent:
    data: dict[str, Any] = {"reason": reason}
    return FeedEvent("cut", data)
