"""How much a shard takes a second, where a limit is set: Kinesis's own is 1,000 records and 1 MiB."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from headrace.clock import Clock

MOST_SHARDS = 100_000


@dataclass(frozen=True, slots=True)
class Rate:
    """0 is no limit."""

    records: float = 0
    bytes: float = 0


class Quota:
    """What is left of each shard's second. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[tuple[int, int], tuple[float, float, float]] = {}

    def take(self, shard: tuple[int, int], rate: Rate, size: int) -> bool:
        """Whether one more record fits."""
        now = self._clock.monotonic()
        with self._lock:
            records, size_left, since = self._left.get(shard, (rate.records, rate.bytes, now))
            records = min(rate.records, records + (now - since) * rate.records)
            size_left = min(rate.bytes, size_left + (now - since) * rate.bytes)
            # A record larger than a second's bytes passes when nothing of the second was used.
            fits = (not rate.records or records >= 1) and (not rate.bytes or size_left >= min(size, rate.bytes))
            if len(self._left) >= MOST_SHARDS:
                self._left.clear()
            self._left[shard] = (records - fits, size_left - size * fits, now)
            return fits
