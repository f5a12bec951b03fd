"""Queries run, stop, fail and come back, each by itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.config import SparkSettings
from headrace.errors import Conflict, NotFound
from headrace.process.base import QueryStatus
from headrace.process.runner import SparkQueryRunner
from tests.process.pipeline import Pipeline
from tests.support import wait_for

pytestmark = pytest.mark.spark

STREAM = """
CREATE STREAM views (userid VARCHAR KEY, pageid VARCHAR) WITH (KAFKA_TOPIC='views', VALUE_FORMAT='JSON', PARTITIONS=2);
"""
SECONDS = 60.0
QUICK = SparkSettings(restart_backoff_s=0.1)


@contextmanager
def running(
    spark: SparkSession, pipeline: Pipeline, *sinks: str, settings: SparkSettings = QUICK
) -> Iterator[SparkQueryRunner]:
    runner = SparkQueryRunner(spark, pipeline.log_folder, settings, SystemClock(), pipeline.log)
    try:
        for sink in sinks:
            runner.start(pipeline.spec(sink))
        yield runner
    finally:
        runner.close()


def status(runner: SparkQueryRunner, pipeline: Pipeline, sink: str) -> QueryStatus:
    return next(s for s in runner.statuses() if s.id == pipeline.spec(sink).id)


def views(pipeline: Pipeline, topic: str) -> int:
    return sum(row["VIEWS"] for row in pipeline.table(topic))


def put(pipeline: Pipeline, count: int, time: int = 0) -> None:
    pipeline.put("views", [{"USERID": f"u{n}", "PAGEID": f"/{n % 3}", "$time": time} for n in range(count)])


def count_table(name: str) -> str:
    return f"CREATE TABLE {name} AS SELECT pageid, COUNT(*) AS views FROM views GROUP BY pageid;"


def test_a_query_keeps_to_a_bound_that_is_set_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    with Pipeline(tmp_path, STREAM + count_table("t")) as pipeline:
        put(pipeline, 3)
        with running(spark, pipeline, "t") as runner:
            wait_for(lambda: views(pipeline, "T") == 3, SECONDS, "the first three")
            id_ = status(runner, pipeline, "t").id
            assert runner.bound(id_, pipeline.log.snapshot().arrival)
            put(pipeline, 2)
            reached = pipeline.log.snapshot().arrival
            put(pipeline, 4)
            assert runner.bound(id_, reached)
            wait_for(lambda: views(pipeline, "T") == 5, SECONDS, "those below the bound")
            wait_for(lambda: status(runner, pipeline, "t").lag == 4, SECONDS, "the others to be left")
            assert runner.bound(id_, None)
            wait_for(lambda: views(pipeline, "T") == 9, SECONDS, "all of them")


def test_a_query_stops_and_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    sql = (
        STREAM
        + """
    CREATE TABLE t AS SELECT pageid, COUNT(*) AS views FROM views
      WINDOW TUMBLING (SIZE 1 SECOND, GRACE PERIOD 0 SECONDS) GROUP BY pageid;"""
    )
    with Pipeline(tmp_path, sql) as pipeline:
        put(pipeline, 30, time=5_000)
        with running(spark, pipeline, "t") as runner:
            wait_for(lambda: views(pipeline, "T") == 30, SECONDS, "the first thirty")
            put(pipeline, 5, time=1_000)
            wait_for(lambda: status(runner, pipeline, "t").late_rows == 5, SECONDS, "five late ones")
            wait_for(lambda: status(runner, pipeline, "t").lag == 0, SECONDS, "no lag")
            first = status(runner, pipeline, "t")
            assert (first.state, first.rows, first.changed_rows, first.restarts) == ("running", 35, 3, 0)
            assert (first.stream_time_ms, first.state_rows, first.last_error) == (5_000, 3, None)
            assert first.spark_plan is not None
            assert "late_input" in first.spark_plan or "headrace" in first.spark_plan
            runner.stop(first.id)
            assert status(runner, pipeline, "t").state == "stopped"
            put(pipeline, 10, time=5_500)
        with running(spark, pipeline, "t") as runner:
            wait_for(lambda: views(pipeline, "T") == 40, SECONDS, "the ten that came meanwhile")
            wait_for(lambda: status(runner, pipeline, "t").rows == 45, SECONDS, "the progress")
            second = status(runner, pipeline, "t")
            assert (second.late_rows, second.batch, second.lag) == (5, first.batch + 1, 0)


def test_a_query_that_stands_still_is_stalled_until_it_gets_on(spark: SparkSession, tmp_path: Path) -> None:
    """Both cores are taken by a job that does nothing, as if its tasks hung."""
    gate = str(tmp_path / "gate")

    def hang(number: int) -> int:
        while not os.path.exists(gate):
            time.sleep(0.05)
        return number

    def occupy() -> None:
        spark.sparkContext.parallelize([1, 2], 2).map(hang).count()

    with Pipeline(tmp_path, STREAM + count_table("t")) as pipeline:
        put(pipeline, 3)
        settings = SparkSettings(restart_backoff_s=0.1, stall_seconds=12.0)
        with running(spark, pipeline, "t", settings=settings) as runner:
            wait_for(lambda: views(pipeline, "T") == 3, SECONDS, "the first three")
            occupying = threading.Thread(target=occupy)
            occupying.start()
            try:
                put(pipeline, 4)
                wait_for(lambda: status(runner, pipeline, "t").state == "stalled", SECONDS, "the stall to be noticed")
                stalled = status(runner, pipeline, "t")
                assert stalled.last_error is not None
                assert stalled.last_error.message.startswith("it is stalled: input waits, but for 12 s it read no row")
                assert (stalled.lag, stalled.last_error.recovered_ms) == (4, None)
            finally:
                (tmp_path / "gate").touch()
                occupying.join()
            wait_for(lambda: views(pipeline, "T") == 7, SECONDS, "the others")
            wait_for(lambda: status(runner, pipeline, "t").state == "running", SECONDS, "it to have recovered")
            recovered = status(runner, pipeline, "t")
            assert recovered.restarts >= 1
            assert recovered.last_error is not None
            assert recovered.last_error.recovered_ms is not None


def test_what_a_running_task_has_done_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    """Of a batch of one long task Spark's counters are all there is to see. They come every ten seconds."""
    context: Any = spark.sparkContext
    work = context._jvm.dev.headrace.spark.Work.watch(context._jsc.sc())
    gate = str(tmp_path / "gate")

    def hang(rows: Iterator[Any]) -> Iterator[Any]:
        yield from rows
        while not os.path.exists(gate):
            time.sleep(0.05)

    def occupy() -> None:
        context.setLocalProperty("spark.scheduler.pool", "slow")
        spark.range(0, 1000, 1, 1).mapInArrow(hang, "id BIGINT").count()

    occupying = threading.Thread(target=occupy)
    occupying.start()
    try:
        wait_for(lambda: bool(re.fullmatch(r"\d+:0\{\d+=-?\d+\} ", work.of("slow"))), SECONDS, "the task's counters")
        assert work.of("another") == ""
    finally:
        (tmp_path / "gate").touch()
        occupying.join()
        context._jsc.sc().removeSparkListener(work)


