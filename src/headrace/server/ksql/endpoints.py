"""The paths of ksqlDB's API and what serves them."""

from __future__ import annotations

from typing import Any, Literal

from headrace.access.rights import Role
from headrace.server.auth import Touched
from headrace.server.endpoint import Endpoint, Handler
from headrace.server.ksql import info, inserts, queries, statements, websocket
from headrace.server.ksql.errors import V1
from headrace.server.ksql.formats import DELIMITED, JSON
from headrace.server.ksql.requests import CloseRequest, KsqlRequest, StreamRequest, guarded
from headrace.server.touched import by_handler


def _endpoint(
    method: Literal["GET", "POST"],
    path: str,
    handler: Handler,
    summary: str,
    *media: str,
    role: Role | None = "read",
    body: Any = None,
    changes: bool = False,
    touched: Touched | None = None,
) -> Endpoint:
    return Endpoint(
        method=method,
        path=path,
        handler=guarded(role, handler, changes, touched),
        summary=summary,
        answers={200: media or (JSON,)},
        role=role,
        # So that a refusal too has the form these clients read.
        checks="handler",
        body=body,
        changes=changes,
    )


ENDPOINTS = (
    _endpoint(
        "POST",
        "/ksql",
        statements.run_ksql,
        "ksqlDB: run statements",
        V1,
        body=KsqlRequest,
        changes=True,
        touched=by_handler,
    ),
    _endpoint(
        "POST",
        "/query",
        queries.ksql_query,
        "ksqlDB: a SELECT",
        V1,
        DELIMITED,
        body=KsqlRequest,
        touched=by_handler,
    ),
    _endpoint(
        "POST",
        "/query-stream",
        queries.ksql_query_stream,
        "ksqlDB: a SELECT, row by row",
        DELIMITED,
        JSON,
        V1,
        body=StreamRequest,
        touched=by_handler,
    ),
    _endpoint("POST", "/close-query", queries.close_query, "ksqlDB: end a push query", body=CloseRequest),
    _endpoint(
        "POST",
        "/inserts-stream",
        inserts.insert_rows,
        "ksqlDB: rows for a stream",
        DELIMITED,
        JSON,
        role="write",
        body=(DELIMITED, JSON, V1),
        touched=by_handler,
    ),
    _endpoint("GET", "/info", info.info, "ksqlDB: about the server"),
    _endpoint("GET", "/healthcheck", info.healthcheck, "ksqlDB: is it healthy?", role=None),
    _endpoint("GET", "/clusterStatus", info.cluster_status, "ksqlDB: the servers and their queries"),
    _endpoint("GET", "/status", info.all_statuses, "ksqlDB: commands that were run"),
    _endpoint("GET", "/status/{command:path}", info.one_status, "ksqlDB: what became of a command"),
    _endpoint("GET", "/is_valid_property/{property}", info.is_valid_property, "ksqlDB: may this property be set?"),
    Endpoint(
        method="GET",
        path="/ws/query",
        handler=websocket.needs_upgrade,
        touches=by_handler,
        summary="ksqlDB: a push query over a WebSocket",
        answers={200: (JSON,)},
        websocket=websocket.query_socket,
    ),
)
