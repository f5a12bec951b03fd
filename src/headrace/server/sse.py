"""Streams over HTTP: server-sent events, or one JSON object a line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractContextManager

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.deliver.base import FeedEvent
from headrace.server.endpoint import EVENT_STREAM, NDJSON
from headrace.server.pump import Encode, Pump, line, sse
from headrace.server.services import Services

PIECE = 64 * 1024


class EventStream(Response):
    """Sends what the pump gives until it ends or the client goes away."""

    def __init__(
        self,
        pump: Pump,
        client: AbstractContextManager[None],
        media_type: str,
        encode: Encode,
        alive: bytes,
        first: bytes | None = None,
    ) -> None:
        super().__init__(media_type=media_type)
        # A proxy must neither keep nor gather what is live.
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"
        self._client = client
        self._pump, self._encode, self._alive = pump, encode, alive
        self._first = alive if first is None else first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]

        with self._client:
            await self._send(headers, scope, receive, send)

    async def _send(self, headers: list[tuple[bytes, bytes]], scope: Scope, receive: Receive, send: Send) -> None:
        async def write(events: list[FeedEvent]) -> None:
            for piece in pieces(map(self._encode, events)):
                await send({"type": "http.response.body", "body": piece or self._alive, "more_body": True})
                self._pump.taken()

        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # Sent at once: the client knows that it is connected before the first event comes.
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        await self._pump.run(write, gone(receive), scope)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def pieces(encoded: Iterable[bytes]) -> Iterator[bytes]:
    """Events together, but not more at once than a slow client takes within a while. One piece of nothing if there are
    none.

    >>> [len(piece) for piece in pieces([b"a" * 100, b"b" * PIECE, b"c"])]
    [65636, 1]
    """
    found: list[bytes] = []
    size = 0
    for one in encoded:
        found.append(one)
        size += len(one)
        if size >= PIECE:
            yield b"".join(found)
            found, size = [], 0
    if found or not size:
        yield b"".join(found)


async def gone(receive: Receive) -> None:
    """Returns when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        # What is left of the request's body; some servers repeat its end.
        await asyncio.sleep(0)


def stream(events: AsyncIterator[FeedEvent], request: Request, services: Services, kind: str) -> Response:
    """Return the answer that streams `events`. `Overloaded` if there are too many subscribers."""
    services.subscribers.check(request)
    pump, client = Pump(events, services, kind), services.subscribers.client(request, kind)
    if NDJSON in request.headers.get("accept", ""):
        return EventStream(pump, client, NDJSON, line, b"\n")
    return EventStream(pump, client, EVENT_STREAM, sse, b":\n\n")
