"""`POST /v1/topics/{topic}/events`: events in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from msgspec import UNSET
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from headrace.collect.base import Form, Outcome, RawEvents
from headrace.collect.gate import Arrival
from headrace.collect.http.bodies import form_of, opened, read_body
from headrace.collect.tickets.records import Wanted
from headrace.collect.visits import Visit
from headrace.errors import UsageError
from headrace.log.base import Acks
from headrace.log.codecs.json_codec import MAX_ID_BYTES
from headrace.server import asking, tickets, visits
from headrace.server.endpoint import NDJSON, Endpoint, Parameter
from headrace.server.errors import json_response
from headrace.server.included import token_of_outcome
from headrace.server.models.events import EventsAnswer, NewRecords, Place, Rejected
from headrace.server.models.tickets import TicketGiven
from headrace.server.parameters import integer
from headrace.server.services import Intake
from headrace.server.touched import topic_of_path

INLINE_BYTES = 16 * 1024
"""Decoding less than this is faster than handing it to another thread."""
STATUS: dict[Acks, int] = {"all": 200, "1": 202, "0": 204}


async def send_events(request: Request, services: Intake) -> Response:
    topic = services.log.topic(request.path_params["topic"])
    form = form_of(request.headers.get("content-type", ""), topic.spec.kind == "raw")
    return await _send(request, services, topic.name, form)


async def send_records(request: Request, services: Intake) -> Response:
    topic = services.log.topic(request.path_params["topic"])
    return await _send(request, services, topic.name, "records")


async def _send(request: Request, services: Intake, name: str, form: Form) -> Response:
    headers = request.headers
    gate = services.gates.for_topic(name)
    raw = RawEvents(
        topic=name,
        body=b"",
        form=form,
        source=f"http {request.client.host}" if request.client else "http",
        key=headers["x-key"].encode("latin-1") if "x-key" in headers else None,
        idempotency_key=_idempotency_key(request),
        acks=_acks(request),
        partition=integer(request, "partition", 0) if "partition" in request.query_params else None,
    )
    question = asking.question_of(request, services)
    with services.budget.share() as share:
        body = await read_body(request.receive, headers.get("content-length"), services.body_limits, share)
        tenant = services.auth.caller(request, "") if gate is not None and gate.has_quota else ""
        visit = visits.of_events(request, services, gate)
        arrived, encoding = arrival(request, len(body), tenant, visit), headers.get("content-encoding", "")
        if tickets.is_wanted(request, services, gate):
            tickets.check_private(gate)
            wanted = tickets.written_down(gate, Wanted(raw, arrived, encoding))
            return await tickets.give(request, services, wanted, body)
        take = services.collector.collect if gate is None else partial(gate.collect, arrived=arrived)
        outcome = await _collect(services, raw, body, encoding, take)
    services.metrics.collected(name, outcome)
    token = token_of_outcome(services.log, name, outcome)
    if question is not None:
        response = await asking.answer(question, events_answer(outcome, token))
    else:
        response = answer_of(outcome, raw.acks, token)
    if visit is not None and visit.news:
        visits.tell(request, services, response, visit)
    return response


async def _collect(
    services: Intake, raw: RawEvents, body: bytes, encoding: str, collect: Callable[[RawEvents], Future[Outcome]]
) -> Outcome:
    def take() -> Future[Outcome]:
        return collect(opened(raw, body, encoding, services.body_limits.max_bytes))

    inline = len(body) <= INLINE_BYTES and not encoding
    return await asyncio.wrap_future(take() if inline else await services.run(take))


def arrival(request: HTTPConnection, size: int, key: str = "", visit: Visit | None = None) -> Arrival:
    """How a request's events came."""
    return Arrival(
        address=request.client.host if request.client else "",
        forwarded=request.headers.get("x-forwarded-for", ""),
        user_agent=request.headers.get("user-agent", ""),
        key=key,
        size=size,
        idempotency_key=_idempotency_key(request),
        visitor="" if visit is None else visit.visitor,
        session="" if visit is None else visit.session,
    )


def _acks(request: Request) -> Acks:
    match request.query_params.get("acks", "all"):
        case "0":
            return "0"
        case "1":
            return "1"
        case "all" | "-1":
            return "all"
        case other:
            raise UsageError(f"`acks` must be 0, 1 or all, got `{other[:40]}`")


def _idempotency_key(request: HTTPConnection) -> str | None:
    key = request.headers.get("idempotency-key")
    # Room for the event's number behind it.
    if key is not None and not 0 < len(key) <= MAX_ID_BYTES // 2:
        raise UsageError(f"an Idempotency-Key has 1 to {MAX_ID_BYTES // 2} characters")
    return key


def answer_of(outcome: Outcome, acks: Acks = "all", token: str | None = None) -> Response:
    if acks == "0":
        return Response(status_code=204)
    all_rejected = outcome.rejected and not outcome.accepted and not outcome.duplicates
    status = 422 if all_rejected else 202 if outcome.buffered else STATUS[acks]
    return json_response(events_answer(outcome, token), status)


def events_answer(outcome: Outcome, token: str | None = None) -> EventsAnswer:
    place = outcome.positions[-1] if outcome.positions else None
    return EventsAnswer(
        accepted=outcome.accepted,
        duplicates=outcome.duplicates,
        rejected=[Rejected(each.index, each.reason, each.dead_letter) for each in outcome.rejected],
        position=Place(place[0], place[2]) if place else None,
        positions=list(outcome.positions),
        shed=outcome.shed or UNSET,
        buffered=outcome.buffered or UNSET,
        token=token,
    )


HOW = (
    Parameter("acks", "0: do not wait; 1: taken; all: durable", {"enum": ["0", "1", "all"], "default": "all"}),
    Parameter("partition", "where to put them, instead of by key", {"type": "integer", "minimum": 0}),
    Parameter("Idempotency-Key", "gives event i the id KEY/i: sent again, it is taken once", where="header"),
    Parameter("Content-Encoding", "gzip or zstd", {"enum": ["gzip", "zstd"]}, where="header"),
    *tickets.PARAMETERS,
    *asking.PARAMETERS,
    visits.PARAMETER,
)
ANSWERS = {200: EventsAnswer, 202: (EventsAnswer, TicketGiven), 204: None, 422: EventsAnswer}

ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/topics/{topic}/events",
        handler=send_events,
        touches=topic_of_path,
        summary="Send one event, an array of them, or one per line",
        role="write",
        body=("application/json", NDJSON, "application/octet-stream"),
        answers=ANSWERS,
        parameters=(*HOW, Parameter("X-Key", "the key of a raw record", where="header")),
    ),
    Endpoint(
        method="POST",
        path="/v1/topics/{topic}/records",
        handler=send_records,
        touches=topic_of_path,
        summary="Send records with keys, headers, times and partitions of their own; a null value is a tombstone",
        role="write",
        body=NewRecords,
        answers=ANSWERS,
        parameters=HOW,
    ),
)
