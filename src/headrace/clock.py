"""Time, passed in: nothing in Headrace reads the wall clock by itself."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

TOLERANCE_MS = 2_000
DRIFT = 0.001
"""How much faster or slower than the monotonic clock the wall clock may run: a clock that is being corrected gradually
differs by half of that."""
_TORN_S, _ANCHOR_MS = 0.1, 1000

logger = logging.getLogger("headrace.clock")


class Clock(Protocol):
    """Wall time for stamping events, monotonic time for measuring durations."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch. May jump, either way."""

    def monotonic(self) -> float:
        """Seconds that only grow."""


def wall_milliseconds() -> int:
    return time.time_ns() // 1_000_000


class SystemClock:
    def now_ms(self) -> int:
        return wall_milliseconds()

    def monotonic(self) -> float:
        return time.monotonic()


def _steady_clock() -> Callable[[], float]:
    clock = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    return time.monotonic if clock is None else partial(time.clock_gettime, clock)


steady_seconds = _steady_clock()
"""Seconds that only grow, and also count while the machine sleeps, where the system can tell."""


@dataclass(frozen=True, slots=True)
class Jump:
    """A difference between the machine's wall clock and the time in use."""

    offset_ms: int
    """How far the wall clock is ahead; negative if it is behind."""
    since: float
    """In steady seconds."""

    def __str__(self) -> str:
        seconds = abs(self.offset_ms) / 1000
        size = f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 3600:.1f} h"
        return f"{size} {'forward' if self.offset_ms > 0 else 'back'}"


class GuardedClock:
    """A clock that does not follow a jump of the machine's wall clock before it has lasted.

    One wrong wall time would be the event time of whatever arrives, and all that follows would be late. So wall time is
    compared with the steady clock: small corrections are followed; after a jump, time goes on by the steady clock until
    the wall clock is back, or has stayed where it is for `trust_s` seconds. Safe to use from several threads.
    """

    def __init__(
        self,
        trust_s: float,
        wall_ms: Callable[[], int] = wall_milliseconds,
        steady: Callable[[], float] = steady_seconds,
    ) -> None:
        self.jumps = 0
        """How many there were."""
        self._trust_s, self._wall_ms, self._steady = trust_s, wall_ms, steady
        self._lock = threading.Lock()
        self._jump: Jump | None = None
        wall, now = self._read()
        self._anchor = (wall, now)
        """A wall time that was believed, and when that was."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        wall, now = self._wall_ms(), self._steady()
        believed, since = self._anchor
        passed_ms = (now - since) * 1000
        if self._jump is None and abs(wall - believed - passed_ms) <= TOLERANCE_MS:
            if passed_ms > _ANCHOR_MS:
                self._anchor = (wall, now)
            return wall
        with self._lock:
            return self._judge(*self._read())

    def jump(self) -> Jump | None:
        """Return by how much the wall clock is off now, as long as it is not believed."""
        self.now_ms()
        return self._jump

    def _read(self) -> tuple[int, float]:
        """Both clocks at one moment: a process that was stopped between two readings must not see a jump."""
        while True:
            before, wall, after = self._steady(), self._wall_ms(), self._steady()
            if after - before < _TORN_S:
                return wall, after

    def _expect(self, now: float) -> tuple[int, float]:
        """Return what the wall clock should say, and how far it may be off."""
        wall, since = self._anchor
        passed_ms = max(0.0, now - since) * 1000
        return wall + int(passed_ms), TOLERANCE_MS + passed_ms * DRIFT

    def _judge(self, wall: int, now: float) -> int:
        expected, allowed = self._expect(now)
        offset, jump = wall - expected, self._jump
        if abs(offset) <= allowed:
            if jump is not None:
                logger.warning("the machine's clock is right again, after a jump of %s", jump)
            self._jump, self._anchor = None, (wall, now)
            return wall
        if jump is None or abs(offset - jump.offset_ms) > allowed:
            self.jumps += 1
            self._jump = Jump(offset, now)
            logger.warning(
                "the machine's clock jumped %s; times go on without the jump, unless it lasts for %g s",
                self._jump,
                self._trust_s,
            )
        elif now - jump.since >= self._trust_s:
            logger.warning("the machine's clock has stayed where it jumped to, %s: it is followed now", jump)
            self._jump, self._anchor = None, (wall, now)
            return wall
        return expected


class ManualClock:
    """A clock that stands still until told otherwise, for tests."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, milliseconds: int) -> None:
        self._now_ms += milliseconds
        self._monotonic += milliseconds / 1000
