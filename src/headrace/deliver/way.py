"""The way of a feed from one version's rows to another's, or from nothing to a version's, which is a snapshot.

A client on it has the new version's rows at the places below some place, as of one position of the new changelog, and
the old version's rows at all others, as of one position of the old. So from wherever it left it goes on like this: what
the old changelog has since, of the rows that are still the old version's; what the new one has since, of those that are
the new one's already; and then the difference between both versions as they are now, from its place on. Nothing has to
be remembered for it: its event ids say all of that. When it has come to the end, it has the new version's rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from headrace.deliver.base import Delivery, FeedEvent
from headrace.deliver.changes import Changes, next_changes, read_changes
from headrace.deliver.crossing import Crossing, Places, cross, places
from headrace.deliver.ids import Midway, id_after, midway_id, parse_id, position_after
from headrace.errors import HeadraceError, NotFound, OffsetOutOfRange, Overloaded
from headrace.log.base import Log, PartitionEnds, Snapshot
from headrace.store.arrivals import topic_ends
from headrace.store.base import Position, ViewStore
from headrace.types import display_name

ROWS_PER_READ = 500
LOOK_SECONDS = 0.02
AGAIN_SECONDS = 5.0
SHARED_ROWS = 20_000
"""A snapshot of more rows than this is shared even if there are newer ones: they follow it."""


@dataclass(frozen=True, slots=True)
class Way:
    new: ViewStore
    old: ViewStore | None = None
    at_old: Position | None = None
    at_new: Position | None = None
    """What of the new version the client has; None if nothing."""
    done: int = 0
    """Rows at places below it are the new version's."""


def way_from(delivery: Delivery, now: Snapshot, serving: ViewStore, midway: Midway) -> Way:
    """Where a client left. `Gone` if one of the versions is: nobody knows any more what its rows were."""
    new, at_new = place_after(delivery, now, serving, midway.new)
    if midway.old is None:
        return Way(new, at_new=at_new, done=midway.done)
    old, at_old = place_after(delivery, now, serving, midway.old)
    return Way(new, old, at_old, at_new, midway.done)


def place_after(delivery: Delivery, now: Snapshot, serving: ViewStore, id_: str) -> tuple[ViewStore, Position]:
    """The version that an id is of, as long as it is kept, and the position right behind it."""
    number, view = parse_id(id_).version, serving
    if number != serving.version:
        # One that is gone is refused in the one that serves.
        with suppress(NotFound):
            view = delivery.views.version(serving.source.name, number)
    return view, position_after(delivery.log, now, view, id_)


async def travel(delivery: Delivery, way: Way) -> AsyncIterator[FeedEvent | Position]:
    """What a client gets on the way. Last of all the position in the new version, unless the feed was cut."""
    try:
        crossing = await _crossing(delivery, way)
        async for event in _catch_up(delivery, way, crossing):
            yield event
    except (HeadraceError, OSError) as error:
        yield cut(_why(delivery, way, error))
        return
    async for event in _difference(delivery, way, crossing):
        yield event
    yield heartbeat(delivery.log, way.new.version, crossing.new)
    yield crossing.new


def _why(delivery: Delivery, way: Way, error: HeadraceError | OSError) -> str:
    """Why it is cut. `Overloaded` where it may go well another time: clients take a while until they come again."""
    name, version = display_name(way.new.source.name), way.new.version
    if delivery.tails.closed:
        return "the server is stopping"
    if not isinstance(error, NotFound | OffsetOutOfRange):
        why = error.message if isinstance(error, HeadraceError) else str(error)
        raise Overloaded(f"the rows of `{name}` cannot be brought together now", detail=why, retry_after=AGAIN_SECONDS)
    # Nobody knows any more what the client has.
    if way.old is None:
        return f"version {version} of `{name}` is gone: begin again"
    return f"`{name}` has a new version, {version}, and the one before is gone: begin again"


