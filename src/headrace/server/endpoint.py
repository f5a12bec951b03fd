"""One entry per method and path: what serves it, who may call it, what goes in and out. Routes and OpenAPI are made
from it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from headrace.access.rights import Resource, Role
from headrace.collect.http.bodies import ClientGone, Incoming
from headrace.server.auth import Touched, hide_names, require_json
from headrace.server.errors import error_response, http_exception
from headrace.server.models.base import ErrorAnswer
from headrace.server.services import Services

Handler = Callable[[Request, Services], Awaitable[Response]]
WebSocketHandler = Callable[[WebSocket, Services], Awaitable[None]]
Touches = Callable[[HTTPConnection, Any], Iterable[Resource | None]]
"""Finds the topics and views of a request, by its address and the server's `Services` or `Intake`."""

EVENT_STREAM, NDJSON, TEXT, HTML = "text/event-stream", "application/x-ndjson", "text/plain", "text/html"


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    where: Literal["query", "header"] = "query"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    path: str
    handler: Handler
    summary: str
    answers: Mapping[int, Any]
    """Status → the model it answers with, or media types, or several of these as a tuple; None for no body."""
    role: Role | None = "read"
    """What a caller needs; None is for what anybody may."""
    checks: Literal["route", "handler", "signature", "collector"] = "route"
    """Who checks it: the route; the handler, whose refusals have a form of their own, by the same keys or by AWS's
    signature; or the collector, which may have keys of its own."""
    body: Any = None
    """The model of a JSON body, or the media types of another one."""
    parameters: tuple[Parameter, ...] = ()
    errors: Callable[[Exception], Response] = error_response
    error_model: Any = ErrorAnswer
    """For an API whose errors have a shape of their own."""
    media_type: str = "application/json"
    """Of its JSON answers."""
    websocket: WebSocketHandler | None = None
    """Serves the same path when the request upgrades."""
    operation: str = ""
    """Its name in the description, where one handler serves several paths."""
    changes: bool = False
    """Whether it may change definitions although its role does not say so, because what is sent decides."""

    touches: Touches | None = None
    """What it reads or writes: a key with scopes may call it for its own topics and views. None: such keys may not."""

    @property
    def name(self) -> str:
        return self.operation or self.handler.__name__

    @property
    def needs_json(self) -> bool:
        """Whether a body is only read if its type says JSON. Events are not meant: `curl -d` sends those as a form."""
        return (self.changes or self.role == "admin") and isinstance(self.body, type) and self.checks == "route"


def routes_of(endpoint: Endpoint, services: Services) -> list[BaseRoute]:
    routes: list[BaseRoute] = [Route(endpoint.path, _http(endpoint, services), methods=[endpoint.method])]
    if endpoint.websocket is not None:
        routes.append(WebSocketRoute(endpoint.path, _websocket(endpoint, endpoint.websocket, services)))
    return routes


def _http(endpoint: Endpoint, services: Services) -> Callable[[Request], Awaitable[Response]]:
    observe = services.metrics.requests(endpoint.method, endpoint.path)
    role = endpoint.role if endpoint.checks == "route" else None
    touched = _touched(endpoint, services)

    async def serve(request: Request) -> Response:
        started = time.perf_counter()
        incoming = Incoming(request.receive)
        request = Request(request.scope, incoming)
        try:
            services.auth.check(request, role, touched)
            if endpoint.needs_json:
                require_json(request)
            response = await endpoint.handler(request, services)
        except ClientGone:
            # Nobody reads this; 499 is what others call it in their logs.
            response = Response(status_code=499)
        except HTTPException as error:
            response = await http_exception(request, error)
        except Exception as error:
            response = endpoint.errors(hide_names(request, error))
        if response.status_code >= 400 and endpoint.method in ("POST", "PUT") and "expect" not in request.headers:
            await incoming.drain()
        observe(response.status_code, time.perf_counter() - started)
        services.audit.note(request, response.status_code)
        return response

    return serve


def _touched(endpoint: Endpoint, services: Services) -> Touched | None:
    touches = endpoint.touches
    return None if touches is None else lambda connection: touches(connection, services)


def _websocket(
    endpoint: Endpoint, handler: WebSocketHandler, services: Services
) -> Callable[[WebSocket], Awaitable[None]]:
    touched = _touched(endpoint, services)

    async def serve(websocket: WebSocket) -> None:
        try:
            services.auth.check(websocket, endpoint.role, touched)
            services.subscribers.check(websocket)
        except Exception as error:
            response = error_response(error)
            services.audit.note(websocket, response.status_code)
            await websocket.send_denial_response(response)
            return
        await handler(websocket, services)

    return serve
