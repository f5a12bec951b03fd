"""How a collector is doing: counted where events pass, put together over the processes that run it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from headrace.clock import Clock
from headrace.collect.base import Outcome
from headrace.errors import as_text
from headrace.structs import ready

State = Literal["running", "waiting", "failed", "disabled"]

COLLECTORS_STATUS = "collectors.status"
"""The name of the owner's `call` by which other processes report."""
COLLECTORS_REPORT_FILE = "collectors.json"
"""The same where no owner's socket connects them: in the project's data folder, written anew for each report."""
MOST_REPORTS = 64
"""Of processes that are silent, more than these are taken to have ended."""
STALE_AFTER_S = 15.0
"""Processes report at least every second; what one said this long ago, it does no more. A busy machine may keep one
silent for seconds."""
_SEVERITY: dict[State, int] = {"disabled": 0, "running": 1, "waiting": 2, "failed": 3}


class CollectorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One collector, as one process or all of them see it."""

    name: str
    state: State = "running"
    detail: str = ""
    """What it waits for, listens on, or failed with."""
    received: int = 0
    """Events; these are all: accepted + duplicates + rejected + shed, and those whose request failed."""
    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    """Dead letters."""
    shed: int = 0
    """Left out by `[shed]`, or counted as lost by a protocol that cannot be told to wait."""
    refused: int = 0
    """Not taken, and the sender was told so: over a quota, too busy, a full disk."""
    bytes: int = 0
    errors: int = 0
    last_error: str | None = None
    last_error_ms: int | None = None
    last_event_ms: int | None = None
    connections: int = 0
    components: dict[str, dict[str, int | float]] = {}
    """Of an agent: what each source, channel and sink counts since it was started."""


class Report(msgspec.Struct, frozen=True):
    """What a process says of its collectors."""

    process: str
    """Such as `listeners` or `collector 4711`: the same name replaces what it said before."""
    pid: int
    collectors: list[CollectorStatus] = []


class Counters:
    """What one running collector counts. Safe to use from several threads."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._now = {"received": 0, "accepted": 0, "duplicates": 0, "rejected": 0, "shed": 0, "refused": 0, "bytes": 0}
        self._errors = 0
        self._last_error: tuple[str, int] | None = None
        self._last_event_ms: int | None = None
        self.name = name
        self.state: State = "running"
        self.detail = ""
        self.connections = 0
        self.components: dict[str, dict[str, int | float]] = {}

    def took(self, outcome: Outcome, events: int, size: int) -> None:
        with self._lock:
            now = self._now
            now["received"] += events
            now["accepted"] += outcome.accepted
            now["duplicates"] += outcome.duplicates
            now["rejected"] += len(outcome.rejected)
            now["shed"] += outcome.shed
            now["bytes"] += size
            self._last_event_ms = self._clock.now_ms()

    def refused(self, events: int, why: str) -> None:
        """Not taken, and whoever sent them knows."""
        with self._lock:
            self._now["received"] += events
            self._now["refused"] += events
        self.failed(why)

    def lost(self, events: int) -> None:
        """Left out, and nobody can be told: counted here, never silent."""
        with self._lock:
            self._now["received"] += events
            self._now["shed"] += events

    def failed(self, why: str) -> None:
        """Something went wrong; the state is its own matter."""
        with self._lock:
            self._errors += 1
            self._last_error = (as_text(why[:500]), self._clock.now_ms())

    def becomes(self, state: State, detail: str = "") -> None:
        self.state, self.detail = state, as_text(detail)

    def status(self) -> CollectorStatus:
        with self._lock:
            error, when = self._last_error or (None, None)
            return CollectorStatus(
                name=self.name,
                state=self.state,
                detail=self.detail,
                errors=self._errors,
                last_error=error,
                last_error_ms=when,
                last_event_ms=self._last_event_ms,
                connections=self.connections,
                components=self.components,
                **self._now,
            )


class Kept(msgspec.Struct, frozen=True):
    """What a board knows, to be taken up by the next server."""

    gone: list[CollectorStatus] = []
    reports: list[Report] = []


