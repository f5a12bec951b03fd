"""From the pool into the log, until the collector is stopped; then what is left, and nothing is lost unseen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.collect.base import Sent, sent_objects
from headrace.collect.columns import Columns
from headrace.collect.feed import Feed
from headrace.collect.gate import Arrival
from headrace.collect.listening.datagrams import Datagrams
from headrace.collect.listening.pool import Gathered, Pool
from headrace.collect.listening.streams import Streams
from headrace.collect.outlet import Stopped
from headrace.collect.poison import find_poison, is_poison
from headrace.errors import HeadraceError
from headrace.log.codecs.json_codec import Unreadable

STOP_S = 3.0
COUNT_S = 1.0
_PAUSE_S = 1.0

logger = logging.getLogger("headrace.listeners")

Events = Columns | Sent
Read = Callable[[Sequence[Gathered]], Events]
Door = Datagrams | Streams


@dataclass(slots=True, eq=False)
class _Taken:
    """What was taken out of the pool, and the events it will be: read in another thread while the one before it is
    written."""

    gathered: Sequence[Gathered]
    events: asyncio.Future[Events]
    read: Read

    @classmethod
    def begin(cls, gathered: Sequence[Gathered], read: Read) -> _Taken:
        return cls(gathered, asyncio.ensure_future(asyncio.to_thread(read, gathered)), read)


async def drain(feed: Feed, pool: Pool, doors: Sequence[Door], read: Read) -> None:
    """Until cancelled. `read` makes events of what was gathered, in a thread."""
    counting = asyncio.create_task(_count_drops(feed, doors))
    writing: asyncio.Future[None] | None = None
    ahead: _Taken | None = None
    try:
        while True:
            taken = ahead or _Taken.begin(await pool.take(), read)
            ahead, writing = None, asyncio.ensure_future(_write(feed, taken))
            taking = asyncio.ensure_future(pool.take())
            try:
                await asyncio.wait([writing, taking], return_when=asyncio.FIRST_COMPLETED)
            finally:
                # Either it has taken something or it has not.
                taking.cancel()
                await asyncio.wait([taking])
                if not taking.cancelled():
                    ahead = _Taken.begin(taking.result(), read)
            await asyncio.shield(writing)
    finally:
        counting.cancel()
        for door in doors:
            if isinstance(door, Datagrams):
                door.close()
            else:
                await door.close()
        await _finish(feed, pool, writing, ahead, read)


async def _finish(
    feed: Feed, pool: Pool, writing: asyncio.Future[None] | None, ahead: _Taken | None, read: Read
) -> None:
    """Write what is left, for as long as that may take."""
    ending = asyncio.get_running_loop().call_later(STOP_S, feed.stop)
    try:
        if writing is not None and not writing.done():
            await writing
        if ahead is not None:
            taken, ahead = ahead, None
            await _write(feed, taken)
        while rest := pool.take_rest():
            await _write(feed, _Taken.begin(rest, read))
    except Stopped:
        left = [ahead.gathered] if ahead is not None else []
        while rest := pool.take_rest():
            left.append(rest)
        for gathered in left:
            _lost(feed, gathered)
    finally:
        ending.cancel()


async def _write(feed: Feed, taken: _Taken) -> None:
    """Tried until the log has it: whoever sent it will not send it again."""
    gathered = taken.gathered
    addresses = {one.address for one in gathered}
    if feed.gate.settings.enrich.address and len(addresses) > 1:
        # Where the sender is told to each event, those of several are not mixed.
        for one in gathered:
            await _write(feed, _Taken.begin([one], taken.read))
        return
    arrived = Arrival(address=addresses.pop() if len(addresses) == 1 else "", size=sum(one.size for one in gathered))
    for events in await _events(feed, taken):
        await _put(feed, events, arrived, gathered)
    for one in gathered:
        for done in one.done:
            done()


async def _events(feed: Feed, taken: _Taken) -> list[Events]:
    """What was read, and apart from it what cannot be."""
    try:
        return [await taken.events]
    except Exception as error:
        logger.exception("reading what arrived breaks")
        if not is_poison(error):
            _lost(feed, taken.gathered)
            raise
        return await asyncio.to_thread(_read_apart, taken.gathered, taken.read)


def _read_apart(gathered: Sequence[Gathered], read: Read) -> list[Events]:
    singles = [one for several in gathered for one in several.apart()]
    poison = find_poison(len(singles), lambda rows: read([singles[row] for row in rows]))
    good = [one for row, one in enumerate(singles) if row not in poison]
    originals = [singles[row].messages[0] for row in poison]
    letters = [Unreadable(f"breaks the collector: {why}") for why in poison.values()]
    found: list[Events] = [sent_objects(letters, originals.__getitem__)] if letters else []
    return [read(good), *found] if good else found


async def _put(feed: Feed, events: Events, arrived: Arrival, gathered: Sequence[Gathered]) -> None:
    while True:
        try:
            await feed.put(events, arrived)
            return
        except Stopped:
            _lost(feed, gathered)
            raise
        except Exception as error:
            why = error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
            logger.warning("collector `%s` cannot write: %s", feed.gate.name, why)
            feed.waiting(why)
            await asyncio.sleep(_PAUSE_S)
            if feed.stopping:
                _lost(feed, gathered)
                raise Stopped from error


def _lost(feed: Feed, gathered: Sequence[Gathered]) -> None:
    count = sum(sum(part.count(b"\n") for part in one.messages) if one.lines else len(one.messages) for one in gathered)
    logger.error("collector `%s`: %d messages were lost: the log did not take them", feed.gate.name, count)
    feed.counters.lost(count)


async def _count_drops(feed: Feed, doors: Sequence[Door]) -> None:
    while True:
        await asyncio.sleep(COUNT_S)
        for door in doors:
            if isinstance(door, Datagrams) and (dropped := door.count_drops()):
                feed.counters.failed(f"the kernel dropped {dropped} datagrams on {door.address}: too many at once")
