"""While Kafka is away: a server that says so, and looks again with growing pauses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headrace.errors import NotRunning
from headrace.server.errors import error_response, json_response
from headrace.server.models.overview import Health, Ready

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
STOP_S = 5.0

logger = logging.getLogger("headrace.server")

Look = Callable[[], bool]
Serve = Callable[[ASGIApp], tuple[Awaitable[None], Callable[[], None]]]
"""Serve an application: what runs it, and what stops that."""


def waiting_app(name: str) -> ASGIApp:
    """`/healthz` and `/readyz` as ever; everything else is refused with the reason."""

    async def answer(request: Request) -> Response:
        match request.url.path:
            case "/healthz":
                return json_response(Health("ok"))
            case "/readyz":
                return json_response(Ready([name], []), 503)
            case _:
                missing = NotRunning(
                    f"{name} does not answer", hint="it is tried again; see [log.kafka] in headrace.toml"
                )
                return error_response(missing)

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return Starlette(routes=[Route("/{path:path}", answer, methods=methods)])


async def wait_until_there(name: str, look: Look, serve: Serve, stop: asyncio.Event) -> bool:
    """False if it was told to stop before `look` found what it waits for."""
    if await asyncio.to_thread(look):
        return True
    logger.warning("%s does not answer; trying again", name)
    running, end = serve(waiting_app(name))
    serving = asyncio.ensure_future(running)
    try:
        pause = FIRST_PAUSE_S
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stop.wait()
            if not stop.is_set() and await asyncio.to_thread(look):
                logger.info("%s answers", name)
                return True
            pause = min(LONGEST_PAUSE_S, pause * 2)
        return False
    finally:
        end()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(STOP_S):
                await serving
