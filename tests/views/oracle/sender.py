"""Somebody who goes on sending, whatever is done to the pipelines meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from headrace.log.base import Append, Log
from tests.process.oracle.run import endless_events
from tests.process.pipeline import batch_of
from tests.support import wait_for

PAUSES_S = (0.0, 0.0, 0.0, 2.5)
"""After an append: bursts, and time in which queries catch up."""
LONGEST_PAUSE_S = 20.0
"""For what is to catch up on a busy machine: events come while it does, but not so many that it never gets there."""
PATIENCE = 60.0


class Sender(threading.Thread):
    """Random records of the oracle's topics until the block ends: late, out of order, without a key or a value, some of
    them twice."""

    def __init__(self, log: Log, chance: random.Random, caught_up: Callable[[], bool]) -> None:
        super().__init__(name="oracle-sender")
        self._caught_up = caught_up
        self._log, self._events, self._chance = log, endless_events(chance), random.Random(chance.random())
        self._finish = threading.Event()
        self.sent = 0
        """How many appends there were."""
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for (topic, rows), repeats in self._events:
                for _ in range(repeats):
                    self._log.append([Append(topic, batch_of(self._log.topic(topic), rows))]).result(120)
                    self.sent += 1
                if self._pause(self._chance.choice(PAUSES_S)):
                    return
        except BaseException as error:
            self.failure = error

    def _pause(self, seconds: float) -> bool:
        """Whether that was the end."""
        ended, deadline = self._finish.wait(seconds), time.monotonic() + LONGEST_PAUSE_S
        while seconds and not ended and time.monotonic() < deadline and not self._caught_up():
            ended = self._finish.wait(0.1)
        return ended

    def more(self, appends: int) -> None:
        """Until there are so many more."""
        goal = self.sent + appends
        wait_for(lambda: self.sent >= goal or not self.is_alive(), PATIENCE, f"{appends} more appends")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish.set()
        self.join()
        if self.failure is not None and error is None:
            raise self.failure
