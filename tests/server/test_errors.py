"""Errors as answers: what a client is told about coming again."""

from __future__ import annotations

import pytest

from headrace.errors import (
    Disconnected,
    DiskFull,
    HeadraceError,
    NotFound,
    NotRunning,
    Overloaded,
    OwnerLost,
    StoreDamaged,
)
from headrace.server.errors import error_response
from headrace.server.ksql.errors import ksql_error


@pytest.mark.parametrize(
    ("error", "status", "again"),
    [
        (Overloaded("busy", retry_after=2.2), 429, "3"),
        (DiskFull("full"), 507, "30"),
        (NotRunning("away"), 503, "1"),
        (StoreDamaged("is being refilled"), 503, "5"),
        (OwnerLost("it may have been written"), 503, None),
        (Disconnected("it may have been done"), 503, None),
        (NotFound("gone"), 404, None),
    ],
)
def test_what_may_do_better_later_says_when(error: HeadraceError, status: int, again: str | None) -> None:
    response = error_response(error)
    assert (response.status_code, response.headers.get("retry-after")) == (status, again)
    assert ksql_error(error).headers.get("retry-after") == again
