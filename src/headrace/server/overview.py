"""The whole pipeline at a glance, once or live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.deliver.base import FeedEvent
from headrace.server.endpoint import EVENT_STREAM, NDJSON, Endpoint
from headrace.server.errors import json_response
from headrace.server.models.overview import Overview, RatesHistory
from headrace.server.services import Services
from headrace.server.sse import stream
from headrace.server.topology import overview

LIVE_S = 1.0


class Glance:
    """The newest overview, drawn at most once a second however many look at it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = asyncio.Lock()
        self._drawn: Overview | None = None
        self._at = float("-inf")

    async def now(self) -> Overview:
        async with self._lock:
            age = self._services.clock.monotonic() - self._at
            if self._drawn is None or age >= LIVE_S * 0.9:
                self._drawn = await self._services.run(overview, self._services)
                self._at = self._services.clock.monotonic()
            return self._drawn


async def show_overview(request: Request, services: Services) -> Response:
    return json_response(await services.run(overview, services))


async def rates_history(request: Request, services: Services) -> Response:
    return json_response(services.history.rates())


async def live_overview(request: Request, services: Services) -> Response:
    return stream(_live(request.app.state.glance), request, services, "overview")


async def _live(glance: Glance) -> AsyncIterator[FeedEvent]:
    while True:
        yield FeedEvent("overview", msgspec.to_builtins(await glance.now()))
        await asyncio.sleep(LIVE_S)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/overview",
        handler=show_overview,
        summary="The topology with rates and states",
        answers={200: Overview},
    ),
    Endpoint(
        method="GET",
        path="/v1/overview/history",
        handler=rates_history,
        summary="The rates of the last ten minutes, every two seconds",
        answers={200: RatesHistory},
    ),
    Endpoint(
        method="GET",
        path="/v1/overview/live",
        handler=live_overview,
        summary="The same once a second",
        answers={200: (EVENT_STREAM, NDJSON)},
    ),
)
