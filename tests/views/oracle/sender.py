"""Somebody who goes on sending, whatever is done to the pipelines meanwhile."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Self

from headrace.log.base import Append, Log
from tests.process.oracle.run import endless_events
from tests.process.pipeline import batch_of
from tests.support import wait_for

PAUSES_S = (0.0, 0.0, 0.0, 2.5)
"""After an append: bursts, and time in which queries have caught up, or nearly."""
PATIENCE = 30.0


class Sender(threading.Thread):
    """Random records of the oracle's topics until the block ends: late, out of order, without a key or a value, some of
    them twice."""

    def __init__(self, log: Log, chance: random.Random) -> None:
        super().__init__(name="oracle-sender")
        self._log, self._events, self._chance = log, endless_events(chance), random.Random(chance.random())
        self._finish = threading.Event()
        self.sent = 0
        """How many appends there were."""
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for (topic, rows), repeats in self._events:
                for _ in range(repeats):
                    self._log.append([Append(topic, batch_of(self._log.topic(topic), rows))]).result(30)
                    self.sent += 1
                if self._finish.wait(self._chance.choice(PAUSES_S)):
                    return
        except BaseException as error:
            self.failure = error

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
