"""The job of a batch layer in the engine: stretch by stretch, as fast as it may, until it is there.

Between two stretches it looks how fast it may go, and rests. Who stops it loses what the current one has computed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.errors import LogError, NotRunning
from headrace.log.base import Log
from headrace.process.base import LayerSpec
from headrace.process.layer import BatchLayer
from headrace.process.progress import Rate
from headrace.process.stretches import PACED_S, Stretches, count, next_length, paced_rows
from headrace.process.tries import Tries

if TYPE_CHECKING:
    from headrace.process.kafka.place import KafkaPlace

AGAIN_S = 0.5
LEAST_SHARE = 10
"""No stretch without a pace is shorter than this part of the first, however slow it was."""


class Pace:
    """How many rows a second somebody may read, which others may change, and stop."""

    def __init__(self, clock: Clock, rows_per_second: int) -> None:
        self._clock, self._rows_per_second = clock, rows_per_second
        self._changed = threading.Condition()
        self._stopped = False

    @property
    def rows_per_second(self) -> int:
        return self._rows_per_second

    def is_stopped(self) -> bool:
        return self._stopped

    def set(self, rows_per_second: int) -> None:
        with self._changed:
            self._rows_per_second = rows_per_second
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def left(self, began: float, rows: int) -> float:
        """Seconds until so many rows, read since then, are not too many."""
        if not self._rows_per_second or self._stopped:
            return 0.0
        return began + rows / self._rows_per_second - self._clock.monotonic()

    def rest(self, began: float, rows: int) -> None:
        """Until then, whatever the pace becomes meanwhile."""
        with self._changed:
            while (seconds := self.left(began, rows)) > 0:
                self._changed.wait(seconds)

    def wait(self, seconds: float) -> None:
        """Or until it is stopped."""
        with self._changed:
            self._changed.wait_for(self.is_stopped, seconds)


@dataclass(frozen=True, slots=True)
class LayerProgress:
    """In records; `stretch` is how many the one has that is being computed."""

    total: int = 0
    done: int = 0
    stretch: int = 0


def progress_of(stretches: Stretches) -> LayerProgress:
    return LayerProgress(stretches.total, stretches.total - stretches.left)


class LayerJob:
    """One thread calls `run`; any may look at `progress`, and change the pace."""

    def __init__(
        self,
        spark: SparkSession,
        where: Path | KafkaPlace,
        log: Log,
        clock: Clock,
        spec: LayerSpec,
        first_rows: int,
    ) -> None:
        self._spark, self._where, self._log, self._clock, self._spec = spark, where, log, clock, spec
        self._first_rows = first_rows
        self.pace = Pace(clock, spec.rows_per_second)
        # Over several stretches: rows come in one go, and then not for a while.
        self.rate = Rate(6 * PACED_S)
        self.progress = progress_of(Stretches(spec))

    def run(self, begins: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        """`begins` is called before each stretch, `failed` before one that failed is tried again. Raises what fails
        too often; what the log was away for does not count."""
        tries, length = Tries(), self._first_rows
        self._open().stretches.tidy()
        while not self.pace.is_stopped():
            try:
                # What was killed after it had committed is not computed again.
                done = self._log.last_identity(self._spec.id, 1) is not None
                if not done:
                    length, done = self._go_on(length, begins)
                if done:
                    self.progress = LayerProgress(self.progress.total, self.progress.total)
                    return
                tries.reset()
            except Exception as error:
                if self.pace.is_stopped():
                    return
                failed(error)
                if self._was_away():
                    continue
                seconds = tries.wait_after(error)
                if seconds is None:
                    raise
                # What it had written of the stretch takes room that it needs.
                self._open().stretches.tidy()
                self.pace.wait(seconds)

    def look(self) -> None:
        """How far it is by what is kept, whoever did that."""
        self.progress = progress_of(Stretches(self._spec))

    def _go_on(self, length: int, begins: Callable[[], None]) -> tuple[int, bool]:
        """One stretch; how long the next should be, and whether it was the last."""
        layer, began, pace = self._open(), self._clock.monotonic(), self.pace.rows_per_second
        ends = layer.stretches.next(paced_rows(pace) if pace else length)
        rows = layer.stretches.left if ends is None else count(layer.stretches.account.done, ends)
        self.progress = replace(self.progress, stretch=rows)
        begins()
        if self.pace.is_stopped():
            return length, False
        if ends is None:
            layer.commit()
            return length, True
        paced = layer.stretches.paced(pace)
        layer.keep(ends)
        took = self._clock.monotonic() - began
        self.progress = progress_of(layer.stretches)
        self.pace.rest(began, min(rows, paced))
        return length if pace else next_length(rows, took, max(1, self._first_rows // LEAST_SHARE)), False

    def _open(self) -> BatchLayer:
        layer = BatchLayer(self._spark, self._where, lambda name: self._log.topic(name).spec, self._spec)
        self.progress = progress_of(layer.stretches)
        return layer

    def _was_away(self) -> bool:
        """Whether the log was, and is back now; a server that was killed comes again."""
        away = False
        while not self.pace.is_stopped():
            try:
                self._log.last_identity(self._spec.id, 1)
                return away
            except (NotRunning, LogError, OSError):
                away = True
                self.pace.wait(AGAIN_S)
        return away
