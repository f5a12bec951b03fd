"""When a query is stalled: input waits, and for a while nothing was committed, no task finished and no row was read."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from headrace.errors import HeadraceError

LONGEST_STEP_S = 5.0
"""How much one look adds at the most. A machine that slept or starved the watcher says nothing about the query."""
SUSPICIOUS = 0.25
"""Which part of the time without a commit passes before Spark is asked what its tasks do."""


class Stalled(HeadraceError):
    code = "stalled"


class StallWatch:
    """Judges one query by what is seen of it, every few seconds. A long batch whose tasks get on is not stalled."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._committed: Hashable = None
        self._work: Hashable = None
        self._silent = 0.0

    def observe(self, elapsed: float, waiting: bool, committed: Hashable, work: Callable[[], Hashable]) -> bool:
        """Return whether the query is stalled; then the time begins anew. `committed` changes with every commit. `work`
        returns something that changes with every finished task and row; it is called only when a commit is overdue."""
        if not waiting or committed != self._committed:
            self._committed, self._work, self._silent = committed, None, 0.0
            return False
        self._silent += min(elapsed, LONGEST_STEP_S)
        suspicious = self._seconds * SUSPICIOUS
        if self._silent >= suspicious:
            seen = work()
            if self._work is not None and seen != self._work:
                self._silent = suspicious
            self._work = seen
        if self._silent < self._seconds:
            return False
        self._silent = 0.0
        return True
