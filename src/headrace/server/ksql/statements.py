"""`POST /ksql`: every statement but SELECT and PRINT."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.definitions import substitute
from headrace.errors import Overloaded, UsageError
from headrace.log.codecs.json_encode import to_json
from headrace.server.audit import DETAIL
from headrace.server.ksql.descriptions import Entity
from headrace.server.ksql.entities import entity_of
from headrace.server.ksql.errors import QUERY_ENDPOINT, V1, ksql_error
from headrace.server.ksql.requests import KsqlRequest
from headrace.server.parameters import body_of
from headrace.server.services import Services
from headrace.server.statements import check_statements
from headrace.sql.api import parse
from headrace.sql.statements import Print, SelectStatement


async def run_ksql(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, KsqlRequest)
    request.scope[DETAIL] = wanted.ksql
    await check_statements(request, services, wanted.ksql, wanted.session_variables)
    return await services.run(_run, wanted, services)


def _run(wanted: KsqlRequest, services: Services) -> Response:
    variables = wanted.session_variables
    behind = (wanted.command_sequence_number or 0) - services.catalog.state.events
    done: list[Entity] = []
    text: str | None = wanted.ksql
    code: int | None = None
    try:
        if behind > 0:
            raise Overloaded("the catalog is not that far yet", retry_after=1.0)
        settings = {name: str(value) for name, value in wanted.streams_properties.items()}
        for statement in parse(substitute(wanted.ksql, variables), variables, settings):
            text = statement.text
            if isinstance(statement, SelectStatement | Print):
                code = QUERY_ENDPOINT
                raise UsageError("SELECT and PRINT queries must use the /query resource instead of /ksql")
            done.append(entity_of(statement, services.statements.run_statement(statement), services))
    except Exception as error:
        return ksql_error(error, text, code, done)
    return Response(to_json(done), media_type=V1)


def command_status(services: Services, command: str) -> dict[str, Any] | None:
    """What became of a command, by the id it was answered with. Commands are done when they are answered, so
    what is there was made."""
    kind, _, rest = command.partition("/")
    name, _, action = rest.rpartition("/")
    source = services.catalog.source(name)
    exists = source is not None and source.kind == kind
    if kind not in ("stream", "table") or action not in ("create", "drop") or exists != (action == "create"):
        return None
    done = f"{kind.capitalize()} {'created' if action == 'create' else 'dropped'}"
    return {"status": "SUCCESS", "message": done, "queryId": source.query if source else None}
