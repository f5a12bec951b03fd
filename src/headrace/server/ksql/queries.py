"""`POST /query`, `POST /query-stream` and `POST /close-query`: pull and push SELECTs, and PRINT."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.access.rights import Resource
from headrace.coordinate.definitions import substitute
from headrace.deliver.base import Answer, FeedEvent
from headrace.deliver.pull import answer_of, pull
from headrace.errors import HeadraceError, NotFound
from headrace.server.auth import hide_names
from headrace.server.ksql.errors import error_object, ksql_error
from headrace.server.ksql.formats import Format, Header, Lines, Objects, format_for
from headrace.server.ksql.printing import print_topic
from headrace.server.ksql.requests import CloseRequest, KsqlRequest, Properties, StreamRequest, from_beginning
from headrace.server.ksql.values import row_converter
from headrace.server.parameters import body_of
from headrace.server.pump import Pump
from headrace.server.query import plan_allowed
from headrace.server.questions import ask_engine, is_for_engine
from headrace.server.services import Services
from headrace.sql.api import parse
from headrace.sql.ask_plan import AskQuery
from headrace.sql.expressions import ColumnRef
from headrace.sql.plan import PullQuery, PushQuery
from headrace.sql.statements import Print

LIMIT_REACHED, COMPLETED = "Limit Reached", "Query Completed"


class OpenQueries:
    """Push queries being answered, by the id their clients were told."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._closing: dict[str, asyncio.Event] = {}

    @contextmanager
    def opened(self, query: PushQuery) -> Iterator[tuple[str, asyncio.Event]]:
        names = "_".join(source.name for source in query.inputs)
        query_id, closing = f"transient_{names}_{next(self._numbers)}", asyncio.Event()
        self._closing[query_id] = closing
        try:
            yield query_id, closing
        finally:
            del self._closing[query_id]

    def close(self, query_id: str) -> None:
        if query_id not in self._closing:
            raise NotFound(f"no query `{query_id}` is running")
        self._closing[query_id].set()


async def ksql_query(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, KsqlRequest)
    rows = format_for(request.headers.get("accept", ""), Objects())
    # Here plain JSON means the objects too: this resource is older than the other form.
    form = rows if isinstance(rows, Lines) else Objects()
    return await _answer(request, services, wanted.ksql, wanted.session_variables, wanted.streams_properties, form)


async def ksql_query_stream(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, StreamRequest)
    form = format_for(request.headers.get("accept", ""), Lines())
    return await _answer(request, services, wanted.sql, wanted.session_variables, wanted.properties, form)


async def close_query(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, CloseRequest)
    try:
        request.app.state.open_queries.close(wanted.query_id)
    except NotFound as error:
        return ksql_error(error, code=40000)
    return Response(status_code=200)


async def _answer(
    request: Request,
    services: Services,
    sql: str,
    variables: Mapping[str, str],
    properties: Properties,
    form: Format,
) -> Response:
    try:
        text = substitute(sql, variables)
        if printed := print_statement(text):
            services.auth.check_each(request, "read", [Resource("topic", printed.topic)])
            return print_topic(printed, from_beginning(properties), request, services)
        plan = await services.run(plan_allowed, request, text, services)
        if not isinstance(plan, PushQuery):
            return await _pulled(request, services, plan, text, form)
        services.subscribers.check(request)
        events = request.app.state.push_queries.listen(plan, text, request, from_beginning(properties))
    except HeadraceError as error:
        return ksql_error(hide_names(request, error), sql)
    return PushAnswer(plan, events, request.app.state.open_queries, services, form)


def print_statement(sql: str) -> Print | None:
    """Comments before it are not looked behind: clients send one statement, and nothing else."""
    if not sql.lstrip().upper().startswith("PRINT"):
        return None
    statements = parse(sql)
    return statements[0] if len(statements) == 1 and isinstance(statements[0], Print) else None


async def _pulled(request: Request, services: Services, plan: PullQuery | AskQuery, sql: str, form: Format) -> Response:
    answer = await _answer_of(request, services, plan, sql)
    body = [form.header(Header(f"query_{services.clock.now_ms()}", answer.columns, _keys(plan)))]
    convert = row_converter(answer.columns)
    body += [form.row(convert(row), False) for row in answer.rows]
    if any(read.version is None for read in answer.reads):
        body.append(form.final(COMPLETED))
    return Response(b"".join(body) + form.end(), media_type=form.media_type)


async def _answer_of(request: Request, services: Services, plan: PullQuery | AskQuery, sql: str) -> Answer:
    """By the engine if it is about too much for the server."""
    server = services.project.settings.server
    if isinstance(plan, AskQuery) and await is_for_engine(services, plan):
        found = await ask_engine(services, plan, sql, server.query_rows, request.is_disconnected)
        return await services.run(answer_of, found, 0.0)
    answer: Answer = await services.run_query(
        sql, pull, services.delivery, plan, server.query_seconds, server.query_rows, server.query_bytes
    )
    return answer


def _keys(plan: PullQuery | AskQuery) -> set[str]:
    """Which columns of a table's answer are its key; those of a stream are columns like the others."""
    if isinstance(plan, AskQuery) or plan.source.kind == "stream":
        return set()
    window = {"WINDOWSTART", "WINDOWEND"} if plan.source.window else set()
    keys = {column.name for column in plan.source.key} | window
    return {i.name for i in plan.items if isinstance(i.expression, ColumnRef) and i.expression.name in keys}


class PushAnswer(Response):
    """Sends rows until the query ends, is closed, or nobody listens. Each row is a piece of its own: there are clients
    that take a piece for a row."""

    def __init__(
        self, plan: PushQuery, events: AsyncIterator[FeedEvent], queries: OpenQueries, services: Services, form: Format
    ) -> None:
        super().__init__(media_type=form.media_type)
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"
        self._plan, self._events, self._queries = plan, events, queries
        self._services, self._form = services, form
        self._convert = row_converter(plan.root.columns)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]

        async def write(piece: bytes) -> None:
            if piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})

        pump = Pump(self._events, self._services, "push")

        async def write_events(batch: list[FeedEvent]) -> None:
            for event in batch:
                await write(self._piece(event))
                pump.taken()

        with (
            self._queries.opened(self._plan) as (query_id, closing),
            self._services.subscribers.client(HTTPConnection(scope), "push"),
        ):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await write(self._form.header(Header(query_id, self._plan.root.columns)))
            await pump.run(write_events, _ended(receive, closing), scope)
            await write(self._form.end())
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _piece(self, event: FeedEvent) -> bytes:
        match event.event:
            case "row":
                return self._form.row(self._convert(event.data["row"]), bool(event.data.get("tombstone")))
            case "end":
                return self._form.final(LIMIT_REACHED if event.data["reason"] == "limit" else COMPLETED)
            case "error":
                found = HeadraceError(event.data["error"]["message"])
                return self._form.error(error_object(found))
            case _:
                return b""


async def _ended(receive: Receive, closing: asyncio.Event) -> None:
    """Until the client is gone, or somebody closes the query."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            await asyncio.sleep(0)

    waiting = [asyncio.ensure_future(gone()), asyncio.ensure_future(closing.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
