"""Errors as ksqlDB's clients expect them: a type, a code whose first digits are the status, a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from headrace.errors import HeadraceError, SqlError
from headrace.log.codecs.json_encode import to_json
from headrace.server.errors import error_body, when_again

V1 = "application/vnd.ksql.v1+json"
BAD_REQUEST, BAD_STATEMENT, QUERY_ENDPOINT = 40000, 40001, 40002
CODES = {401: 40100, 403: 40300, 404: 40400, 409: BAD_STATEMENT, 429: 42900, 503: 50300}


def error_object(error: Exception, statement: str | None = None, code: int | None = None) -> dict[str, Any]:
    """What went wrong, with where and what to do about it in the message: these clients show nothing else."""
    body = error_body(error)
    status = error.status if isinstance(error, HeadraceError) else 500
    about_sql = statement is not None and status in (400, 404, 409)
    number = code or (BAD_STATEMENT if about_sql else CODES.get(status, BAD_REQUEST if status < 500 else 50000))
    found = {
        "@type": "statement_error" if about_sql else "generic_error",
        "error_code": number,
        "message": message_of(error, body["message"]),
    }
    return found | ({"statementText": statement, "entities": []} if about_sql else {})


def message_of(error: Exception, plain: str) -> str:
    if not isinstance(error, HeadraceError):
        return plain
    where = f"line {error.line}:{error.column}: " if isinstance(error, SqlError) and error.line else ""
    more = "".join(f"\n{line}" for line in (error.detail, error.hint) if line)
    return f"{where}{error.message}{more}"


def status_of(body: dict[str, Any]) -> int:
    return int(body["error_code"]) // 100


def ksql_error(
    error: Exception, statement: str | None = None, code: int | None = None, done: Sequence[dict[str, Any]] = ()
) -> Response:
    """`done`: what earlier statements of the same request have done."""
    body = error_object(error, statement, code)
    if "entities" in body:
        body["entities"] = list(done)
    return Response(to_json(body), status_of(body), when_again(error), V1)
