"""What the engine said is believed for a few seconds."""

from __future__ import annotations

import msgspec

from headrace.clock import ManualClock
from headrace.coordinate.status import EngineReport, EngineStatus
from headrace.process.base import QueryError, QueryStatus


def test_reports_are_news() -> None:
    clock = ManualClock(1_000_000)
    status = EngineStatus(clock)
    assert status.state() == {"state": "gone", "pid": None, "updated_ms": None, "detail": None}

    query = QueryStatus("CTAS_A_1", "failed", lag=3, last_error=QueryError("no space", 5))
    report = EngineReport("running", 42, [query])
    status.receive(msgspec.json.decode(msgspec.json.encode(report)))
    assert status.state() == {"state": "running", "pid": 42, "updated_ms": 1_000_000, "detail": None}
    assert status.status("CTAS_A_1") == query
    assert status.status("CTAS_B_2") is None

    clock.advance(4_000)
    assert status.all() == [query]
    clock.advance(2_000)
    assert status.all() == []
    assert status.state()["state"] == "gone"
