"""Events that come over a connection that stays: collected as those of a request are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec
from starlette.requests import HTTPConnection

from headrace.collect.base import Outcome, RawEvents
from headrace.log.base import Acks
from headrace.server import visits
from headrace.server.events import INLINE_BYTES, arrival, events_answer
from headrace.server.included import token_of_outcome
from headrace.server.services import Services


async def publish(
    services: Services, connection: HTTPConnection, topic: str, body: bytes, acks: Acks, key: str | None
) -> Awaitable[dict[str, Any]]:
    """Hand over; what is returned is done when they are acknowledged."""
    name = services.log.topic(topic).name
    gate = services.gates.for_topic(name)
    tenant = services.auth.caller(connection, "") if gate is not None and gate.has_quota else ""
    arrived = arrival(connection, len(body), tenant, visits.current(connection, services))
    raw = RawEvents(name, body, "json", f"socket {arrived.address}".rstrip(), idempotency_key=key, acks=acks)

    def take() -> Any:
        return services.gates.collect(raw, arrived)

    taken = take() if len(body) <= INLINE_BYTES else await services.run(take)
    return _answer(services, name, asyncio.wrap_future(taken))


async def _answer(services: Services, topic: str, taken: asyncio.Future[Outcome]) -> dict[str, Any]:
    outcome = await taken
    services.metrics.collected(topic, outcome)
    answer: dict[str, Any] = msgspec.to_builtins(events_answer(outcome, token_of_outcome(services.log, topic, outcome)))
    return answer