class Board:
    """What all processes say, in the server. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reports: dict[str, tuple[Report, float]] = {}
        self._gone: dict[str, CollectorStatus] = {}
        """Counts of processes that have ended, so that sums do not go back."""

    def receive(self, body: Any) -> dict[str, Any]:
        """Take a report; the answer to the call."""
        self._receive(msgspec.convert(body, ready(Report)))
        return {}

    def _receive(self, report: Report) -> None:
        with self._lock:
            before = self._reports.pop(report.process, None)
            if before is not None:
                self._bury(_ended(before[0], report))
            self._reports[report.process] = (report, self._clock.monotonic())
            while len(self._reports) > MOST_REPORTS:
                oldest, _ = self._reports.pop(next(iter(self._reports)))
                self._bury(oldest.collectors)

    def status(self, name: str, own: CollectorStatus) -> CollectorStatus:
        """One collector over all processes. `own` is what this one counts."""
        now = self._clock.monotonic()
        with self._lock:
            gone = self._gone.get(name)
            found = [own] if gone is None else [own, _silent(gone)]
            for report, received in self._reports.values():
                # One that is silent may be heard again, and counts on from where it was.
                stale = now - received >= STALE_AFTER_S
                found += [_silent(one) if stale else one for one in report.collectors if one.name == name]
        return added(found) if len(found) > 1 else own

    def keep(self, own: Report) -> Kept:
        """All there is to know after this process, which is one of many."""
        with self._lock:
            return Kept(list(self._gone.values()), [*(report for report, _ in self._reports.values()), own])

    def take_up(self, kept: Kept, own: str) -> None:
        """What a former server knew. Other processes may have outlived it, and say so soon."""
        self._bury(kept.gone)
        for report in kept.reports:
            if report.process == own:
                self._bury(report.collectors)
            else:
                self._receive(report)

    def _bury(self, statuses: Iterable[CollectorStatus]) -> None:
        for status in statuses:
            known = self._gone.get(status.name)
            self._gone[status.name] = added([known, status]) if known else status


def _ended(before: Report, report: Report) -> list[CollectorStatus]:
    """What of a process's last report the next one does not count on from: all of it if it is another process, which
    may have the same number, but has counted less."""
    counts = {one.name: one.received for one in report.collectors} if before.pid == report.pid else {}
    return [one for one in before.collectors if counts.get(one.name, -1) < one.received]


def _silent(status: CollectorStatus) -> CollectorStatus:
    return msgspec.structs.replace(status, state="disabled", detail="", connections=0, components={})


def waiting_for_topic(topic: str) -> str:
    return (
        f"waiting for topic `{topic}`, which does not exist: declare a stream over it (CREATE STREAM … WITH "
        f"(KAFKA_TOPIC='{topic}')), or `headrace topic create {topic}`"
    )


def added(statuses: Iterable[CollectorStatus]) -> CollectorStatus:
    """Several processes' view of one collector: counts added, the worst state, the newest error."""
    found = list(statuses)
    worst = max(found, key=lambda one: _SEVERITY[one.state])
    newest = max(found, key=lambda one: one.last_error_ms or 0)
    return CollectorStatus(
        name=worst.name,
        state=worst.state,
        detail=worst.detail or next((one.detail for one in found if one.detail), ""),
        received=sum(one.received for one in found),
        accepted=sum(one.accepted for one in found),
        duplicates=sum(one.duplicates for one in found),
        rejected=sum(one.rejected for one in found),
        shed=sum(one.shed for one in found),
        refused=sum(one.refused for one in found),
        bytes=sum(one.bytes for one in found),
        errors=sum(one.errors for one in found),
        last_error=newest.last_error,
        last_error_ms=newest.last_error_ms,
        last_event_ms=max((one.last_event_ms or 0 for one in found), default=0) or None,
        connections=sum(one.connections for one in found),
        components=next((one.components for one in found if one.components), {}),
    )
