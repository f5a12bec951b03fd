"""`/v1/visit`: who calls, and since when; and the same for events that come with it."""

from __future__ import annotations

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from headrace.collect.gate import Gate
from headrace.collect.visits import MAX_TOKEN, Visit
from headrace.server.endpoint import Endpoint, Parameter
from headrace.server.errors import json_response
from headrace.server.models.collect import VisitModel
from headrace.server.services import Intake

HEADER, COOKIE = "x-headrace-visit", "headrace_visit"
PARAMETER = Parameter("X-Headrace-Visit", "the token of a visit, where cookies are not kept", where="header")


def token_of(connection: HTTPConnection) -> str:
    """What the caller brings; the header before the cookie."""
    if HEADER not in connection.headers and "cookie" not in connection.headers:
        return ""
    return (connection.headers.get(HEADER) or connection.cookies.get(COOKIE, ""))[: MAX_TOKEN + 1]


async def show_visit(request: Request, services: Intake) -> Response:
    if not any(_wants_visits(gate) for gate in services.gates.all()):
        # Where no collector takes visitors in, there is nobody to be asked by strangers.
        services.auth.check(request, "read")
    visit = services.visits.call(token_of(request), services.clock.now_ms())
    token = services.visits.token(visit)
    begun = visit.news in ("visitor", "session")
    response = json_response(VisitModel(visit.visitor, visit.session, visit.news == "visitor", begun, token))
    response.headers["cache-control"] = "no-store"
    tell(request, services, response, visit)
    return response


def tell(request: Request, services: Intake, response: Response, visit: Visit) -> None:
    """Give the caller what the next call is to carry."""
    token = services.visits.token(visit)
    response.headers[HEADER] = token
    days = services.project.settings.collect.visitor_days
    secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "") == "https"
    response.set_cookie(COOKIE, token, int(days * 86_400), path="/", httponly=True, samesite="lax", secure=secure)


def of_events(request: Request, services: Intake, gate: Gate | None) -> Visit | None:
    """The visit that events belong to, begun with them if need be, where their collector wants to know."""
    if gate is None or not _wants_visits(gate):
        return None
    return services.visits.call(token_of(request), services.clock.now_ms())


def _wants_visits(gate: Gate) -> bool:
    return bool(gate.settings.enrich.visitor or gate.settings.enrich.session)


def current(connection: HTTPConnection, services: Intake) -> Visit | None:
    """The visit of events whose answer cannot carry another: without a session if that is over."""
    token = token_of(connection)
    visit = services.visits.read(token) if token else None
    if visit is None or services.visits.goes_on(visit, services.clock.now_ms()):
        return visit
    return Visit(visit.visitor, "", visit.seen_ms)


async def begin_visit(request: Request, services: Intake) -> Response:
    """The same for pages that may not be fetched ahead of time."""
    return await show_visit(request, services)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/visit",
        handler=show_visit,
        summary="Begin or continue a visit: ids of visitor and session, as cookie and token",
        checks="collector",
        answers={200: VisitModel},
        parameters=(PARAMETER,),
    ),
    Endpoint(
        method="POST",
        path="/v1/visit",
        handler=begin_visit,
        summary="The same, for what must not be cached or fetched ahead",
        checks="collector",
        answers={200: VisitModel},
        parameters=(PARAMETER,),
    ),
)
