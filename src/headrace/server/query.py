"""`POST /v1/query`: a SELECT, answered once (pull) or as a stream (push)."""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from headrace.coordinate.catalog import Catalog
from headrace.deliver.pull import answer_of, pull, pull_rows
from headrace.deliver.tables import stream_bytes, to_table
from headrace.errors import UsageError
from headrace.server.answer_models import answer_model
from headrace.server.answers import LargeAnswer
from headrace.server.endpoint import EVENT_STREAM, NDJSON, Endpoint
from headrace.server.errors import json_response
from headrace.server.included import wait_until_included
from headrace.server.ksql.requests import from_beginning
from headrace.server.models.sql import QueryAnswer, QueryRequest
from headrace.server.parameters import body_of
from headrace.server.questions import ask_engine, is_for_engine
from headrace.server.records import ARROW
from headrace.server.row_answer import stream_answer
from headrace.server.services import Services
from headrace.server.sse import stream
from headrace.server.touched import AllowedSources, by_handler, read_resource
from headrace.sql.api import parse, plan_select
from headrace.sql.ask_plan import AskQuery
from headrace.sql.plan import PullQuery, PushQuery
from headrace.sql.source import Sources
from headrace.sql.statements import SelectStatement

ARROW_ROWS = 1_000_000
"""Most rows of an answer in Arrow's format."""
TRUNCATED = "headrace-truncated"
"""The header that says whether there are more rows, for the format whose body cannot."""

SelectPlan = PullQuery | AskQuery | PushQuery

KEPT_SQL = 4000
"""Nobody asks something longer than this again and again."""


class Plans:
    """Plans of SELECTs, kept as long as the catalog they were made for: dashboards ask the same again and again."""

    def __init__(self, catalog: Catalog, size: int = 512) -> None:
        self._catalog, self._size = catalog, size
        self._events = -1
        self._plans: dict[str, SelectPlan] = {}

    async def plan_for(self, connection: HTTPConnection, sql: str, services: Services) -> SelectPlan:
        """Return the plan for who asks. `Refused` if it reads what they may not."""
        if not services.auth.is_limited(connection):
            return await self.plan(sql, services)
        found: SelectPlan = await services.run(plan_allowed, connection, sql, services)
        return found

    async def plan(self, sql: str, services: Services) -> SelectPlan:
        events = self._catalog.state.events
        if events != self._events or len(self._plans) >= self._size:
            self._events, self._plans = events, {}
        plans = self._plans
        found = plans.get(sql)
        if found is None:
            found = await services.run(plan_one, sql, self._catalog)
            # Into the plans of before: if the catalog changed meanwhile, they are forgotten already.
            if len(sql) <= KEPT_SQL:
                plans[sql] = found
        return found


def plan_allowed(connection: HTTPConnection, sql: str, services: Services) -> SelectPlan:
    """Plan with the streams and tables that a caller may read. `Refused` if it looks up others."""
    plan = plan_one(sql, AllowedSources(services.catalog, services.auth, connection))
    sources = (plan.source,) if isinstance(plan, PullQuery) else plan.inputs
    services.auth.check_each(connection, "read", map(read_resource, sources))
    return plan


def plan_one(sql: str, catalog: Sources) -> SelectPlan:
    statements = parse(sql)
    if len(statements) != 1:
        raise UsageError(f"one SELECT at a time, got {len(statements)} statements")
    [statement] = statements
    if not isinstance(statement, SelectStatement):
        raise UsageError("only a SELECT is a query", hint="other statements:  POST /v1/statements")
    return plan_select(statement, catalog)


async def run_query(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, QueryRequest)
    plan = await request.app.state.plans.plan_for(request, wanted.sql, services)
    after = [wanted.after] if isinstance(wanted.after, str) else wanted.after
    if after and isinstance(plan, PushQuery):
        raise UsageError("a push query cannot wait for what was written", hint="leave out `after`, or EMIT CHANGES")
    if not isinstance(plan, PushQuery):
        if after:
            await wait_until_included(request, services, plan, after, _seconds_to_wait(services, wanted.wait_ms))
        if wanted.stream:
            return await stream_answer(request, services, plan, wanted)
        if isinstance(plan, AskQuery) and await is_for_engine(services, plan):
            return await _from_engine(request, services, plan, wanted)
        if ARROW in request.headers.get("accept", ""):
            return await _arrow(services, plan, wanted)
        return json_response(await pull_plan(services, plan, wanted.sql, wanted.limit, wanted.deadline_ms))
    if wanted.limit is not None:
        plan = replace(plan, limit=wanted.limit if plan.limit is None else min(wanted.limit, plan.limit))
    events = request.app.state.push_queries.listen(plan, wanted.sql, request, from_beginning(wanted.settings))
    return stream(events, request, services, "push")


async def pull_plan(
    services: Services, plan: PullQuery | AskQuery, sql: str, limit: int | None = None, deadline_ms: int | None = None
) -> QueryAnswer:
    server = services.project.settings.server
    seconds = _seconds(services, deadline_ms)
    rows = server.query_rows if limit is None else min(server.query_rows, limit)
    answer = await services.run_query(sql, pull, services.delivery, plan, seconds, rows, server.query_bytes)
    return answer_model(answer, services)


def _seconds_to_wait(services: Services, wait_ms: int | None) -> float:
    return services.project.settings.server.query_seconds if wait_ms is None else wait_ms / 1000


def _seconds(services: Services, deadline_ms: int | None) -> float:
    most = services.project.settings.server.query_seconds
    return most if deadline_ms is None else min(most, deadline_ms / 1000)


async def _arrow(services: Services, plan: PullQuery | AskQuery, wanted: QueryRequest) -> Response:
    """The same as an Arrow stream: more rows fit, and nothing has to be made text."""
    server = services.project.settings.server
    rows = _arrow_rows(services, wanted)

    def answer() -> tuple[bytes, bool]:
        seconds = _seconds(services, wanted.deadline_ms)
        found = pull_rows(services.delivery, plan, seconds, rows, server.query_bytes)
        return stream_bytes(to_table(found.columns, found.rows)), found.truncated

    return _arrow_answer(services, *await services.run_query(wanted.sql, answer))


def _arrow_rows(services: Services, wanted: QueryRequest) -> int:
    return services.project.settings.server.query_rows if wanted.limit is None else min(ARROW_ROWS, wanted.limit)


async def _from_engine(request: Request, services: Services, plan: AskQuery, wanted: QueryRequest) -> Response:
    """The same answer, when it would take the server too long. The client may leave meanwhile."""
    started, arrow = services.clock.monotonic(), ARROW in request.headers.get("accept", "")
    most = services.project.settings.server.query_rows
    rows = _arrow_rows(services, wanted) if arrow else most if wanted.limit is None else min(most, wanted.limit)
    found = await ask_engine(services, plan, wanted.sql, rows, request.is_disconnected)
    if arrow:
        body = await services.run(lambda: stream_bytes(to_table(found.columns, found.rows)))
        return _arrow_answer(services, body, found.truncated)
    answer = await services.run(answer_of, found, (services.clock.monotonic() - started) * 1000)
    return json_response(answer_model(answer, services))


def _arrow_answer(services: Services, body: bytes, truncated: bool) -> Response:
    return LargeAnswer(body, services.answers, ARROW, {TRUNCATED: "true" if truncated else "false"})


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/query",
        handler=run_query,
        touches=by_handler,
        summary="Ask a table or stream; with EMIT CHANGES, the answer is a stream",
        body=QueryRequest,
        answers={200: (QueryAnswer, EVENT_STREAM, NDJSON, ARROW)},
    ),
)
