"""A machine whose clock jumps."""

from __future__ import annotations

import time
from pathlib import Path

from headrace.clock import GuardedClock, wall_milliseconds
from tests.server.running import Running, running_server

TWO_DAYS_MS = 2 * 86_400_000
SQL = "CREATE STREAM readings (device VARCHAR KEY, n INT) WITH (KAFKA_TOPIC='readings', PARTITIONS=1);"


def stream_time(server: Running) -> int:
    return server.services.log.stats("readings").stream_time


def test_events_after_a_jump_of_the_clock_are_not_ahead_and_it_is_reported(tmp_path: Path) -> None:
    """A clock that was two days ahead for a moment made all later events late."""
    ahead = [0]
    clock = GuardedClock(3600, lambda: wall_milliseconds() + ahead[0])
    with running_server(tmp_path, sql=SQL, clock=clock) as server:
        assert server.send("readings", {"device": "a", "n": 1}).status_code == 200
        assert server.http.get("/readyz").json()["problems"] == []

        ahead[0] = TWO_DAYS_MS
        assert server.send("readings", {"device": "a", "n": 2}).status_code == 200
        refused = server.send("readings", {"device": "a", "n": 3, "$time": wall_milliseconds() + TWO_DAYS_MS})
        assert "too far ahead of the clock" in refused.json()["rejected"][0]["reason"]
        [problem] = server.http.get("/readyz").json()["problems"]
        assert problem.startswith("the machine's clock jumped 48.0 h forward: event times go on without the jump")
        assert "headrace_clock_jumps_total 1.0" in server.http.get("/metrics").text
        assert "headrace_clock_offset_seconds 1728" in server.http.get("/metrics").text

        ahead[0] = 0
        assert server.send("readings", {"device": "a", "n": 4}).status_code == 200
        assert server.http.get("/readyz").json()["problems"] == []
        assert len(server.events("readings")) == 3
        assert stream_time(server) <= time.time() * 1000

        # A history import moves stream time by itself, as far as its newest event is.
        newest = wall_milliseconds() + 3_600_000
        server.send("readings", [{"device": "b", "$time": newest - 86_400_000 * n} for n in (1000, 10, 0)])
        assert stream_time(server) == newest
