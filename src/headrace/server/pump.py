"""From an iterator of events to a client, whatever carries them: gathered while the client is busy, with a sign of life
when there is nothing to say, and an end that says why."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from headrace.deliver.base import FeedEvent
from headrace.errors import HeadraceError
from headrace.log.codecs.json_encode import to_json
from headrace.server.errors import error_body
from headrace.server.services import Services

ALIVE_S = 5.0
SEND_S = 30.0
"""A client that takes nothing for this long is gone, or might as well be."""
GATHER = 500

Encode = Callable[[FeedEvent], bytes]
Ended = tuple[asyncio.Future[Any], asyncio.Future[Any]]
_END = object()


def sse(event: FeedEvent) -> bytes:
    """
    >>> sse(FeedEvent("change", {"key": {}}, "1-7"))
    b'id: 1-7\\nevent: change\\ndata: {"key":{}}\\n\\n'
    """
    head = f"id: {event.id}\n" if event.id is not None else ""
    if event.event == "heartbeat":
        # A comment keeps the connection open; the id, where there is one, is what a client continues from.
        return f"{head}:\n\n".encode()
    return f"{head}event: {event.event}\ndata: ".encode() + to_json(event.data) + b"\n\n"


def message(event: FeedEvent) -> bytes:
    """The form for WebSocket and for lines of JSON."""
    return to_json({"id": event.id, "event": event.event, "data": event.data})


def line(event: FeedEvent) -> bytes:
    return message(event) + b"\n"


def _stopped(kind: str) -> FeedEvent:
    """A query ends; a feed is cut, and continued later."""
    return FeedEvent("end", {"reason": "stopped"}) if kind == "push" else FeedEvent("cut", {"reason": "stopping"})


class Pump:
    """Runs `events` in a task of its own, at most `GATHER` ahead of the client: beyond that the source waits, and
    nobody else."""

    def __init__(self, events: AsyncIterator[FeedEvent], services: Services, kind: str) -> None:
        self._events, self._services, self._kind = events, services, kind
        self._queue: asyncio.Queue[Any] = asyncio.Queue(GATHER)

    async def run(self, send: Callable[[list[FeedEvent]], Awaitable[None]], gone: Awaitable[Any]) -> None:
        """Hand everything to `send`, in order, an empty list every five seconds of silence, until the events end, the
        client is gone or the server stops."""
        filling = asyncio.create_task(self._fill())
        ended: Ended = (asyncio.ensure_future(gone), asyncio.create_task(self._services.stopping.wait()))
        try:
            await self._run(send, ended)
        except TimeoutError:
            self._services.metrics.feed_cuts.labels("too slow").inc()
        finally:
            for task in (*ended, filling):
                task.cancel()
            await asyncio.gather(*ended, filling, return_exceptions=True)
            await self._close()

    async def _run(self, send: Callable[[list[FeedEvent]], Awaitable[None]], ended: Ended) -> None:
        gone, stopping = ended
        while True:
            batch = await self._next(ended)
            if gone.done():
                return
            last = batch.pop() if batch and not isinstance(batch[-1], FeedEvent) else None
            if last is None and stopping.done():
                last = _stopped(self._kind)
                self._services.metrics.feed_cuts.labels("stopping").inc()
            if isinstance(last, Exception):
                last = FeedEvent("error", {"error": error_body(last)})
            if isinstance(last, FeedEvent):
                batch.append(last)
            if batch or last is None:
                async with asyncio.timeout(SEND_S):
                    await send(batch)
                self._services.metrics.feed_events.labels(self._kind).inc(len(batch))
            if last is not None:
                return

    async def _next(self, ended: Ended) -> list[Any]:
        """All that is there; waits for the first. Empty after a while of nothing, or when it is over."""
        if not self._queue.empty():
            batch = [self._queue.get_nowait()]
        else:
            getting = asyncio.ensure_future(self._queue.get())
            await asyncio.wait([getting, *ended], timeout=ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                return []
            batch = [getting.result()]
        while isinstance(batch[-1], FeedEvent) and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    async def _fill(self) -> None:
        try:
            async for event in self._events:
                await self._queue.put(event)
            await self._queue.put(_END)
        except Exception as error:
            await self._queue.put(error)

    async def _close(self) -> None:
        aclose = getattr(self._events, "aclose", None)
        if aclose is not None:
            with contextlib.suppress(HeadraceError):
                await aclose()
