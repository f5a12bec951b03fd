"""From an iterator of events to a client, whatever carries them: gathered while the client is busy, with a sign of life
when there is nothing to say, and an end that says why."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.types import Scope

from headrace.deliver.base import FeedEvent
from headrace.errors import HeadraceError, NotRunning, Overloaded
from headrace.log.codecs.json_encode import to_json
from headrace.server.errors import error_body
from headrace.server.services import Services
from headrace.server.sever import sever

ALIVE_S = 5.0
SEND_S = 30.0
"""A client that takes nothing for this long is gone, or might as well be."""
CLOSE_S = 5.0
"""How long such a client has to come to the end of what it was sent, and to hear why it ends; then it is cut off."""
ENDS_S = 5.0
GATHER = 500

Encode = Callable[[FeedEvent], bytes]
Send = Callable[[list[FeedEvent]], Awaitable[None]]
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


def too_slow() -> str:
    return f"too slow: nothing was taken for {SEND_S:g} s"


class _TooSlow(Exception):
    """With what is still being sent: what was half sent can be followed by nothing else."""

    def __init__(self, sending: asyncio.Future[None]) -> None:
        super().__init__(too_slow())
        self.sending = sending


def _slow(kind: str) -> FeedEvent:
    """A query ends with an error, a feed is cut."""
    if kind in ("push", "pull"):
        return FeedEvent("error", {"error": error_body(Overloaded(too_slow()))})
    return FeedEvent("cut", {"reason": too_slow()})


def _stopped(kind: str) -> FeedEvent:
    """A push query ends; a feed is cut, and continued later. A pull query has not come to its end, so it has failed."""
    if kind == "pull":
        return FeedEvent("error", {"error": error_body(NotRunning("the server stops", hint="ask again"))})
    return FeedEvent("end", {"reason": "stopped"}) if kind == "push" else FeedEvent("cut", {"reason": "stopping"})


async def taken_within(seconds: float, sending: asyncio.Future[None]) -> bool:
    """Whether it was sent by then, or failed; it is not given up otherwise."""
    done, _ = await asyncio.wait([sending], timeout=seconds)
    if done and not sending.cancelled():
        sending.exception()
    return bool(done)


async def cut_off(scope: Scope, sending: asyncio.Future[None]) -> None:
    """End a connection on which something is being sent. That must fail before it is given up: whoever sends it is the
    one who notices the end, and lets go of the connection."""
    sever(scope)
    await taken_within(ENDS_S, sending)
    sending.cancel()


class Pump:
    """Runs `events` in a task of its own, at most `gather` ahead of the client: beyond that the source waits, and
    nobody else."""

    def __init__(self, events: AsyncIterator[FeedEvent], services: Services, kind: str, gather: int = GATHER) -> None:
        self._events, self._services, self._kind = events, services, kind
        self._queue: asyncio.Queue[Any] = asyncio.Queue(gather)
        self._taken = 0

    def taken(self) -> None:
        """For `send`: the client has taken a piece of what it was handed."""
        self._taken += 1

    async def run(self, send: Send, gone: Awaitable[Any], scope: Scope) -> bool:
        """Hand everything to `send`, in order, an empty list every five seconds of silence, until the events end, the
        client is gone or the server stops. False if the client took nothing for too long: it was told, or cut off."""
        filling = asyncio.create_task(self._fill())
        ended: Ended = (asyncio.ensure_future(gone), asyncio.create_task(self._services.stopping.wait()))
        try:
            await self._run(send, ended)
            return True
        except _TooSlow as slow:
            self._services.metrics.feed_cuts.labels("too slow").inc()
            await self._say_why(send, slow.sending, scope)
            return False
        finally:
            for task in (*ended, filling):
                task.cancel()
            await asyncio.gather(*ended, filling, return_exceptions=True)
            await self._close()

    async def _say_why(self, send: Send, sending: asyncio.Future[None], scope: Scope) -> None:
        if not await taken_within(CLOSE_S, sending):
            await cut_off(scope, sending)
            return
        last = asyncio.ensure_future(send([_slow(self._kind)]))
        if not await taken_within(CLOSE_S, last):
            await cut_off(scope, last)

    async def _send(self, send: Send, batch: list[FeedEvent]) -> None:
        """However long it takes, as long as some of it is taken."""
        sending = asyncio.ensure_future(send(batch))
        try:
            while not sending.done():
                before = self._taken
                await asyncio.wait([sending], timeout=SEND_S)
                if not sending.done() and self._taken == before:
                    raise _TooSlow(sending)
        except asyncio.CancelledError:
            sending.cancel()
            raise
        sending.result()

    async def _run(self, send: Send, ended: Ended) -> None:
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
                await self._send(send, batch)
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
