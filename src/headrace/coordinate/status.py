"""What the engine last said about itself and its queries. Kept in the server's memory: it is news, not state."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from headrace.clock import Clock
from headrace.process.base import QueryStatus
from headrace.structs import ready

STALE_AFTER_S = 30.0
"""The engine reports twice a second; silence this long means it is gone, whatever its process does. A machine that is
busy with something else keeps it silent for seconds; that its process ended is seen at once."""

ENGINE_STATUS = "engine.status"
"""The name of the owner's `call` the engine reports with."""


class EngineReport(msgspec.Struct, frozen=True):
    """One report, as it travels over the owner's socket."""

    state: str
    """`starting` (Spark is not up yet), `running`, `stopping`."""
    pid: int
    queries: list[QueryStatus] = []
    detail: str | None = None
    reconciled: int = 0
    """How many of the catalog's events its queries run by."""


class EngineState(TypedDict):
    state: str
    pid: int | None
    updated_ms: int | None
    detail: str | None


class EngineStatus:
    """Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._report: EngineReport | None = None
        self._received = 0.0
        self._updated_ms = 0

    def receive(self, body: Any) -> dict[str, Any]:
        """Take a report; the answer to the engine's call."""
        report = msgspec.convert(body, ready(EngineReport))
        with self._lock:
            self._report, self._received = report, self._clock.monotonic()
            self._updated_ms = self._clock.now_ms()
        return {}

    def status(self, query_id: str) -> QueryStatus | None:
        return next((status for status in self.all() if status.id == query_id), None)

    def all(self) -> list[QueryStatus]:
        """Of every query the engine knows; nothing once the engine is gone."""
        with self._lock:
            return list(self._report.queries) if self._report and self._fresh() else []

    def reconciled(self) -> int | None:
        """How many of the catalog's events the engine's queries run by; None if no engine runs."""
        with self._lock:
            return self._report.reconciled if self._report and self._fresh() else None

    def state(self) -> EngineState:
        with self._lock:
            if self._report is None:
                return {"state": "gone", "pid": None, "updated_ms": None, "detail": None}
            report = self._report
            fresh = self._fresh()
            return {
                "state": report.state if fresh else "gone",
                "pid": report.pid if fresh else None,
                "updated_ms": self._updated_ms,
                "detail": report.detail if fresh else None,
            }

    def _fresh(self) -> bool:
        assert self._report is not None
        return self._clock.monotonic() - self._received < STALE_AFTER_S and is_alive(self._report.pid)


def is_alive(pid: int) -> bool:
    """Whether the process runs: one that was killed says so before its silence does. One that has ended and was not
    yet waited for is not alive."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except FileNotFoundError:
        return not Path("/proc/self/stat").exists()  # without /proc nothing is known, so it is believed
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
