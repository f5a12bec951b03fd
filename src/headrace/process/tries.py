"""How often a step that failed is tried again: a few times, or for as long as there is no room on the disk."""

from __future__ import annotations

from headrace.process.backoff import Backoff
from headrace.process.failures import is_disk_full

TRIES = 3
FIRST_S = 1.0


class Tries:
    """Of one step at a time."""

    def __init__(self) -> None:
        self._made = 0
        self._backoff = Backoff(FIRST_S)

    def wait_after(self, error: Exception) -> float | None:
        """Seconds until the next one; None if there were enough. A full disk says nothing against what is done: it is
        waited for, as queries do, and what was done before is not given up for it."""
        if is_disk_full(error):
            return self._backoff.next()
        self._made += 1
        return 0.0 if self._made < TRIES else None

    def reset(self) -> None:
        """The step is done."""
        self._made = 0
        self._backoff.reset()
