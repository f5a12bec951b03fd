"""Bodies and headers of ksqlDB's requests, and what serves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.access.rights import Role
from headrace.server.auth import Touched, hide_names, require_json
from headrace.server.endpoint import Handler
from headrace.server.ksql.errors import ksql_error
from headrace.server.services import Services

Properties = dict[str, Any]


class KsqlRequest(msgspec.Struct, rename="camel"):
    """`POST /ksql` and `POST /query`."""

    ksql: str = ""
    streams_properties: Properties = {}
    session_variables: dict[str, str] = {}
    request_properties: Properties = {}
    command_sequence_number: int | None = None


class StreamRequest(msgspec.Struct, rename="camel"):
    """`POST /query-stream`."""

    sql: str = ""
    properties: Properties = {}
    session_variables: dict[str, str] = {}


class CloseRequest(msgspec.Struct, rename="camel"):
    query_id: str


def from_beginning(properties: Mapping[str, Any]) -> bool:
    """
    >>> from_beginning({"ksql.streams.auto.offset.reset": "earliest"}), from_beginning({})
    (True, False)
    """
    for name, value in properties.items():
        if name.lower().removeprefix("ksql.").removeprefix("streams.") == "auto.offset.reset":
            return str(value).lower() == "earliest"
    return False


def guarded(role: Role | None, handler: Handler, changes: bool, touched: Touched | None) -> Handler:
    """Errors of whatever kind in ksqlDB's form, those of who may do it included."""

    async def serve(request: Request, services: Services) -> Response:
        try:
            services.auth.check(request, role, touched)
            if changes:
                require_json(request)
            return await handler(request, services)
        except Exception as error:
            return ksql_error(hide_names(request, error))

    serve.__name__ = handler.__name__
    return serve
