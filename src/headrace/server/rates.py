"""How fast things move, over the last five seconds: records per second of each topic, function and delivery stream, and
events of each collector."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal

from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.log.base import Log, Snapshot

Kind = Literal["collector", "function", "delivery"]

WINDOW_S = 5.0
SAMPLE_S = 0.5

logger = logging.getLogger("headrace.server")


class Rates:
    """Safe to use from several threads."""

    def __init__(self, log: Log, clock: Clock, counts: Callable[[], Mapping[str, int]] = dict) -> None:
        """`counts` says how far collectors, functions and delivery streams are, by names as of `counted`."""
        self._log, self._clock, self._others = log, clock, counts
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque()
        self.sample()

    def sample(self) -> None:
        """Remember where the log is now, and forget what is older than the window."""
        now, ends = self._clock.monotonic(), self._counts()
        with self._lock:
            self._samples.append((now, ends))
            # The newest sample that is a whole window old stays: it is what the others are compared with.
            while len(self._samples) > 1 and self._samples[1][0] <= now - WINDOW_S:
                self._samples.popleft()

    def _counts(self) -> dict[str, int]:
        return _ends(self._log.snapshot()) | dict(self._others())

    def topic(self, name: str) -> float:
        """Records per second."""
        return self._rate(name)

    def of(self, kind: Kind, name: str) -> float:
        """Events per second of a collector, records per second of a function or a delivery stream."""
        return self._rate(counted(kind, name))

    def _rate(self, name: str) -> float:
        with self._lock:
            first, last = self._samples[0], self._samples[-1]
        seconds = last[0] - first[0]
        if seconds <= 0:
            return 0.0
        # A topic that was made meanwhile starts from nothing; one that was dropped and made again never goes backwards.
        return round(max(0, last[1].get(name, 0) - first[1].get(name, 0)) / seconds, 1)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            try:
                # Kafka answers over the network, and not always.
                await asyncio.to_thread(self.sample)
            except HeadraceError as error:
                logger.debug("no sample: %s", error)
            except Exception:
                # Nobody would begin it again.
                logger.exception("no sample")


def _ends(snapshot: Snapshot) -> dict[str, int]:
    return {name: sum(partition.end for partition in partitions) for name, partitions in snapshot.ends.items()}


def counted(kind: Kind, name: str) -> str:
    """No topic has such a name."""
    return f"{kind} {name}"
