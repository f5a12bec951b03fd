"""From an iterator of events to a client, whatever carries them: gathered while the client is busy, with a sign of life
when there is nothing to say, and an end that says why."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.types import Scope

from headrace.deliver.base import FeedEvent
from headrace.errors import HeadraceError, NotRunning, Overloaded
from headrace.log.codecs.json_encode import to_json
from headrace.server.errors import error_body
from headrace.server.services import Services
from headrace.server.sever import sever

ALIVE_S = 15.0
"""After so much silence a client is sent a sign of life. Clients and proxies take a longer silence for a dead
connection, and a client that vanished without a word is noticed by it."""
SEND_S = 30.0
"""A client that takes nothing for this long is gone, or might as well be."""
CLOSE_S = 5.0
"""How long such a client has to come to the end of what it was sent, and to hear why it ends; then it is cut off."""
ENDS_S = 5.0
GATHER = 500

Encode = Callable[[FeedEvent], bytes]
Send = Callable[[list[FeedEvent]], Awaitable[None]]
_END = object()


def sse(event: FeedEvent) -> bytes:
    """
    >>> sse(FeedEvent("change", {"key": {}}, "1-7"))
    b'id: 1-7\\nevent: change\\ndata: {"key":{}}\\n\\n'
    """
    found = event.forms.get("sse")
    if found is None:
        found = event.forms["sse"] = _sse(event)
    return found


def _sse(event: FeedEvent) -> bytes:
    head = f"id: {event.id}\n" if event.id is not None else ""
    if event.event == "heartbeat":
        # A comment keeps the connection open; the id, where there is one, is what a client continues from.
        return f"{head}:\n\n".encode()
    return f"{head}event: {event.event}\ndata: ".encode() + to_json(event.data) + b"\n\n"


def message(event: FeedEvent) -> bytes:
    """The form for WebSocket and for lines of JSON."""
    found = event.forms.get("message")
    if found is None:
        found = event.forms["message"] = to_json({"id": event.id, "event": event.event, "data": event.data})
    return found


def line(event: FeedEvent) -> bytes:
    found = event.forms.get("line")
    if found is None:
        found = event.forms["line"] = message(event) + b"\n"
    return found


def too_slow() -> str:
    return f"too slow: nothing was taken for {SEND_S:g} s"


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
    nobody else. There may be thousands of pumps, so one costs three tasks and one timer, however much it sends."""

    def __init__(self, events: AsyncIterator[FeedEvent], services: Services, kind: str, gather: int = GATHER) -> None:
        self._events, self._services, self._kind, self._gather = events, services, kind, gather
        self._counter = services.metrics.feed_events.labels(kind)
        self._queue: deque[Any] = deque()
        self._room = asyncio.Event()
        self._news: asyncio.Future[None] | None = None
        """What the sender waits for while it has nothing to send."""
        self._over: asyncio.Future[None] | None = None
        self._progress = 0.0
        """When the client last took something, or was handed something."""
        self._sending = self._alive = self._slow = False
        self._timer: asyncio.TimerHandle | None = None

    def taken(self) -> None:
        """For `send`: the client has taken a piece of what it was handed."""
        self._progress = time.monotonic()

    async def run(self, send: Send, gone: Awaitable[Any], scope: Scope) -> bool:
        """Hand everything to `send`, in order, an empty list after `ALIVE_S` of silence, until the events end, the
        client is gone or the server stops. False if the client took nothing for too long: it was told, or cut off."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        filling, going = loop.create_task(self._fill()), asyncio.ensure_future(gone)
        sending = loop.create_task(self._deliver(send))
        for task in (sending, going):
            task.add_done_callback(self._end)
        self.taken()
        self._watch()
        self._services.stopping.call(self._ring)
        try:
            await self._over
            if not self._slow:
                if sending.done():
                    sending.result()
                return True
            self._services.metrics.feed_cuts.labels("too slow").inc()
            await self._say_why(send, sending, scope)
            return False
        finally:
            self._services.stopping.forget(self._ring)
            if self._timer is not None:
                self._timer.cancel()
            tasks = (filling, sending, going)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close()

    def _end(self, _: object = None) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _watch(self) -> None:
        """Look whether a sign of life is due, or the client takes nothing; then look again when it may be."""
        loop = asyncio.get_running_loop()
        left = self._progress + (SEND_S if self._sending else ALIVE_S) - time.monotonic()
        if left <= 0 and self._sending:
            self._slow = True
            self._end()
            return
        if left <= 0:
            self._alive = True
            self._ring()
            left = ALIVE_S
        # What it waits for may change before that; looking too early does no harm.
        self._timer = loop.call_later(min(left, ALIVE_S, SEND_S), self._watch)

    def _ring(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _say_why(self, send: Send, sending: asyncio.Future[None], scope: Scope) -> None:
        """Tell a slow client why it is cut off. What was half sent can be followed by nothing else."""
        if not await taken_within(CLOSE_S, sending):
            await cut_off(scope, sending)
            return
        last = asyncio.ensure_future(send([_slow(self._kind)]))
        if not await taken_within(CLOSE_S, last):
            await cut_off(scope, last)

    async def _deliver(self, send: Send) -> None:
        """Send what there is, until the events end, the server stops or the client was too slow."""
        stopping = self._services.stopping
        while True:
            batch = await self._next()
            last = batch.pop() if batch and not isinstance(batch[-1], FeedEvent) else None
            if last is None and stopping.is_set():
                last = _stopped(self._kind)
                self._services.metrics.feed_cuts.labels("stopping").inc()
            if isinstance(last, Exception):
                last = FeedEvent("error", {"error": error_body(last)})
            if isinstance(last, FeedEvent):
                batch.append(last)
            if batch or last is None:
                self.taken()
                self._sending = True
                await send(batch)
                self._sending = False
                self.taken()
                self._counter.inc(len(batch))
            if last is not None or self._slow:
                return

    async def _next(self) -> list[Any]:
        """Wait for the first event, then return all that are queued. Empty if a sign of life is due, or at the end."""
        self._alive = False
        while not self._queue and not self._alive and not self._services.stopping.is_set():
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        batch = list(self._queue)
        self._queue.clear()
        self._room.set()
        return batch

    async def _fill(self) -> None:
        last: object = _END
        try:
            async for event in self._events:
                while len(self._queue) >= self._gather:
                    self._room.clear()
                    await self._room.wait()
                self._queue.append(event)
                self._ring()
        except Exception as error:
            last = error
        self._queue.append(last)
        self._ring()

    async def _close(self) -> None:
        aclose = getattr(self._events, "aclose", None)
        if aclose is not None:
            with contextlib.suppress(HeadraceError):
                await aclose()
