"""`seq` and `stress`: events made up, to try an agent with."""

from __future__ import annotations

import time

from headrace.collect.agents.base import NO_HEADERS, Event, PollingSource
from headrace.collect.agents.options import ComponentKind, Context, Option


class SequenceSource(PollingSource):
    """0, 1, 2 …: the same number again only if the channels did not take it."""

    def __init__(self, batch_size: int = 1, total: int = 2**63 - 1) -> None:
        self._batch_size, self._total = batch_size, total
        self._next = self._given = 0

    def poll(self) -> list[Event]:
        self._given = min(self._next + self._batch_size, self._total)
        return [Event(b"%d" % number) for number in range(self._next, self._given)]

    def taken(self) -> None:
        self._next = self._given

    @property
    def done(self) -> bool:
        return self._next >= self._total


class StressSource(PollingSource):
    """Events of one size, as fast as the channels take them, or so many a second."""

    def __init__(self, size: int = 500, batch_size: int = 1, total: int = -1, per_second: int = 0) -> None:
        self._batch_size, self._total, self._per_second = batch_size, total, per_second
        # As Flume's: bytes of all values.
        body = bytes(number % 256 for number in range(size))
        self._batch = [Event(body, NO_HEADERS) for _ in range(batch_size)]
        self._sent, self._given = 0, 0
        self._started: float | None = None

    def poll(self) -> list[Event]:
        now = time.monotonic()
        self._started = self._started if self._started is not None else now
        count = self._batch_size if self._total < 0 else min(self._batch_size, self._total - self._sent)
        if self._per_second and self._sent + count > (now - self._started) * self._per_second + self._batch_size:
            count = 0
        self._given = count
        return self._batch[:count]

    def taken(self) -> None:
        self._sent += self._given

    @property
    def done(self) -> bool:
        return 0 <= self._total <= self._sent


SEQ = ComponentKind(
    "source",
    ("seq", "org.apache.flume.source.SequenceGeneratorSource"),
    "Counts: 0, 1, 2 …",
    lambda context: _sequence(context),
    (
        Option("batchSize", "integer", 1, "Events at once.", least=1),
        Option("totalEvents", "integer", 2**63 - 1, "Stop after so many.", least=0),
    ),
)
STRESS = ComponentKind(
    "source",
    ("stress", "org.apache.flume.source.StressSource"),
    "Makes events of one size, as many as the channels take.",
    lambda context: _stress(context),
    (
        Option("size", "integer", 500, "Bytes of a body.", least=0),
        Option("batchSize", "integer", 1, "Events at once.", least=1),
        Option("maxTotalEvents", "integer", -1, "Stop after so many; -1 is never.", also=("maxSuccessfulEvents",)),
        Option("maxEventsPerSecond", "integer", 0, "No faster than this; 0 is no limit.", least=0),
    ),
)


def _sequence(context: Context) -> SequenceSource:
    return SequenceSource(context.options.integer("batchSize"), context.options.integer("totalEvents"))


def _stress(context: Context) -> StressSource:
    options = context.options
    return StressSource(
        options.integer("size"),
        options.integer("batchSize"),
        options.integer("maxTotalEvents"),
        options.integer("maxEventsPerSecond"),
    )
