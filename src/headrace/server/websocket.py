"""Streams over WebSocket: each message is `{"id", "event", "data"}`; a `heartbeat` after 15 s of silence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.websockets import WebSocket, WebSocketDisconnect

from headrace.deliver.base import FeedEvent
from headrace.server.pump import CLOSE_S, Pump, cut_off, message, taken_within, too_slow
from headrace.server.services import Services

ALIVE = FeedEvent("heartbeat", {})
NORMAL, GOING_AWAY, TOO_SLOW = 1000, 1001, 1008


async def stream(events: AsyncIterator[FeedEvent], websocket: WebSocket, services: Services, kind: str) -> None:
    pump = Pump(events, services, kind)
    await websocket.accept()

    async def write(batch: list[FeedEvent]) -> None:
        for event in batch or [ALIVE]:
            await websocket.send_text(message(event).decode())
            pump.taken()

    with services.subscribers.client(websocket, kind), contextlib.suppress(WebSocketDisconnect, RuntimeError):
        if not await pump.run(write, _gone(websocket), websocket.scope):
            await close(websocket, TOO_SLOW, too_slow())
        else:
            await close(websocket, GOING_AWAY if services.stopping.is_set() else NORMAL)


async def close(websocket: WebSocket, code: int, reason: str = "") -> None:
    """Nobody may be listening on it: the server would wait for them. A client that does not take even this is cut
    off."""
    closing = asyncio.ensure_future(websocket.close(code, reason))
    if not await taken_within(CLOSE_S, closing):
        await cut_off(websocket.scope, closing)


async def _gone(websocket: WebSocket) -> None:
    """What the client says is of no interest, only that it is there."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
