"""The ASGI application, made of the endpoints' table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.coordinate.describe import check_unused
from headrace.log.codecs.json_encode import to_json
from headrace.server import (
    alerts,
    care_jobs,
    collectors,
    console,
    deliveries,
    deployments,
    differences,
    events,
    functions,
    groups,
    health,
    jobs,
    kinesis,
    letters,
    overview,
    partitions,
    queries,
    query,
    queues,
    records,
    registry,
    registry_settings,
    requests,
    socket,
    statements,
    tickets,
    topics,
    trust,
    versions,
    views,
    visits,
    why,
)
from headrace.server.endpoint import Endpoint, routes_of
from headrace.server.errors import JSON, http_exception, unexpected
from headrace.server.ksql import endpoints as ksql
from headrace.server.ksql.queries import OpenQueries
from headrace.server.metrics import State
from headrace.server.missing import Paths
from headrace.server.openapi import describe
from headrace.server.overview import Glance
from headrace.server.protocols import endpoints as protocols
from headrace.server.query import Plans
from headrace.server.services import Services
from headrace.server.transients import PushQueries


async def openapi(request: Request, services: Services) -> Response:
    return Response(request.app.state.openapi, media_type=JSON)


API: tuple[Endpoint, ...] = (
    *events.ENDPOINTS,
    *collectors.ENDPOINTS,
    *tickets.ENDPOINTS,
    *socket.ENDPOINTS,
    *visits.ENDPOINTS,
    *topics.ENDPOINTS,
    *letters.ENDPOINTS,
    *partitions.ENDPOINTS,
    *records.ENDPOINTS,
    *groups.ENDPOINTS,
    *queues.ENDPOINTS,
    *requests.ENDPOINTS,
    *statements.ENDPOINTS,
    *query.ENDPOINTS,
    *queries.ENDPOINTS,
    *views.ENDPOINTS,
    *deployments.ENDPOINTS,
    *versions.ENDPOINTS,
    *differences.ENDPOINTS,
    *why.ENDPOINTS,
    *trust.ENDPOINTS,
    *care_jobs.ENDPOINTS,
    *jobs.ENDPOINTS,
    *alerts.ENDPOINTS,
    *deliveries.ENDPOINTS,
    *functions.ENDPOINTS,
    *kinesis.ENDPOINTS,
    *registry.ENDPOINTS,
    *registry_settings.ENDPOINTS,
    *overview.ENDPOINTS,
    *health.ENDPOINTS,
    *ksql.ENDPOINTS,
    *protocols.ENDPOINTS,
    Endpoint(
        method="GET",
        path="/openapi.json",
        handler=openapi,
        summary="This description, as OpenAPI 3.1",
        answers={200: ("application/json",)},
    ),
)

# The console answers every path nobody else does, so it comes last.
ENDPOINTS = (*API, *console.ENDPOINTS)


def create_app(services: Services) -> ASGIApp:
    app = Starlette(
        routes=[
            *(route for endpoint in ENDPOINTS for route in routes_of(endpoint, services)),
            Route("/{path:path}", _nobody, methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]),
        ],
        exception_handlers={HTTPException: http_exception, Exception: unexpected},
        lifespan=_lifespan,
    )
    app.state.openapi = to_json(describe(ENDPOINTS))
    app.state.paths = Paths(API)
    app.state.glance = Glance(services)
    app.state.kinesis = kinesis.open_account(
        services, lambda topic: check_unused(topic, services.catalog, services.queues)
    )
    app.state.plans = Plans(services.catalog)
    app.state.push_queries = PushQueries(services)
    app.state.open_queries = OpenQueries()
    services.metrics.registry.register(State(services))
    return _Safe(app, services.project.folder)


async def _nobody(request: Request) -> Response:
    raise request.app.state.paths.refusal(request.url.path)


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    # What lives as long as the server is made and closed by `main`, in an order that matters.
    yield


class _Safe:
    """Adds to every answer that its type is not to be guessed, and takes the project's folder out of the files that
    errors name: where it is on the machine is nobody else's business."""

    def __init__(self, app: ASGIApp, folder: Path) -> None:
        self._app = app
        # As it is written in JSON. The root of the machine is no folder to hide.
        self._folder = b"" if folder == folder.parent else to_json(f"{folder}/")[1:-1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held: list[Message] = []

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-content-type-options", b"nosniff")]
                if message["status"] >= 400 and self._folder:
                    # Its length is only known with the body.
                    held.append(message)
                    return
            elif held:
                await send(self._without_folder(held.pop(), message))
            await send(message)

        await self._app(scope, receive, safely if scope["type"] == "http" else send)

    def _without_folder(self, start: Message, body: Message) -> Message:
        text: bytes = body.get("body", b"")
        if not body.get("more_body") and self._folder in text:
            body["body"] = text = text.replace(self._folder, b"")
            kept = [(name, value) for name, value in start["headers"] if name != b"content-length"]
            start["headers"] = [*kept, (b"content-length", str(len(text)).encode())]
        return start
