"""Queues over HTTP: receivers compete for messages and settle them one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from headrace.access.rights import Resource
from headrace.coordinate.groups import describe_queue
from headrace.log.codecs.json_encode import to_json
from headrace.log.queues import Message, Queue, QueueDefinition, Settled
from headrace.server.answers import LargeAnswer, json_list
from headrace.server.endpoint import Endpoint, Parameter
from headrace.server.errors import json_response
from headrace.server.long_poll import long_poll
from headrace.server.models.log import (
    AckRequest,
    ExtendRequest,
    MessagesAnswer,
    NackRequest,
    NewQueue,
    QueueModel,
    QueuesAnswer,
    SettledAnswer,
)
from headrace.server.parameters import body_of, integer, number
from headrace.server.records import MAX_BYTES, MAX_PAGE_BYTES, MAX_WAIT_S, WAIT
from headrace.server.services import Services
from headrace.server.touched import by_handler
from headrace.store.base import Position

MAX_MESSAGES = 1000


async def list_queues(request: Request, services: Services) -> Response:
    def describe() -> list[dict[str, Any]]:
        return [describe_queue(queue) for queue in services.queues if services.auth.allows(request, _topic(queue))]

    found = await services.run(describe)
    return json_response({"queues": found})


async def create_queue(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, NewQueue)
    definition = QueueDefinition(**msgspec.structs.asdict(wanted))
    made = await services.run(services.queues.create, definition)
    return json_response(await services.run(describe_queue, made), 201)


async def show_queue(request: Request, services: Services) -> Response:
    return json_response(await services.run(describe_queue, _queue(request, services)))


async def delete_queue(request: Request, services: Services) -> Response:
    await services.run(services.queues.delete, request.path_params["queue"])
    return Response(status_code=204)


async def receive(request: Request, services: Services) -> Response:
    queue = _queue(request, services)
    limit = integer(request, "limit", 1, 1, MAX_MESSAGES)
    lease = number(request, "lease", 0.0, 0.0, 12 * 3600.0) or None
    max_bytes = integer(request, "max_bytes", 4 * 1024 * 1024, 1, MAX_PAGE_BYTES)
    waiting = _Waiting(services, queue)
    messages = await long_poll(
        request,
        services,
        number(request, "wait", 0.0, 0.0, MAX_WAIT_S),
        partial(waiting.attempt, limit, lease, max_bytes),
        waiting.news,
    )
    body = b'{"messages":' + json_list(map(_message, messages)) + b"}"
    return LargeAnswer(body, services.answers)


class _Waiting:
    """Whoever waits for messages is woken by whatever has happened since they last looked."""

    def __init__(self, services: Services, queue: Queue) -> None:
        self._services, self._queue = services, queue
        self._looked, self._settled = 0.0, asyncio.Event()

    async def attempt(self, limit: int, lease: float | None, max_bytes: int) -> list[Message]:
        self._looked = self._services.clock.monotonic()
        self._settled = self._services.bell.listen(self._queue.definition.name)
        return await self._services.run(self._queue.receive, limit, lease, max_bytes)

    async def news(self, seconds: float) -> None:
        """New records, a lease or a delay that ends, or somebody who settles something."""
        queue, tails = self._queue, self._services.delivery.tails
        due = await self._services.run(queue.due_after, self._looked)
        position = Position(0, queue.heads())
        ways = [
            asyncio.ensure_future(tails.wait(queue.definition.topic, position, seconds)),
            asyncio.ensure_future(self._settled.wait()),
        ]
        try:
            timeout = seconds if due is None else due + 0.005
            await asyncio.wait(ways, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()


def _message(message: Message) -> bytes:
    return to_json({"receipt": message.receipt, "deliveries": message.deliveries, "record": message.event})


async def ack(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, AckRequest)
    return await _settle(request, services, lambda queue: queue.ack(wanted.receipts))


async def nack(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, NackRequest)
    return await _settle(request, services, lambda queue: queue.nack(wanted.receipts, wanted.delay_s, wanted.reason))


async def extend(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, ExtendRequest)
    return await _settle(request, services, lambda queue: queue.extend(wanted.receipts, wanted.lease_s))


async def _settle(request: Request, services: Services, settle: Callable[[Queue], Settled]) -> Response:
    queue = _queue(request, services)
    settled = await services.run(settle, queue)
    services.bell.ring(queue.definition.name)
    return json_response(SettledAnswer(settled.done, list(settled.lost)))


def _topic(queue: Queue) -> Resource:
    return Resource("topic", queue.definition.topic)


def topic_of_queue(connection: HTTPConnection, services: Services) -> Iterable[Resource]:
    return (_topic(_queue(connection, services)),)


def _queue(request: HTTPConnection, services: Services) -> Queue:
    return services.queues.queue(request.path_params["queue"])


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/queues",
        handler=list_queues,
        touches=by_handler,
        summary="All queues",
        answers={200: QueuesAnswer},
    ),
    Endpoint(
        method="POST",
        path="/v1/queues",
        handler=create_queue,
        summary="Make a queue over a topic",
        role="admin",
        body=NewQueue,
        answers={201: QueueModel},
    ),
    Endpoint(
        method="GET",
        path="/v1/queues/{queue}",
        handler=show_queue,
        touches=topic_of_queue,
        summary="One queue",
        answers={200: QueueModel},
    ),
    Endpoint(
        method="DELETE",
        path="/v1/queues/{queue}",
        handler=delete_queue,
        summary="Forget a queue; its topic stays",
        role="admin",
        answers={204: None},
    ),
    Endpoint(
        method="POST",
        path="/v1/queues/{queue}/receive",
        handler=receive,
        touches=topic_of_queue,
        summary="Take messages, for the length of a lease",
        role="write",
        answers={200: (MessagesAnswer,)},
        parameters=(
            Parameter("limit", f"how many, at most {MAX_MESSAGES}", {"type": "integer", "default": 1}),
            Parameter("lease", "seconds, instead of the queue's", {"type": "number"}),
            MAX_BYTES,
            WAIT,
        ),
    ),
    Endpoint(
        method="POST",
        path="/v1/queues/{queue}/ack",
        handler=ack,
        touches=topic_of_queue,
        summary="Messages are done",
        role="write",
        body=AckRequest,
        answers={200: SettledAnswer},
    ),
    Endpoint(
        method="POST",
        path="/v1/queues/{queue}/nack",
        handler=nack,
        touches=topic_of_queue,
        summary="Messages could not be done: again, after a delay",
        role="write",
        body=NackRequest,
        answers={200: SettledAnswer},
    ),
    Endpoint(
        method="POST",
        path="/v1/queues/{queue}/extend",
        handler=extend,
        touches=topic_of_queue,
        summary="Keep messages for another lease",
        role="write",
        body=ExtendRequest,
        answers={200: SettledAnswer},
    ),
)
