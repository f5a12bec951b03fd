"""When a query is stalled, and what is done about it. Spark's own part is a stand-in: how to make it hang is no secret,
but takes a minute."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from headrace.clock import ManualClock
from headrace.process.base import QuerySpec
from headrace.process.running import RunningQuery
from headrace.process.stall_watcher import LOOK_S, STOP_S, Position, StallWatcher
from headrace.process.stalls import StallWatch
from tests.process.pipeline import Pipeline
from tests.support import wait_for

SECONDS = 120.0
SQL = """
CREATE STREAM views (userid VARCHAR KEY, pageid VARCHAR) WITH (KAFKA_TOPIC='views', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE t AS SELECT pageid, COUNT(*) AS n FROM views GROUP BY pageid;
"""


def looks(watch: StallWatch, seconds: float, waiting: bool, committed: Hashable, work: Iterator[Hashable]) -> bool:
    """Whether it is found stalled within this time."""
    return any(watch.observe(LOOK_S, waiting, committed, lambda: next(work)) for _ in range(int(seconds / LOOK_S)))


def test_who_does_nothing_with_input_waiting_is_stalled() -> None:
    watch = StallWatch(SECONDS)
    assert not looks(watch, SECONDS - LOOK_S, True, "batch 7", itertools.repeat("a task"))
    assert looks(watch, 2 * LOOK_S, True, "batch 7", itertools.repeat("a task"))
    # It has been told; the time begins anew.
    assert not looks(watch, SECONDS - LOOK_S, True, "batch 7", itertools.repeat("a task"))


def test_a_long_batch_that_gets_on_is_not_stalled() -> None:
    """Three minutes of replay in one batch, of which Spark tells every ten seconds."""
    watch = StallWatch(SECONDS)
    rows = (number // 5 for number in itertools.count())
    assert not looks(watch, 180, True, "batch 7", rows)
    assert not looks(watch, 3600, True, "batch 7", rows)
    assert looks(watch, 2 * SECONDS, True, "batch 7", itertools.repeat("stuck"))


def test_who_commits_or_has_nothing_to_read_is_not_stalled() -> None:
    watch = StallWatch(SECONDS)
    for batch in range(100):
        assert not looks(watch, SECONDS / 2, True, batch, itertools.repeat("a task"))
    assert not looks(watch, 100 * SECONDS, False, "the last", itertools.repeat("no task"))
    assert not looks(watch, SECONDS / 2, True, "the last", itertools.repeat("no task"))


def test_a_machine_that_slept_has_no_stalled_queries() -> None:
    watch = StallWatch(SECONDS)
    watch.observe(LOOK_S, True, "batch 7", lambda: "a task")
    assert not watch.observe(8 * 3600.0, True, "batch 7", lambda: "a task")


def test_spark_is_not_asked_about_who_commits() -> None:
    asked: list[int] = []
    watch = StallWatch(SECONDS)
    for batch in range(1000):
        watch.observe(LOOK_S, True, batch, lambda: asked.append(1))
    assert asked == []


class Hanging:
    """Spark's query: it runs and does nothing. `stop` returns once it may."""

    isActive = True

    def __init__(self, may_stop: threading.Event, refuses: bool) -> None:
        self._may_stop, self.refuses = may_stop, refuses

    def stop(self) -> None:
        self._may_stop.wait()
        if self.refuses:
            raise RuntimeError("it does not stop")

    @property
    def _jsq(self) -> Any:
        return self

    def lastProgress(self) -> None:
        return None


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[QuerySpec]:
    with Pipeline(tmp_path, SQL) as pipeline:
        yield pipeline.spec("t")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Watched:
    """A query that hangs, and who watches it."""

    def __init__(self, spec: QuerySpec, clock: ManualClock, refuses: bool = False) -> None:
        self.may_stop, self.clock = threading.Event(), clock
        self.launched = 0
        self.committed = 0
        self.refuses = refuses
        self.query = RunningQuery(spec, self.launch, clock, 1.0)
        self.watcher = StallWatcher(lambda query: Position(True, self.committed, SECONDS), lambda query: "stuck", clock)
        self.query.launch()

    def recovered_ms(self) -> int | None:
        assert self.query.last_error is not None
        return self.query.last_error.recovered_ms

    def hopeless(self) -> str | None:
        return self.watcher.hopeless

    def launch(self, spec: QuerySpec) -> StreamingQuery:
        self.launched += 1
        return cast(StreamingQuery, Hanging(self.may_stop, self.refuses))

    def look(self, seconds: float) -> None:
        for _ in range(int(seconds / LOOK_S)):
            self.watcher.look([self.query], LOOK_S)
            self.clock.advance(int(LOOK_S * 1000))

    def stall(self) -> None:
        """Until it has been noticed and is launched again."""
        before = self.launched
        self.look(SECONDS + LOOK_S)
        assert self.query.state == "restarting"
        wait_for(lambda: self.query.retry_at is not None, 60, "the old run to stop")
        self.clock.advance(120_000)
        assert self.query.watch()
        # Spark needs seconds to start it; meanwhile others look.
        before_launch = self.hopeless()
        self.look(LOOK_S)
        assert self.hopeless() == before_launch
        self.query.launch()
        assert self.launched == before + 1


def test_a_stalled_query_is_restarted_and_then_the_engine(spec: QuerySpec, clock: ManualClock) -> None:
    watched = Watched(spec, clock)
    watched.may_stop.set()
    watched.stall()
    assert (watched.query.stalls, watched.query.restarts, watched.hopeless()) == (1, 1, None)
    assert watched.query.last_error is not None
    assert watched.query.last_error.message.startswith("it is stalled: input waits, but for 120 s it read no row")
    watched.stall()
    assert watched.hopeless() == f"query `{spec.id}` is stalled, also after 1 restarts"


def test_a_query_that_gets_on_has_recovered(spec: QuerySpec, clock: ManualClock) -> None:
    watched = Watched(spec, clock)
    watched.may_stop.set()
    watched.stall()
    assert watched.recovered_ms() is None
    watched.query.got_on()
    assert watched.query.stalls == 0
    assert watched.recovered_ms() == clock.now_ms()
    watched.stall()
    assert watched.hopeless() is None, "it is the first time again"


def test_a_run_that_cannot_be_stopped_needs_a_new_engine(spec: QuerySpec, clock: ManualClock) -> None:
    watched = Watched(spec, clock)
    watched.look(SECONDS + LOOK_S)
    assert watched.query.retry_at is None, "two runs must not share a checkpoint"
    assert watched.hopeless() is None
    watched.look(STOP_S + LOOK_S)
    assert watched.hopeless() == f"the stalled run of query `{spec.id}` cannot be stopped"
    watched.may_stop.set()


def test_a_run_that_fails_to_stop_needs_a_new_engine(spec: QuerySpec, clock: ManualClock) -> None:
    watched = Watched(spec, clock, refuses=True)
    watched.may_stop.set()
    watched.look(SECONDS + LOOK_S)
    wait_for(lambda: watched.hopeless() is not None, 60, "the run to fail to stop")
    assert watched.hopeless() == f"the stalled run of query `{spec.id}` cannot be stopped"
    assert watched.query.retry_at is None, "two runs must not share a checkpoint"
