"""Views: the tables being served, their rows, and their changes as they happen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal as Number
from decimal import InvalidOperation

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from headrace.access.rights import Resource
from headrace.coordinate.base import ViewDefinition
from headrace.deliver.base import FeedEvent
from headrace.deliver.feed import feed
from headrace.errors import UsageError
from headrace.server import websocket as websockets
from headrace.server.answer_models import through_model
from headrace.server.auth import hide_names
from headrace.server.endpoint import EVENT_STREAM, NDJSON, Endpoint, Parameter
from headrace.server.errors import error_response, json_response
from headrace.server.included import MAX_WAIT_S, wait_until_included
from headrace.server.models.queries import ViewModel, Views
from headrace.server.models.sql import QueryAnswer
from headrace.server.names import resolve
from headrace.server.parameters import flag, integer, number
from headrace.server.queries import window_model
from headrace.server.query import pull_plan
from headrace.server.services import Services
from headrace.server.sse import stream
from headrace.server.topics import keyed_columns
from headrace.server.touched import by_handler, view_of_path
from headrace.sql.source import Source
from headrace.types import BigInt, Boolean, Column, Decimal, Double, Integer, display_name, quote_name


async def list_views(request: Request, services: Services) -> Response:
    served = set(services.followers.names())
    known = (view for view in services.catalog.views() if view.name in served)
    found = [view for view in known if services.auth.allows(request, Resource("view", view.name))]
    models = await services.run(lambda: [view_model(view, services) for view in found])
    return json_response(Views(models))


async def show_view(request: Request, services: Services) -> Response:
    return json_response(await services.run(view_model, find_view(request, services), services))


def find_view(connection: HTTPConnection, services: Services) -> ViewDefinition:
    known = {view.name: view for view in services.catalog.views()}
    return known[resolve(connection.path_params["view"], known, "table", "SHOW TABLES lists what there is")]


def view_model(view: ViewDefinition, services: Services) -> ViewModel:
    store = services.followers.view(view.name)
    source = store.source
    return ViewModel(
        name=display_name(view.name),
        version=view.version,
        kind="table",
        columns=keyed_columns(source.key, source.value),
        window=window_model(source.window),
        topic=view.topic,
        query_id=view.query_id,
        rows=store.count(),
        through=through_model(store.position(), view.version, services),
        lag=services.followers.lag(view.name),
        rate=round(services.followers.rate(view.name), 1),
    )


async def list_rows(request: Request, services: Services) -> Response:
    view = find_view(request, services)
    source = services.followers.view(view.name).source
    limit = integer(request, "limit", 100, 0, services.project.settings.server.query_rows)
    filters = _filters(request, services, source)
    sql = rows_sql(source, filters, limit)
    plan = await request.app.state.plans.plan(sql, services)
    given = [value for name, value in request.query_params.multi_items() if name == "after"]
    if given and "AFTER" not in {column.name for column in source.all_columns}:
        seconds = number(request, "wait", services.project.settings.server.query_seconds, 0.001, MAX_WAIT_S)
        await wait_until_included(request, services, plan, given, seconds)
    return json_response(await pull_plan(services, plan, sql))


def _filters(request: Request, services: Services, source: Source) -> list[tuple[str, str]]:
    """All parameters but those that are ours: `limit`, `after` and `wait` unless the view has such columns, and `key`
    where it opens the door."""
    ours = {"limit", "key"} if services.auth.keys_set else {"limit"}
    ours |= {"after", "wait"} - {column.name.lower() for column in source.all_columns}
    return [(name, value) for name, value in request.query_params.multi_items() if name not in ours]


def rows_sql(source: Source, parameters: list[tuple[str, str]], limit: int) -> str:
    """The SELECT that the parameters of an address stand for."""
    columns = {column.name: column for column in source.all_columns}
    conditions, order = [], ""
    for name, value in parameters:
        if name == "order":
            order = _ordering(value, columns)
        else:
            conditions.append(_condition(_column(name, columns), value))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT * FROM {quote_name(source.name)}{where}{order} LIMIT {limit};"


def _column(name: str, columns: dict[str, Column]) -> Column:
    return columns[resolve(name, columns, "column", "DESCRIBE lists the table's columns")]


def _ordering(value: str, columns: dict[str, Column]) -> str:
    column = _column(value.removeprefix("-"), columns)
    return f" ORDER BY {quote_name(column.name)}" + (" DESC" if value.startswith("-") else "")


def _condition(column: Column, value: str) -> str:
    return f"{quote_name(column.name)} = {_literal(column, value)}"


def _literal(column: Column, value: str) -> str:
    match column.type:
        case Integer() | BigInt() | Double() | Decimal():
            try:
                number = Number(value)
            except InvalidOperation:
                number = Number("NaN")
            if not number.is_finite() or abs(number.adjusted()) > 308:
                raise UsageError(f"`{display_name(column.name)}` must be a number, got `{value[:40]}`")
            return f"{number:f}" if abs(number.adjusted()) < 40 else str(number)
        case Boolean():
            if value.lower() not in ("true", "false"):
                raise UsageError(f"`{display_name(column.name)}` must be true or false, got `{value[:40]}`")
            return value.upper()
        case _:
            return "'" + value.replace("'", "''") + "'"


async def follow_view(request: Request, services: Services) -> Response:
    return stream(await services.run(_feed, request, services), request, services, "feed")


async def follow_view_socket(websocket: WebSocket, services: Services) -> None:
    try:
        events = await services.run(_feed, websocket, services)
    except Exception as error:
        await websocket.send_denial_response(error_response(hide_names(websocket, error)))
        return
    await websockets.stream(events, websocket, services, "feed")


def _feed(connection: HTTPConnection, services: Services) -> AsyncIterator[FeedEvent]:
    view = find_view(connection, services)
    after = connection.headers.get("last-event-id") or connection.query_params.get("after")
    start = connection.query_params.get("from", "now")
    if start not in ("now", "beginning"):
        raise UsageError(f"`from` must be now or beginning, got `{start[:40]}`")
    snapshot = flag(connection, "snapshot")
    return feed(
        services.delivery,
        view.name,
        after=after or None,
        start="now" if start == "now" else "beginning",
        snapshot=snapshot,
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/views",
        handler=list_views,
        touches=by_handler,
        summary="All views",
        answers={200: Views},
    ),
    Endpoint(
        method="GET",
        path="/v1/views/{view}",
        handler=show_view,
        touches=view_of_path,
        summary="One view",
        answers={200: ViewModel},
    ),
    Endpoint(
        method="GET",
        path="/v1/views/{view}/rows",
        handler=list_rows,
        touches=view_of_path,
        summary="Rows of a view; any other parameter is a column that must have that value",
        answers={200: QueryAnswer},
        parameters=(
            Parameter("limit", "how many at most", {"type": "integer", "default": 100}),
            Parameter("order", "a column to order by; descending with a leading -"),
            Parameter("after", "what the rows have to include: the token of a write, an event id, or `now`"),
            Parameter("wait", "seconds to wait for that", {"type": "number", "default": 10, "maximum": MAX_WAIT_S}),
        ),
    ),
    Endpoint(
        method="GET",
        path="/v1/views/{view}/feed",
        handler=follow_view,
        touches=view_of_path,
        websocket=follow_view_socket,
        summary="Changes of a view as they happen",
        answers={200: (EVENT_STREAM, NDJSON)},
        parameters=(
            Parameter("from", "now, or beginning: all changes still in the log", {"enum": ["now", "beginning"]}),
            Parameter("snapshot", "the rows as they are first", {"type": "boolean", "default": False}),
            Parameter("after", "continue right after this event id"),
            Parameter("Last-Event-ID", "the same, as EventSource sends it", where="header"),
        ),
    ),
)
