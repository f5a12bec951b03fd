"""Counts wrong keys and refusals by address, so that whoever guesses is slowed down and fills no log."""

from __future__ import annotations

import threading
from collections import OrderedDict

from headrace.clock import Clock

MOST, WINDOW_S = 10, 60.0
ADDRESSES = 10_000
"""Addresses that are remembered; of more, the oldest are forgotten."""


class AddressLimit:
    """Lets each address have ten of something a minute. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def add(self, address: str) -> float:
        """Count one; return for how many seconds the address has used up what it may, 0.0 if it has not."""
        now = self._clock.monotonic()
        with self._lock:
            since, count = self._seen.pop(address, (now, 0))
            if now - since >= WINDOW_S:
                since, count = now, 0
            self._seen[address] = since, count + 1
            while len(self._seen) > ADDRESSES:
                self._seen.popitem(last=False)
        return max(0.0, since + WINDOW_S - now) if count >= MOST else 0.0