def test_a_second_start_is_nothing_and_strangers_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with Pipeline(tmp_path, STREAM + count_table("t")) as pipeline, running(spark, pipeline, "t") as runner:
        runner.start(pipeline.spec("t"))
        assert len(runner.statuses()) == 1
        with pytest.raises(NotFound):
            runner.stop("CTAS_NOBODY_9")
        put(pipeline, 3)
        wait_for(lambda: views(pipeline, "T") == 3, SECONDS, "three")
        checkpoint = pipeline.spec("t").checkpoint
        assert checkpoint.exists()
        runner.forget(pipeline.spec("t").id)
        assert not checkpoint.exists()
        assert runner.statuses() == []
    with pytest.raises(Conflict):
        runner.start(pipeline.spec("t"))


def test_a_query_that_keeps_more_than_it_may_stops_and_the_others_go_on(spark: SparkSession, tmp_path: Path) -> None:
    limited = count_table("greedy").replace(
        "AS SELECT pageid", "WITH (MAX_STATE_ROWS=2, MAX_BATCH_ROWS=4) AS SELECT pageid"
    )
    sql = STREAM + count_table("good") + limited
    with Pipeline(tmp_path, sql) as pipeline:
        put(pipeline, 2)
        with running(spark, pipeline, "good", "greedy") as runner:
            wait_for(lambda: views(pipeline, "GREEDY") == 2, SECONDS, "what is within its limit")
            put(pipeline, 6)
            wait_for(lambda: status(runner, pipeline, "greedy").state == "failed", SECONDS, "the limit")
            wait_for(lambda: views(pipeline, "GOOD") == 8, SECONDS, "the other to go on")
            stopped = status(runner, pipeline, "greedy")
            assert stopped.last_error is not None
            assert stopped.last_error.message == "its state has 3 rows, more than the 2 it may have"
            assert "MAX_STATE_ROWS=2" in (stopped.last_error.detail or "")
            assert stopped.restarts == 0
        # With a higher limit it goes on, and nothing was lost.
        pipeline.executor.execute(limited.replace("CREATE", "CREATE OR REPLACE").replace("=2", "=20"))
        with running(spark, pipeline, "greedy") as runner:
            wait_for(lambda: views(pipeline, "GREEDY") == 8, SECONDS, "all eight")
            wait_for(lambda: status(runner, pipeline, "greedy").state == "running", SECONDS, "it to run")


