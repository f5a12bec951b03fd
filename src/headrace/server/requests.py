"""`POST /v1/requests/{topic}`: a record sent, and the record that answers it."""

from __future__ import annotations

import asyncio
import uuid

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.access.rights import Resource
from headrace.collect.base import RawEvents
from headrace.errors import DeadlineExceeded, NotFound, UsageError
from headrace.log.base import TopicConfig, TopicSpec
from headrace.log.codecs.json_encode import to_json
from headrace.log.queues import CORRELATION, REPLY_TO
from headrace.server.endpoint import Endpoint, Parameter
from headrace.server.errors import json_response
from headrace.server.events import arrival
from headrace.server.models.log import NewRequest, ReplyAnswer
from headrace.server.parameters import body_of, number
from headrace.server.services import Services
from headrace.server.touched import topic_of_path

REPLIES_KEPT_MS = 3600 * 1000
MAX_TIMEOUT_S = 300.0


async def send_request(request: Request, services: Services) -> Response:
    topic = services.log.topic(request.path_params["topic"]).name
    timeout = number(request, "timeout", 10.0, 0.001, MAX_TIMEOUT_S)
    wanted = await body_of(request, services, NewRequest)
    answered_in = wanted.reply_topic or f"{topic}.replies"
    services.auth.check_each(request, "read", [Resource("topic", answered_in)])
    reply_topic = await services.run(_reply_topic, services, topic, wanted.reply_topic)
    correlation = str((wanted.headers or {}).get(CORRELATION) or uuid.uuid4())
    expected = services.requests.expect(reply_topic, correlation)
    try:
        place = await _send(request, services, topic, wanted, {CORRELATION: correlation, REPLY_TO: reply_topic})
        async with asyncio.timeout(timeout):
            reply = await asyncio.wrap_future(expected)
    except TimeoutError:
        raise DeadlineExceeded(
            f"no reply to `{correlation}` within {timeout:g} s",
            hint=f"the request is in the log; a late reply will be in `{reply_topic}`",
            correlation_id=correlation,
            reply_topic=reply_topic,
        ) from None
    finally:
        expected.cancel()
    body = {"correlation_id": correlation, "reply_topic": reply_topic, "request": place, "reply": reply}
    return json_response(body)


def _reply_topic(services: Services, topic: str, named: str | None) -> str:
    """The one that is named, or the topic's own, made when it is first needed. It takes any JSON."""
    if named is not None:
        return services.log.topic(named).name
    own = f"{topic}.replies"
    try:
        return services.log.topic(own).name
    except NotFound:
        return services.log.create_topic(TopicSpec(own, config=TopicConfig(retention_ms=REPLIES_KEPT_MS))).name


async def _send(
    request: Request, services: Services, topic: str, wanted: NewRequest, headers: dict[str, str]
) -> dict[str, int] | None:
    record = {
        name: value
        for name, value in msgspec.structs.asdict(wanted).items()
        if name in ("key", "value", "partition") and value is not None
    }
    body = to_json({"records": [record | {"headers": {**(wanted.headers or {}), **headers}}]})
    source = f"http {request.client.host}" if request.client else "http"
    raw = RawEvents(topic, body, "records", source)
    collected = await services.run(services.gates.collect, raw, arrival(request, len(body)))
    outcome = await asyncio.wrap_future(collected)
    services.metrics.collected(topic, outcome)
    if outcome.rejected:
        raise UsageError(
            f"the request does not fit topic `{topic}`: {outcome.rejected[0].reason}",
            dead_letter=outcome.rejected[0].dead_letter,
        )
    return {"partition": outcome.positions[-1][0], "offset": outcome.positions[-1][2]} if outcome.positions else None


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/requests/{topic}",
        handler=send_request,
        touches=topic_of_path,
        summary="Send a record and wait for the one that answers it, by correlation id",
        role="write",
        body=NewRequest,
        answers={200: ReplyAnswer},
        parameters=(
            Parameter(
                "timeout", "seconds to wait for the reply", {"type": "number", "default": 10, "maximum": MAX_TIMEOUT_S}
            ),
        ),
    ),
)
