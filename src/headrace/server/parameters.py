"""What a request asks for, read and checked."""

from __future__ import annotations

import math
from typing import TypeVar

import msgspec
from starlette.requests import HTTPConnection, Request

from headrace.collect.http.bodies import decompress, read_body
from headrace.errors import UsageError
from headrace.log.codecs.times import moment
from headrace.server.services import Services
from headrace.structs import ready

__all__ = ["body_of", "choice", "flag", "integer", "moment", "number"]

T = TypeVar("T")


def integer(request: HTTPConnection, name: str, default: int, low: int = 0, high: int = 1 << 62) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = int(text) if len(text) < 20 else None
    except ValueError:
        value = None
    if value is None or not low <= value <= high:
        raise UsageError(f"`{name}` must be a number from {low} to {high}, got `{text[:40]}`")
    return value


def number(request: HTTPConnection, name: str, default: float, low: float, high: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise UsageError(f"`{name}` must be a number from {low:g} to {high:g}, got `{text[:40]}`")
    return value


def choice(request: HTTPConnection, name: str, default: str, *allowed: str) -> str:
    value = request.query_params.get(name, default)
    if value not in allowed:
        raise UsageError(f"`{name}` must be {' or '.join(allowed)}, got `{value[:40]}`")
    return value


def flag(request: HTTPConnection, name: str) -> bool:
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false", "1", "0", ""):
        raise UsageError(f"`{name}` must be true or false, got `{text[:40]}`")
    return text in ("true", "1", "")


async def body_of(request: Request, services: Services, model: type[T]) -> T:
    """The JSON body as `model`; `UsageError` says what is wrong with it."""
    limits = services.body_limits
    with services.budget.share() as share:
        body = await read_body(request.receive, request.headers.get("content-length"), limits, share)
        text = decompress(body, request.headers.get("content-encoding", ""), limits.max_bytes)
    try:
        return msgspec.json.decode(text, type=ready(model))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the body does not fit: {error}", hint="see /openapi.json") from None