def test_a_failing_query_backs_off_and_comes_back_while_another_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    sql = STREAM + count_table("good") + count_table("bad")
    with Pipeline(tmp_path, sql) as pipeline, running(spark, pipeline, "good", "bad") as runner:
        put(pipeline, 6)
        for sink in ("good", "bad"):
            wait_for(lambda sink=sink: views(pipeline, sink.upper()) == 6, SECONDS, f"six in {sink}")  # type: ignore[misc]
        lost = pipeline.topic("BAD")
        pipeline.log.delete_topic("BAD")
        put(pipeline, 6)
        wait_for(lambda: views(pipeline, "GOOD") == 12, SECONDS, "the other to go on")
        wait_for(lambda: status(runner, pipeline, "bad").restarts >= 2, SECONDS, "two restarts")
        failing = status(runner, pipeline, "bad")
        assert failing.state in ("restarting", "running")
        assert failing.last_error is not None
        assert "BAD" in failing.last_error.message
        assert len(failing.last_error.message) < 301
        assert status(runner, pipeline, "good").restarts == 0
        pipeline.log.create_topic(lost)
        # Its state is whole; only what changed since is written to the new topic.
        wait_for(lambda: views(pipeline, "BAD") == 12, SECONDS, "it to come back")
        wait_for(lambda: status(runner, pipeline, "bad").state == "running", SECONDS, "it to say so")


@pytest.mark.parametrize(
    ("harm", "said"),
    [("deleted", "its checkpoint is missing"), ("rolled back", "its checkpoint is older than the log")],
)
def test_a_harmed_checkpoint_is_noticed(spark: SparkSession, tmp_path: Path, harm: str, said: str) -> None:
    with Pipeline(tmp_path, STREAM + count_table("t")) as pipeline:
        checkpoint, copy = pipeline.spec("t").checkpoint, tmp_path / "copy"
        put(pipeline, 3)
        pipeline.run(spark, "t")
        shutil.copytree(checkpoint, copy)
        put(pipeline, 3)
        pipeline.run(spark, "t")
        shutil.rmtree(checkpoint)
        if harm == "rolled back":
            shutil.copytree(copy, checkpoint)
        # At once, not with the first event.
        with running(spark, pipeline, "t") as runner:
            wait_for(lambda: status(runner, pipeline, "t").state == "failed", SECONDS, "it to fail")
            failed = status(runner, pipeline, "t")
        assert failed.last_error is not None
        assert said in failed.last_error.message
        assert "headrace view rebuild t" in (failed.last_error.detail or "")
        assert failed.restarts == 0
        assert views(pipeline, "T") == 6


