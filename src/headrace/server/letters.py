"""Dead letters over HTTP: what did not get in, why, and sending it again."""

from __future__ import annotations

import base64
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headrace.access.rights import Resource
from headrace.collect.mending import Letter
from headrace.collect.redrive import Order, Report
from headrace.errors import NotFound
from headrace.log.base import TIME
from headrace.server.endpoint import Endpoint
from headrace.server.errors import json_response
from headrace.server.models.letters import DeadLetterModel, DeadLetters, Redriven, RedriveRequest, RedriveSample
from headrace.server.parameters import body_of, integer
from headrace.server.services import Services
from headrace.server.topics import LIMIT, MAX_EVENTS
from headrace.server.touched import by_handler, topic_of_path


async def list_dead_letters(request: Request, services: Services) -> Response:
    topic = services.log.topic(request.path_params["topic"])
    limit = integer(request, "limit", 50, 0, MAX_EVENTS)
    rows = await services.run(services.dead_letters.newest, topic.name, limit)
    total = (await services.run(services.dead_letters.counts))[topic.name]
    return json_response(DeadLetters([_of_row(row) for row in rows], total))


async def show_dead_letter(request: Request, services: Services) -> Response:
    offset: str = request.path_params["offset"]
    known = offset.isascii() and offset.isdigit() and len(offset) < 19
    row = await services.run(services.dead_letters.letter, int(offset)) if known else None
    if row is None:
        raise NotFound(f"there is no dead letter `{offset[:40]}`", hint="headrace dlq list shows the newest")
    services.auth.check_each(request, "read", [Resource("topic", str(row["TOPIC"]))])
    return json_response(_of_row(row))


async def redrive(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, RedriveRequest)
    order = Order(
        request.path_params["topic"],
        wanted.where,
        wanted.values,
        wanted.preview,
        wanted.limit,
        services.auth.caller(request, ""),
    )
    report = await services.run(services.redriver.redrive, order, services.catalog.functions())
    return json_response(_redriven(order, report))


def _redriven(order: Order, report: Report) -> Redriven:
    samples = [
        RedriveSample(
            _of_letter(order.topic, one.letter, one.outcome != "rejected" and not order.preview),
            None if one.event is None else one.event.decode("utf-8", "replace"),
            one.outcome,
            one.reason,
        )
        for one in report.samples
    ]
    return Redriven(report.matched, report.accepted, report.duplicates, report.rejected, samples)


def _of_letter(topic: str, letter: Letter, sent: bool) -> DeadLetterModel:
    return DeadLetterModel(
        offset=letter.offset,
        time_ms=letter.time_ms,
        topic=topic,
        reason=letter.reason,
        source=letter.source,
        id=letter.event_id,
        bytes=base64.b64encode(letter.payload).decode("ascii"),
        text=_text(letter.payload),
        attempts=letter.attempts,
        redriven=sent,
    )


def _of_row(row: dict[str, Any]) -> DeadLetterModel:
    place, payload = (row["offset"], row[TIME]), row["PAYLOAD"] or b""
    letter = Letter(*place, row["REASON"], row["SOURCE"], row["EVENT_ID"], payload, row["attempts"])
    return _of_letter(row["TOPIC"], letter, row["redriven"])


def _text(payload: bytes) -> str | None:
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError:
        return None


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/topics/{topic}/dead-letters",
        handler=list_dead_letters,
        touches=topic_of_path,
        summary="Events that did not fit the topic, and messages that a queue gave up, newest first",
        answers={200: DeadLetters},
        parameters=(LIMIT,),
    ),
    Endpoint(
        method="POST",
        path="/v1/topics/{topic}/dead-letters/redrive",
        handler=redrive,
        touches=topic_of_path,
        summary="Send dead letters again, mended, under their own ids; or look at what that would do",
        role="write",
        body=RedriveRequest,
        answers={200: Redriven},
    ),
    Endpoint(
        method="GET",
        path="/v1/dead-letters/{offset}",
        handler=show_dead_letter,
        touches=by_handler,
        summary="One dead letter",
        answers={200: DeadLetterModel},
    ),
)
