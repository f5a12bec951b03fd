"""Every route × every identity, from the description the server gives of itself: who may is let in, nobody else."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from headrace.access.rights import RANK
from headrace.server.app import ENDPOINTS
from headrace.server.endpoint import Endpoint
from tests.security.conftest import KEYS
from tests.security.users import NOBODY, acting_as, as_root
from tests.server.running import Running

REFUSED = {401, 403, 429}
"""429: so many wrong keys came from one address that more are not even looked at with a 401."""
ANYBODY = {
    ("GET", "/healthz"),
    ("GET", "/healthcheck"),
    ("GET", "/"),
    ("GET", "/{path}"),
}
"""What needs no identity at all; with the preflights of trackers, which bring none."""


@dataclass(frozen=True)
class Caller:
    name: str
    rank: int
    headers: dict[str, str] = field(default_factory=dict)
    uid: int | None = None


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


WITH_KEYS = [
    Caller("no key", 0),
    Caller("wrong key", 0, bearer("wrong-key-0123456789")),
    *(Caller(role, RANK[role], bearer(key)) for role, key in KEYS.items()),
    Caller("admin through a proxy", 3, {**bearer(KEYS["admin"]), "X-Forwarded-For": "203.0.113.9"}),
]
WITHOUT_KEYS = [
    Caller("the server's user", 3),
    Caller("own page", 3, {"Origin": "http://{host}", "Sec-Fetch-Site": "same-origin"}),
    Caller("another user", 0, uid=NOBODY),
    Caller("another user with a wrong key", 0, bearer("wrong-key-0123456789"), uid=NOBODY),
    Caller("proxy", 0, {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}),
    Caller("standard proxy", 0, {"Forwarded": "for=203.0.113.9"}),
    Caller("other name", 0, {"Host": "rebind.test"}),
    Caller("no name", 0, {"Host": ""}),
    Caller("page of a site", 0, {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}),
    Caller("page of another port", 0, {"Origin": "http://localhost:5173", "Sec-Fetch-Site": "same-site"}),
    Caller("page without an address", 0, {"Origin": "null"}),
    Caller("image on a page", 0, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}),
]


def title(endpoint: Endpoint) -> tuple[str, str]:
    return endpoint.method, re.sub(r"\{(\w+):\w+\}", r"{\1}", endpoint.path)


def ask(http: httpx.Client, method: str, path: str, headers: dict[str, str]) -> int:
    """The status alone: some answers never end. Names that nobody has, and no body: nothing is changed."""
    filled = re.sub(r"\{\w+\}", "no-such", path)
    json = {"content-type": "application/json"} if method in ("POST", "PUT", "PATCH") else {}
    with http.stream(method, filled, headers=json | headers) as answer:
        return answer.status_code


def needed_role(operation: dict[str, Any]) -> str | None:
    roles = {role for scheme in operation["security"] for given in scheme.values() for role in given}
    assert len(roles) <= 1
    return next(iter(roles), None)


def deviations(server: Running, caller: Caller, expect: Callable[[str | None], bool]) -> list[str]:
    """Routes that answer otherwise than their description says."""
    description = httpx.get(
        f"http://127.0.0.1:{server.port}/openapi.json", headers=bearer(KEYS["admin"]), trust_env=False
    ).json()
    headers = {name: value.format(host=f"127.0.0.1:{server.port}") for name, value in caller.headers.items()}
    found = []
    with ExitStack() as stack:
        if caller.uid is not None:
            stack.enter_context(acting_as(caller.uid))
        http = stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60, trust_env=False)
        )
        for path, methods in description["paths"].items():
            for method, operation in methods.items():
                status = ask(http, method.upper(), path, headers)
                role = needed_role(operation)
                # Kinesis and Firehose answer 400 with AWS's own name of the refusal; without a target there is none.
                if "signature" in str(operation["security"]) or "collector" in str(operation["security"]):
                    public = operation["summary"].startswith("Segment:")
                    if status < 300 and not caller.rank and not public:
                        found.append(f"{method.upper()} {path} answered {status}")
                elif (status not in REFUSED) is not expect(role):
                    found.append(f"{method.upper()} {path} needs {role}, and answered {status}")
    return found


@pytest.mark.parametrize("caller", WITH_KEYS, ids=lambda caller: caller.name)
def test_with_keys_every_route_asks_for_its_role(keyed: Running, caller: Caller) -> None:
    assert deviations(keyed, caller, lambda role: role is None or caller.rank >= RANK[role]) == []


@pytest.mark.parametrize(
    "caller",
    [pytest.param(one, marks=[as_root] if one.uid is not None else [], id=one.name) for one in WITHOUT_KEYS],
)
def test_without_keys_the_servers_own_user_may_everything_and_nobody_else_anything(
    keyless: Running, caller: Caller
) -> None:
    assert deviations(keyless, caller, lambda role: role is None or caller.rank >= RANK[role]) == []


def test_what_anybody_may_is_listed() -> None:
    """A new route that asks for nothing is a decision, to be written here and in docs/reference/http-api.md."""
    found = {title(one) for one in ENDPOINTS if one.role is None and one.method != "OPTIONS"}
    assert found == ANYBODY
