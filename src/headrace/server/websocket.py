"""Streams over WebSocket: each message is `{"id", "event", "data"}`; a `heartbeat` every five seconds of silence."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.websockets import WebSocket, WebSocketDisconnect

from headrace.deliver.base import FeedEvent
from headrace.server.pump import Pump, message
from headrace.server.services import Services

ALIVE = FeedEvent("heartbeat", {})
GOING_AWAY = 1001


async def stream(events: AsyncIterator[FeedEvent], websocket: WebSocket, services: Services, kind: str) -> None:
    pump = Pump(events, services, kind)
    await websocket.accept()

    async def write(batch: list[FeedEvent]) -> None:
        for event in batch or [ALIVE]:
            await websocket.send_text(message(event).decode())

    with services.metrics.client(kind), contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await pump.run(write, _gone(websocket))
        await websocket.close(GOING_AWAY if services.stopping.is_set() else 1000)


async def _gone(websocket: WebSocket) -> None:
    """What the client says is of no interest, only that it is there."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
