"""Half-asynchronous and asynchronous requests: `202` with a ticket; its result at `/v1/tickets/{ticket}`, as a stream,
or posted to the caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.collect.gate import Gate
from headrace.collect.tickets import records
from headrace.collect.tickets.ledger import Known
from headrace.collect.tickets.tickets import Tickets
from headrace.deliver.base import FeedEvent
from headrace.errors import Refused, UsageError
from headrace.server.endpoint import EVENT_STREAM, NDJSON, Endpoint, Parameter
from headrace.server.errors import json_response
from headrace.server.long_poll import long_poll
from headrace.server.models.events import Rejected
from headrace.server.models.tickets import CallbackModel, TicketGiven, TicketModel, TicketResult
from headrace.server.parameters import choice, number
from headrace.server.services import Intake, Services
from headrace.server.sse import stream

MAX_WAIT_S = 60.0
HEARTBEAT_S = 5.0
CALLBACK = "x-callback-url"
PREFER = "respond-async"

PARAMETERS = (
    Parameter("wait", "result: for the answer; ticket: answer at once, with a ticket", {"enum": ["result", "ticket"]}),
    Parameter("callback", "where to post the result; implies a ticket"),
    Parameter("X-Callback-Url", "the same as `callback`", where="header"),
    Parameter("Prefer", "respond-async is the same as wait=ticket", where="header"),
)


def is_wanted(request: Request, services: Intake, gate: Gate | None) -> bool:
    """What is asked for is given or refused; what is only preferred is given where it can be."""
    asked = choice(request, "wait", "result", "result", "ticket")
    if asked == "ticket" or _callback(request) is not None:
        return True
    possible = services.tickets is not None and services.tickets.possible
    return possible and _prefers(request) and not (gate is not None and gate.settings.privacy.any)


def _prefers(request: Request) -> bool:
    preferences = request.headers.get("prefer", "").replace(";", ",").split(",")
    return PREFER in (preference.strip().lower() for preference in preferences)


def _callback(request: Request) -> str | None:
    return request.query_params.get("callback") or request.headers.get(CALLBACK) or None


def check_private(gate: Gate | None) -> None:
    """A ticket keeps the body as it was sent: not where fields are to be hidden before anything is stored."""
    if gate is not None and gate.settings.privacy.any:
        raise Refused(
            f"collector `{gate.name}` hides fields before anything is stored, which a ticket cannot",
            hint="send without `wait=ticket`",
        )


def written_down(gate: Gate | None, wanted: records.Wanted) -> records.Wanted:
    """What of a request may be kept: no more of its address than the collector tells."""
    if gate is None:
        return wanted
    arrived = gate.written_down(wanted.arrived)
    events = replace(wanted.events, source=f"http {arrived.address}".rstrip())
    return msgspec.structs.replace(wanted, arrived=arrived, events=events)


async def give(request: Request, services: Intake, wanted: records.Wanted, body: bytes) -> Response:
    """Answer with a ticket once the request is durable."""
    if services.tickets is None:
        raise Refused("this port takes events only, and gives no tickets", hint="use the server's own port")
    if wanted.events.acks != "all" or "view" in request.query_params:
        raise UsageError("with a ticket, neither `acks` nor `view` means anything", hint="leave it out")
    wanted = msgspec.structs.replace(wanted, callback=_callback(request))
    ticket = await asyncio.wrap_future(await services.run(services.tickets.take, wanted, body))
    place = f"/v1/tickets/{ticket}"
    headers = {"location": place} | ({"preference-applied": PREFER} if _prefers(request) else {})
    return json_response(TicketGiven(ticket, "waiting", place), 202, headers)


async def show_ticket(request: Request, services: Services) -> Response:
    tickets, ticket = _tickets(services), request.path_params["ticket"]
    await services.run(tickets.ledger.state, ticket)
    if EVENT_STREAM in request.headers.get("accept", ""):
        return stream(_follow(services, tickets, ticket), request, services, "ticket")
    wait = number(request, "wait", 0.0, 0.0, MAX_WAIT_S)

    async def attempt() -> TicketModel:
        return await services.run(_look, tickets, ticket)

    async def news(seconds: float) -> None:
        await _result_of(tickets, ticket, seconds)

    found = await long_poll(request, services, wait, attempt, news, lambda model: model.state != "waiting")
    return json_response(found)


def _tickets(services: Services) -> Tickets:
    if services.tickets is None:
        raise Refused("this server gives no tickets")
    return services.tickets


def _look(tickets: Tickets, ticket: str) -> TicketModel:
    return ticket_model(ticket, *tickets.result(ticket))


async def _result_of(tickets: Tickets, ticket: str, seconds: float) -> None:
    """Until there is a result, or the time has passed."""
    watching = tickets.ledger.watch(ticket)
    try:
        await asyncio.wait([asyncio.wrap_future(watching)], timeout=seconds)
    finally:
        tickets.ledger.unwatch(ticket, watching)


async def _follow(services: Services, tickets: Tickets, ticket: str) -> AsyncIterator[FeedEvent]:
    """`waiting` at once if so, then `done` or `failed`, then the end."""
    found = await services.run(_look, tickets, ticket)
    if found.state == "waiting":
        yield FeedEvent("waiting", msgspec.to_builtins(found), ticket)
    while found.state == "waiting":
        await _result_of(tickets, ticket, HEARTBEAT_S)
        found = await services.run(_look, tickets, ticket)
        if found.state == "waiting":
            yield FeedEvent("heartbeat", {})
    yield FeedEvent(found.state, msgspec.to_builtins(found), ticket)


def ticket_model(ticket: str, known: Known, result: records.Result | None) -> TicketModel:
    taken_at = datetime.fromtimestamp(known.taken_ms / 1000, UTC).isoformat(timespec="milliseconds")
    if known.state == "waiting" or result is None:
        return TicketModel(ticket, "waiting", taken_at, None, None, None)
    callback = None
    if result.callback is not None:
        over = known.state if known.state in ("delivered", "undelivered") else "waiting"
        callback = CallbackModel(result.callback.url, over, result.callback.attempts, result.callback.error)
    if result.error is not None:
        return TicketModel(ticket, "failed", taken_at, None, result.error, callback)
    rejected = [Rejected(one.index, one.reason, one.dead_letter) for one in result.rejected]
    done = TicketResult(
        result.accepted, result.duplicates, result.rejections, rejected, result.positions, result.repeated, result.shed
    )
    return TicketModel(ticket, "done", taken_at, done, None, callback)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/tickets/{ticket}",
        handler=show_ticket,
        summary="What became of a request that was answered with a ticket; as a stream, told when it is known",
        answers={200: (TicketModel, EVENT_STREAM, NDJSON)},
        parameters=(
            Parameter("wait", "seconds to wait for the result (long poll)", {"type": "number", "maximum": MAX_WAIT_S}),
        ),
    ),
)
