"""From the pool into the log, until the collector is stopped; then what is left, and nothing is lost unseen."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from headrace.collect.base import Sent
from headrace.collect.columns import Columns
from headrace.collect.feed import Feed
from headrace.collect.gate import Arrival
from headrace.collect.listening.datagrams import Datagrams
from headrace.collect.listening.pool import Gathered, Pool
from headrace.collect.listening.streams import Streams
from headrace.collect.outlet import Stopped
from headrace.errors import HeadraceError

STOP_S = 3.0
COUNT_S = 1.0
_PAUSE_S = 1.0

logger = logging.getLogger("headrace.listeners")

Read = Callable[[Sequence[Gathered]], Columns | Sent]
Door = Datagrams | Streams


async def drain(feed: Feed, pool: Pool, doors: Sequence[Door], read: Read) -> None:
    """Until cancelled. `read` makes events of what was gathered, in the writing thread."""
    counting = asyncio.create_task(_count_drops(feed, doors))
    writing: asyncio.Future[None] | None = None
    try:
        while True:
            gathered = await pool.take()
            writing = asyncio.ensure_future(_write(feed, gathered, read))
            await asyncio.shield(writing)
    finally:
        counting.cancel()
        for door in doors:
            if isinstance(door, Datagrams):
                door.close()
            else:
                await door.close()
        ending = asyncio.get_running_loop().call_later(STOP_S, feed.stop)
        with contextlib.suppress(Stopped):
            if writing is not None and not writing.done():
                await writing
            while rest := pool.take_rest():
                await _write(feed, rest, read)
        while rest := pool.take_rest():
            _lost(feed, rest)
        ending.cancel()


async def _write(feed: Feed, gathered: Sequence[Gathered], read: Read) -> None:
    """Tried until the log has it: whoever sent it will not send it again."""
    if feed.gate.settings.enrich.address and len({one.address for one in gathered}) > 1:
        # Where the sender is told to each event, those of several are not mixed.
        for one in gathered:
            await _write(feed, [one], read)
        return
    addresses = {one.address for one in gathered}
    arrived = Arrival(address=addresses.pop() if len(addresses) == 1 else "", size=sum(one.size for one in gathered))
    while True:
        try:
            await feed.put(lambda: read(gathered), arrived)
        except Stopped:
            _lost(feed, gathered)
            raise
        except HeadraceError as error:
            logger.warning("collector `%s` cannot write: %s", feed.gate.name, error)
            feed.waiting(error.message)
            await asyncio.sleep(_PAUSE_S)
            if feed.stopping:
                _lost(feed, gathered)
                raise Stopped from error
        else:
            for one in gathered:
                for done in one.done:
                    done()
            return


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