def test_a_checkpoint_that_is_deleted_while_its_query_runs_fails_it_for_good(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Pipeline(tmp_path, STREAM + count_table("t")) as pipeline:
        put(pipeline, 3)
        with running(spark, pipeline, "t") as runner:
            wait_for(lambda: views(pipeline, "T") == 3, SECONDS, "the first batch")
            shutil.rmtree(pipeline.spec("t").checkpoint, ignore_errors=True)
            put(pipeline, 3)
            wait_for(lambda: status(runner, pipeline, "t").state == "failed", SECONDS, "it to fail")
            failed = status(runner, pipeline, "t")
        assert failed.last_error is not None
        assert "headrace view rebuild t" in (failed.last_error.detail or "")
        assert views(pipeline, "T") in (3, 6)


def test_a_query_that_was_killed_before_its_first_batch_begins(spark: SparkSession, tmp_path: Path) -> None:
    """Spark makes folders of state before it writes down what the first batch reads."""
    with Pipeline(tmp_path, STREAM + count_table("by_page")) as pipeline:
        left = pipeline.spec("by_page").checkpoint / "state" / "0" / "0"
        left.mkdir(parents=True)
        (left / "1.delta").write_text("half")
        put(pipeline, 3)
        with running(spark, pipeline, "by_page"):
            wait_for(lambda: views(pipeline, "BY_PAGE") == 3, SECONDS, "the first batch")


def test_twenty_queries_at_once(spark: SparkSession, tmp_path: Path) -> None:
    sinks = [f"t{number}" for number in range(20)]
    with Pipeline(tmp_path, STREAM + "".join(map(count_table, sinks))) as pipeline:
        put(pipeline, 30)
        with running(spark, pipeline, *sinks) as runner:
            for sink in sinks:
                wait_for(lambda sink=sink: views(pipeline, sink.upper()) == 30, 120, f"thirty in {sink}")  # type: ignore[misc]
            put(pipeline, 30)
            for sink in sinks:
                wait_for(lambda sink=sink: views(pipeline, sink.upper()) == 60, 120, f"sixty in {sink}")  # type: ignore[misc]
            assert {s.state for s in runner.statuses()} == {"running"}
            assert {s.restarts for s in runner.statuses()} == {0}


WITHOUT_JAVA = """
import sys
from pathlib import Path
from headrace.config import SparkSettings
from headrace.process.jvm import spark_session
from tests.process.pipeline import Pipeline
from tests.process.test_runner import STREAM, count_table, put, running, views
from tests.support import wait_for

spark = spark_session(SparkSettings(master="local[1]", memory="512m"), "to be killed")
with Pipeline(Path(sys.argv[1]), STREAM + count_table("t")) as pipeline, running(spark, pipeline, "t") as runner:
    put(pipeline, 3)
    wait_for(lambda: views(pipeline, "T") == 3, 60, "three")
    spark.sparkContext._gateway.proc.kill()
    assert runner.spark_lost.wait(120)
print("noticed")
"""


WITHOUT_JAVA_OR_QUERIES = """
import sys
from pathlib import Path
from headrace.config import SparkSettings
from headrace.process.jvm import spark_session
from tests.process.pipeline import Pipeline
from tests.process.test_runner import STREAM, running

spark = spark_session(SparkSettings(master="local[1]", memory="512m"), "to be killed")
with Pipeline(Path(sys.argv[1]), STREAM) as pipeline, running(spark, pipeline) as runner:
    spark.sparkContext._gateway.proc.kill()
    assert runner.spark_lost.wait(120)
print("noticed")
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", [WITHOUT_JAVA, WITHOUT_JAVA_OR_QUERIES], ids=["a query runs", "none does"])
def test_the_loss_of_java_is_noticed(tmp_path: Path, script: str) -> None:
    """Killed from outside, as the kernel does when memory is short. In its own process: the session is everybody's."""
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=root, capture_output=True, text=True, timeout=600
    )
    assert "noticed" in done.stdout, done.stderr[-3000:]


def test_a_replaced_query_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """The same checkpoint with another filter and one more column: nothing is read again, nothing is left out."""
    with Pipeline(
        tmp_path, STREAM + "CREATE STREAM loud AS SELECT userid, UCASE(pageid) AS page FROM views;"
    ) as pipeline:
        pipeline.put("views", [{"USERID": "u", "PAGEID": "/a"}, {"USERID": "u", "PAGEID": "/b"}])
        pipeline.run(spark, "loud")
        pipeline.executor.execute(
            "CREATE OR REPLACE STREAM loud AS SELECT userid, UCASE(pageid) AS page, LEN(pageid) AS n FROM views "
            "WHERE pageid <> '/b';"
        )
        pipeline.put("views", [{"USERID": "u", "PAGEID": "/b"}, {"USERID": "u", "PAGEID": "/cc"}])
        pipeline.run(spark, "loud")
        rows = [(record["PAGE"], record.get("N")) for record in pipeline.records("LOUD")]
        assert sorted(rows, key=str) == [("/A", None), ("/B", None), ("/CC", 3)]
