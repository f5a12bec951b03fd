"""Errors → answers, always in the same shape: `{"error": {"code", "message", …}}`."""

from __future__ import annotations

import logging
import math
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from headrace.errors import DiskFull, HeadraceError, NotRunning, Overloaded, StoreDamaged, Unauthenticated
from headrace.log.codecs.json_encode import to_json

logger = logging.getLogger("headrace.server")

JSON = "application/json"
AGAIN_S: dict[type[HeadraceError], int] = {NotRunning: 1, StoreDamaged: 5, DiskFull: 30}
"""After how long what is not overloaded, but cannot be done now, may be tried again."""


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(body), status, headers, JSON)


def error_body(error: Exception) -> dict[str, Any]:
    """The error object. What nobody expected says nothing about our insides; the server's log does."""
    if isinstance(error, HeadraceError):
        return error.to_json()
    logger.error("unexpected error", exc_info=error)
    return {"code": "internal", "message": "something went wrong in the server", "hint": "see headrace logs"}


def when_again(error: Exception) -> dict[str, str]:
    """`Retry-After`, where the same request may do better later. Not where a connection to the log broke off: what was
    asked may have been done, and whoever cannot tell should not be asked to do it twice."""
    if isinstance(error, Overloaded):
        return {"retry-after": str(max(1, math.ceil(error.retry_after)))}
    for kind, seconds in AGAIN_S.items():
        if isinstance(error, kind):
            return {"retry-after": str(seconds)}
    return {}


def error_response(error: Exception) -> Response:
    status = error.status if isinstance(error, HeadraceError) else 500
    headers: dict[str, str] = {}
    headers |= when_again(error)
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    if status in (408, 413):
        # The rest of the body is not wanted any more: the connection is of no further use.
        headers["connection"] = "close"
    return json_response({"error": error_body(error)}, status, headers)


async def http_exception(request: Any, error: Exception) -> Response:
    """Starlette's own: no such path, no such method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("allow", "")
        body = {
            "code": "method",
            "message": f"`{request.url.path}` does not take {request.method}",
            "hint": f"it takes {allowed}; /openapi.json lists all there is" if allowed else "see /openapi.json",
        }
    elif error.status_code == 404:
        body = {
            "code": "not_found",
            "message": f"there is nothing at `{request.url.path}`",
            "hint": "see /openapi.json",
        }
    else:
        body = {"code": "http", "message": error.detail}
    return json_response({"error": body}, error.status_code, dict(error.headers or {}))


async def unexpected(request: Any, error: Exception) -> Response:
    return error_response(error)