async def _crossing(delivery: Delivery, way: Way) -> Crossing:
    """One for all who cross together, unless somebody is ahead of where it was read: rows follow the log closely."""

    def behind(crossing: Crossing) -> bool:
        return _before(crossing.old, way.at_old) or _before(crossing.new, way.at_new)

    while True:
        old = None if way.old is None else await _until(delivery, way.old, way.at_old)
        new = await _until(delivery, way.new, way.at_new)

        def fits(crossing: Crossing, new: ViewStore = new) -> bool:
            fresh = way.old is not None or crossing.reel.rows > SHARED_ROWS or crossing.new == new.position()
            return fresh and not behind(crossing)

        make = partial(cross, delivery.log, delivery.scratch, old, new)
        crossing: Crossing = await delivery.crossings.get((old, new), make, fits)
        if not behind(crossing):
            return crossing


async def _until(delivery: Delivery, view: ViewStore, position: Position | None) -> ViewStore:
    """The view once its rows have come as far as the client has."""
    while _before(view.position(), position):
        if delivery.tails.closed:
            raise HeadraceError("the server is stopping")
        await asyncio.sleep(LOOK_SECONDS)
        view = delivery.views.version(view.source.name, view.version)
    return view


def _before(position: Position | None, other: Position | None) -> bool:
    if position is None or other is None:
        return False
    return any(position.offsets.get(number, 0) < offset for number, offset in other.offsets.items())


async def _catch_up(delivery: Delivery, way: Way, crossing: Crossing) -> AsyncIterator[FeedEvent]:
    """What came since, up to where the versions were read."""
    log, done = delivery.log, way.done
    of_old, of_new = places(None if way.old is None else way.old.source, way.new.source)
    at_new = None if way.at_new is None else id_after(log, way.new.version, way.at_new)
    if way.old is not None and way.at_old is not None and crossing.old is not None and of_old is not None:
        wanted = _Wanted(of_old, lambda place: place >= done)
        async for event in _changes_until(delivery, way.old, way.at_old, crossing.old, wanted if done else None):
            yield event if at_new is None else replace(event, id=event.id and midway_id(event.id, at_new, done))
    if way.at_new is not None:
        wanted = _Wanted(of_new, lambda place: place < done)
        async for event in _changes_until(delivery, way.new, way.at_new, crossing.new, wanted):
            yield replace(event, id=event.id and midway_id(crossing.ids[0], event.id, done))


@dataclass(frozen=True, slots=True)
class _Wanted:
    places: Places
    holds: Callable[[int], bool]


async def _changes_until(
    delivery: Delivery, view: ViewStore, position: Position, until: Position, wanted: _Wanted | None
) -> AsyncIterator[FeedEvent]:
    while _before(position, until):
        now = _bounded(delivery.log.snapshot(), view.source.topic, until)
        changes = await changes_after(delivery, view, position, now, until)
        for event in changes.events:
            if wanted is None or wanted.holds(wanted.places.of_change(event.data)):
                yield event
        position = changes.position


async def _difference(delivery: Delivery, way: Way, crossing: Crossing) -> AsyncIterator[FeedEvent]:
    reel = crossing.reel
    for block in range(reel.block_of(way.done), len(reel.blocks)):
        found = await delivery.tails.share(("block", crossing.number, block), partial(crossing.changes, block))
        for place, event in found:
            if place >= way.done:
                yield event


def _bounded(now: Snapshot, topic: str, until: Position) -> Snapshot:
    """The log as if the topic ended there."""
    ends = tuple(
        PartitionEnds(end.start, min(end.end, until.offsets.get(number, 0)))
        for number, end in enumerate(topic_ends(now, topic))
    )
    return replace(now, arrival=min(now.arrival, until.arrival), ends={**now.ends, topic: ends})


async def changes_after(
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


def heartbeat(log: Log, version: int, position: Position) -> FeedEvent:
    """Says how far the feed has come."""
    return FeedEvent("heartbeat", {}, id_after(log, version, position))


def cut(reason: str) -> FeedEvent:
    return FeedEvent("cut", {"reason": reason})
