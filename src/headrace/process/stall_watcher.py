"""Restarts queries that are stalled, and says when only a new engine helps."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.process.running import RunningQuery
from headrace.process.stalls import Stalled, StallWatch

LOOK_S = 2.0
STOP_S = 30.0
"""A run that cannot be stopped within this time keeps a thread of Spark's for ever."""

logger = logging.getLogger("headrace.process")


@dataclass(frozen=True, slots=True)
class Position:
    """What is seen of a query at one look."""

    waiting: bool
    """Whether there is input that it has not read and may read."""
    committed: Hashable
    """Changes with every commit."""
    seconds: float
    """For how long it may be silent."""


@dataclass(slots=True)
class _Watched:
    watch: StallWatch
    stopping: threading.Thread | None = None
    stopping_s: float = 0.0
    """For how long its last run has been asked to stop."""


@dataclass(slots=True)
class StallWatcher:
    """`look` is called every `LOOK_S` by one thread."""

    position: Callable[[RunningQuery], Position]
    work: Callable[[RunningQuery], Hashable]
    """What Spark's tasks have done so far for a query."""
    clock: Clock
    patience: int = 1
    """How often a query is restarted before the engine is."""
    hopeless: str | None = None
    """Which query needs a new engine, in words; None while none does."""
    _watched: dict[str, _Watched] = field(default_factory=dict)

    def look(self, queries: list[RunningQuery], elapsed: float) -> None:
        self._watched = {id: watched for id, watched in self._watched.items() if id in {q.spec.id for q in queries}}
        for query in queries:
            try:
                self._look_at(query, elapsed)
            except HeadraceError as error:
                # The log is away, which the query notices by itself.
                logger.debug("how far `%s` is cannot be seen: %s", query.spec.id, error)

    def _look_at(self, query: RunningQuery, elapsed: float) -> None:
        known = self._watched.get(query.spec.id)
        if known is not None and known.stopping is not None:
            self._check_stopping(query, known, elapsed)
        if query.state != "running":
            return
        at = self.position(query)
        if at.seconds <= 0:
            return
        if known is None:
            known = self._watched[query.spec.id] = _Watched(StallWatch(at.seconds))
        if known.watch.observe(elapsed, at.waiting, at.committed, lambda: self.work(query)):
            self._restart(query, known, at.seconds)

    def _restart(self, query: RunningQuery, known: _Watched, seconds: float) -> None:
        error = Stalled(
            f"it is stalled: input waits, but for {seconds:g} s it read no row, finished no task and committed nothing",
            detail="it is restarted from its checkpoint; nothing is lost",
            hint="logs/engine.log may say what it waits for; `[spark] stall_seconds` is the time",
        )
        streaming = query.give_up_batch(error)
        if streaming is None:
            return
        logger.error("query `%s`: %s", query.spec.id, error.message)
        if query.stalls > self.patience:
            self.hopeless = f"query `{query.spec.id}` is stalled, also after {query.stalls - 1} restarts"

        def stop() -> None:
            try:
                streaming.stop()
            except Exception:
                logger.exception("the stalled run of `%s` did not stop", query.spec.id)
                self._give_up(query)
                return
            query.retry()

        known.stopping, known.stopping_s = threading.Thread(target=stop, name="headrace-stop", daemon=True), 0.0
        known.stopping.start()

    def _check_stopping(self, query: RunningQuery, known: _Watched, elapsed: float) -> None:
        assert known.stopping is not None
        if not known.stopping.is_alive():
            known.stopping = None
            return
        known.stopping_s += min(elapsed, 2 * LOOK_S)
        if known.stopping_s >= STOP_S:
            self._give_up(query)

    def _give_up(self, query: RunningQuery) -> None:
        self.hopeless = f"the stalled run of query `{query.spec.id}` cannot be stopped"
