"""What the engine said is believed for a few seconds."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

from headrace.clock import ManualClock
from headrace.coordinate.status import EngineReport, EngineStatus
from headrace.process.base import QueryError, QueryStatus


def test_reports_are_news() -> None:
    clock = ManualClock(1_000_000)
    status = EngineStatus(clock)
    assert status.state() == {"state": "gone", "pid": None, "updated_ms": None, "detail": None}

    query = QueryStatus("CTAS_A_1", "failed", lag=3, last_error=QueryError("no space", 5))
    report = EngineReport("running", os.getpid(), [query])
    status.receive(msgspec.json.decode(msgspec.json.encode(report)))
    assert status.state() == {"state": "running", "pid": os.getpid(), "updated_ms": 1_000_000, "detail": None}
    assert status.status("CTAS_A_1") == query
    assert status.status("CTAS_B_2") is None

    clock.advance(29_000)
    assert status.all() == [query]
    clock.advance(2_000)
    assert status.all() == []
    assert status.state()["state"] == "gone"


def test_a_killed_engine_is_gone_at_once_and_not_when_its_report_is_stale() -> None:
    status = EngineStatus(ManualClock(1_000_000))
    engine = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    status.receive({"state": "running", "pid": engine.pid})
    assert status.state()["state"] == "running"
    engine.kill()
    os.waitid(os.P_PID, engine.pid, os.WEXITED | os.WNOWAIT)
    # Nobody has waited for it yet, so its number is still taken.
    assert (status.state()["state"], status.all()) == ("gone", [])
    engine.communicate()
    assert status.state()["state"] == "gone"
