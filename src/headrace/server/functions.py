"""Functions on topics: how they are, and what one would do with some records."""

from __future__ import annotations

import base64
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.attached_worker import AttachedStatus
from headrace.errors import NotFound
from headrace.functions.batches import Made, Rejected
from headrace.server.endpoint import Endpoint
from headrace.server.errors import json_response
from headrace.server.models.base import Model
from headrace.server.parameters import body_of
from headrace.server.services import Services

MOST_TRIED = 1000


class FunctionModel(Model, frozen=True):
    status: AttachedStatus
    lag: int
    """Records it has yet to read."""
    rate: float
    """Records per second."""


class Functions(Model, frozen=True):
    functions: list[FunctionModel]


class TryFunction(Model, frozen=True):
    limit: int = 10
    oldest: bool = False
    """Begin with the oldest records, not with the newest."""


class TriedRecord(Model, frozen=True):
    key: str | None
    text: str | None
    base64: str
    """The bytes, whether they are text or not."""


class FailedRecord(Model, frozen=True):
    partition: int
    offset: int
    error: str


class TriedFunction(Model, frozen=True):
    made: list[TriedRecord]
    failed: list[FailedRecord]


async def list_functions(request: Request, services: Services) -> Response:
    def describe() -> Functions:
        rates = services.rates
        return Functions(
            [
                FunctionModel(one, _lag(services, one.name), rates.of("function", one.name))
                for one in services.attached.statuses()
            ]
        )

    return json_response(await services.run(describe))


def _lag(services: Services, name: str) -> int:
    try:
        return services.log.group(f"function-{name}").lag
    except NotFound:
        return 0


async def try_function(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, TryFunction)
    limit = max(1, min(wanted.limit, MOST_TRIED))
    name = request.path_params["function"]
    made, failed = await services.run(services.attached.attempt, name, limit, wanted.oldest)
    return json_response(TriedFunction([_made(one) for one in made], [_failed(one) for one in failed]))


def _made(made: Made) -> TriedRecord:
    key, value, _ = made
    return TriedRecord(_text(key), _text(value), base64.b64encode(value or b"").decode())


def _failed(one: Rejected) -> FailedRecord:
    return FailedRecord(one.sent[0], one.sent[1], one.reason)


def _text(value: bytes | None) -> Any:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/functions",
        handler=list_functions,
        summary="The functions that are called with a topic's records",
        answers={200: Functions},
    ),
    Endpoint(
        method="POST",
        path="/v1/functions/{function}/try",
        handler=try_function,
        summary="Call a function with some of its topic's records, and write nothing",
        role="admin",
        body=TryFunction,
        answers={200: TriedFunction},
    ),
)
