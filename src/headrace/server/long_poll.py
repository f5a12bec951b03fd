"""Waiting for something to answer with, as long as the client waits and the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.requests import Request

from headrace.collect.http.bodies import ClientGone
from headrace.server.services import Services
from headrace.server.sse import gone

T = TypeVar("T")


async def long_poll(
    request: Request,
    services: Services,
    seconds: float,
    attempt: Callable[[], Awaitable[T]],
    news: Callable[[float], Awaitable[object]],
    has_something: Callable[[T], bool] = bool,
) -> T:
    """What `attempt` gives as soon as that is something, or whatever it gives when `seconds` have passed.
    `news` returns, within the seconds it is given, when another attempt is worth while. A client that has gone away is
    not answered, and nothing is taken for it."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    leaving = asyncio.ensure_future(gone(request.receive))
    stopping = asyncio.ensure_future(services.stopping.wait())
    try:
        while True:
            found = await attempt()
            left = end - loop.time()
            if has_something(found) or left <= 0 or stopping.done():
                return found
            waiting = asyncio.ensure_future(news(left))
            try:
                await asyncio.wait((waiting, leaving, stopping), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
            if leaving.done():
                raise ClientGone
    finally:
        leaving.cancel()
        stopping.cancel()
