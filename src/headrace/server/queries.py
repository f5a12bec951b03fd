"""Streams, tables and the queries between them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.base import QueryDefinition, is_question, late_topic
from headrace.coordinate.describe import counts
from headrace.coordinate.planning import plan_definition
from headrace.coordinate.query_status import status_of
from headrace.errors import HeadraceError, NotFound
from headrace.log.base import TIME, Log
from headrace.server.endpoint import Endpoint
from headrace.server.errors import json_response
from headrace.server.models.queries import (
    LastError,
    LateRow,
    LateRows,
    Queries,
    QueryDetail,
    QueryModel,
    SourceModel,
    Sources,
    WindowModel,
)
from headrace.server.names import resolve
from headrace.server.parameters import integer
from headrace.server.services import Services
from headrace.server.topics import LIMIT, MAX_EVENTS, keyed_columns
from headrace.sql.api import explain
from headrace.sql.source import Source, Window
from headrace.types import display_name


async def list_sources(request: Request, services: Services) -> Response:
    catalog = services.catalog
    return json_response(
        Sources(
            [source_model(source, [query.id for query in catalog.readers(source.name)]) for source in catalog.sources()]
        )
    )


def source_model(source: Source, read_by: list[str]) -> SourceModel:
    return SourceModel(
        name=display_name(source.name),
        kind=source.kind,
        topic=source.topic,
        columns=keyed_columns(source.key, source.value),
        window=window_model(source.window),
        statement=source.statement,
        query_id=source.query,
        read_by=read_by,
    )


def window_model(window: Window | None) -> WindowModel | None:
    if window is None:
        return None
    return WindowModel(window.kind, window.size_ms, window.advance_ms, window.grace_ms)


async def list_queries(request: Request, services: Services) -> Response:
    return json_response(await services.run(_queries, services))


def _queries(services: Services) -> Queries:
    found = [query for query in services.catalog.queries() if not query.transient or is_question(query.id)]
    return Queries([QueryModel(**query_fields(query, services)) for query in found])


async def show_query(request: Request, services: Services) -> Response:
    return json_response(await services.run(_detail, _find(request, services), services))


def _find(request: Request, services: Services) -> QueryDefinition:
    known = {query.id: query for query in services.catalog.queries()}
    return known[resolve(request.path_params["query"], known, "query", "SHOW QUERIES lists what there is")]


def _detail(query: QueryDefinition, services: Services) -> QueryDetail:
    status = services.engine.status(query.id)
    return QueryDetail(
        **query_fields(query, services),
        plan=plan_text(query, services),
        spark_plan=status.spark_plan if status else None,
    )


def plan_text(query: QueryDefinition, services: Services) -> str:
    try:
        return explain(plan_definition(query, services.catalog))
    except HeadraceError as error:
        # Seeing a query must not depend on its being all right.
        return f"cannot be planned: {error.message}"


def query_fields(query: QueryDefinition, services: Services) -> dict[str, Any]:
    """What the catalog wants and what the engine says."""
    status = status_of(query, services.engine, services.log)
    error = status.last_error
    made = services.catalog.version_of(query)
    return {
        "id": query.id,
        "statement": query.statement,
        "sink": display_name(query.sink),
        "sources": [display_name(name) for name in query.sources],
        "version": made.number if made is not None else query.version,
        "version_state": made.state if made is not None else "serving",
        "wanted": query.wanted,
        "state": status.state,
        "batch": status.batch,
        "rows_per_second": status.rows_per_second,
        "rows": status.rows,
        "counts": counts(services.log),
        "changed_rows": status.changed_rows,
        "lag": status.lag,
        "stream_time_ms": status.stream_time_ms,
        "late_rows": status.late_rows,
        "batch_ms": status.batch_ms,
        "state_rows": status.state_rows,
        "state_bytes": status.state_bytes,
        "restarts": status.restarts,
        "last_error": LastError(error.message, error.time_ms, error.detail, error.recovered_ms) if error else None,
        "started_ms": status.started_ms,
        "updated_ms": status.updated_ms,
    }


async def start_query(request: Request, services: Services) -> Response:
    return await _set_wanted(request, services, "running")


async def stop_query(request: Request, services: Services) -> Response:
    return await _set_wanted(request, services, "stopped")


async def _set_wanted(request: Request, services: Services, wanted: Literal["running", "stopped"]) -> Response:
    query = _find(request, services)
    await services.run(services.statements.set_wanted, query.id, wanted)
    return json_response(QueryModel(**query_fields(_find(request, services), services)))


async def list_late(request: Request, services: Services) -> Response:
    query = _find(request, services)
    limit = integer(request, "limit", 50, 0, MAX_EVENTS)
    return json_response(await services.run(late_rows, services.log, query.id, limit))


def late_rows(log: Log, query_id: str, limit: int) -> LateRows:
    """The newest of a query's late ledger, newest first."""
    name = late_topic(query_id)
    try:
        ends = log.snapshot().ends[log.topic(name).name][0]
    except (NotFound, KeyError):
        return LateRows([], 0)
    rows: list[dict[str, Any]] = []
    for records in log.read(name, 0, max(ends.start, ends.end - limit), ends.end):
        rows += records.batch.to_pylist()
    return LateRows([_late_row(row) for row in reversed(rows)], ends.end - ends.start)


def _late_row(row: dict[str, Any]) -> LateRow:
    return LateRow(
        topic=row["TOPIC"],
        partition=row["PARTITION"],
        offset=row["OFFSET"],
        time_ms=row[TIME],
        stream_time_ms=row["STREAM_TIME"],
        window_start_ms=row["WINDOW_START"],
        window_end_ms=row["WINDOW_END"],
        late_by_ms=row["LATE_BY"],
        row=_row_object(row["ROW"]),
    )


def _row_object(text: str | None) -> dict[str, Any]:
    fields = msgspec.json.decode(text) if text else {}
    return {display_name(name): value for name, value in fields.items()} if isinstance(fields, dict) else {}


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/sources",
        handler=list_sources,
        summary="Streams and tables",
        answers={200: Sources},
    ),
    Endpoint(
        method="GET",
        path="/v1/queries",
        handler=list_queries,
        summary="Persistent queries and how they are doing",
        answers={200: Queries},
    ),
    Endpoint(
        method="GET",
        path="/v1/queries/{query}",
        handler=show_query,
        summary="One query, with its plans",
        answers={200: QueryDetail},
    ),
    Endpoint(
        method="POST",
        path="/v1/queries/{query}/start",
        handler=start_query,
        summary="Run a query again, from where it stopped",
        role="admin",
        answers={200: QueryModel},
    ),
    Endpoint(
        method="POST",
        path="/v1/queries/{query}/stop",
        handler=stop_query,
        summary="Stop a query; it can be started again",
        role="admin",
        answers={200: QueryModel},
    ),
    Endpoint(
        method="GET",
        path="/v1/queries/{query}/late",
        handler=list_late,
        summary="Records that came too late for their window, newest first",
        answers={200: LateRows},
        parameters=(LIMIT,),
    ),
)
