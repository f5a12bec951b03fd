"""Time, passed in: nothing in Headrace reads the wall clock by itself."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for stamping events, monotonic time for measuring durations."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch. May jump, either way."""

    def monotonic(self) -> float:
        """Seconds that only grow."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


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
