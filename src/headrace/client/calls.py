"""A call as data, and what to do about its answer. No I/O here."""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from headrace.errors import HeadraceError, NotRunning, Overloaded, error_from_json

T = TypeVar("T")

Repeat = Literal["always", "refused"]
"""`always`: doing it twice is harmless. `refused`: only if the server said that it did not do it."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
WAITING_ROOM_S = 10.0
"""How much longer than a long poll its answer may take."""


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeat: Repeat = "refused"
    wait_s: float = 0.0
    """How long the server may wait before it answers."""
    accept: tuple[int, ...] = ()
    """Statuses that are answers, though they look like errors."""
    lines: bool = False
    """Whether the answer is lines of JSON and not one document: it is handed over as bytes."""

    @property
    def parameters(self) -> dict[str, str]:
        return {name: _text(value) for name, value in self.query.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes


Steps: TypeAlias = Generator[Call, Any, T]
"""An operation: yields calls, is sent their answers' JSON, returns what they mean."""


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def get(path: str, wait_s: float = 0.0, **query: Any) -> Call:
    return Call("GET", path, query, repeat="always", wait_s=wait_s)


def send(method: str, path: str, body: Any = None, repeat: Repeat = "refused", **query: Any) -> Call:
    content = None if body is None else json.dumps(body, ensure_ascii=False, default=_plain).encode()
    headers = {} if content is None else {"content-type": "application/json"}
    return Call(method, path, query, content, headers, repeat)


def _plain(value: Any) -> Any:
    """What JSON does not know, as the server reads it."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        import base64

        return base64.b64encode(value).decode("ascii")
    return str(value)


def read_answer(call: Call, response: Response) -> Any:
    """The answer's JSON, or the error it carries, raised."""
    if response.status == 204:
        return None
    if call.lines and response.status < 400:
        return response.body
    try:
        body = json.loads(response.body)
    except ValueError:
        shown = response.body[:200].decode(errors="replace")
        raise HeadraceError(f"the server answered {response.status}", detail=shown or None) from None
    if response.status >= 400 and response.status not in call.accept:
        error = body.get("error") if isinstance(body, dict) else None
        raise (
            error_from_json(error)
            if isinstance(error, dict)
            else HeadraceError(f"the server answered {response.status}")
        )
    return body


def pause_before_repeat(call: Call, error: Exception, attempt: int) -> float | None:
    """How long to wait before the call is made again; None if it must not be."""
    growing: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt)
    # Not all at once: those who were refused together would come back together.
    jittered = growing * (0.5 + random.random() / 2)
    if isinstance(error, Overloaded):
        return max(jittered, min(error.retry_after, 60.0))
    if isinstance(error, Unreachable):
        return jittered if call.repeat == "always" or not error.sent else None
    if isinstance(error, NotRunning) or getattr(error, "code", "") == "owner_lost":
        return jittered if call.repeat == "always" else None
    return None


class Unreachable(NotRunning):
    """The server did not answer. `sent` says whether it may have got the call."""

    code = "unreachable"

    def __init__(self, message: str, *, sent: bool = True, **data: Any) -> None:
        super().__init__(message, **data)
        self.sent = sent
