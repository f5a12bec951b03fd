"""What is changed of a query that runs: it goes on from where it was, as another one, or with another bound."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.config import SparkSettings
from headrace.coordinate.events import QueryPaced
from headrace.coordinate.reconcile import Reconciler
from headrace.errors import NotRunning
from headrace.process.base import QuerySpec
from headrace.process.runner import SparkQueryRunner
from tests.process.pipeline import Pipeline
from tests.support import wait_for

pytestmark = pytest.mark.spark

SQL = """
CREATE STREAM views (userid VARCHAR KEY, seconds INTEGER) WITH (KAFKA_TOPIC='views');
CREATE STREAM long_views AS SELECT userid, seconds FROM views WHERE seconds > 10;
"""
SECONDS = 60.0


def test_a_replaced_query_starts_once_and_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    with Pipeline(tmp_path, SQL) as pipeline:
        settings, clock = SparkSettings(restart_backoff_s=0.1), SystemClock()
        runner = SparkQueryRunner(spark, pipeline.log_folder, settings, clock, pipeline.log)
        reconciler = Reconciler(pipeline.catalog, runner, tmp_path / "checkpoints", clock)

        def written() -> list[int]:
            return [record["SECONDS"] for record in pipeline.records("LONG_VIEWS")]

        try:
            assert reconciler.reconcile()
            assert not reconciler.reconcile()
            pipeline.put("views", [{"USERID": "a", "SECONDS": seconds} for seconds in (5, 20, 100)])
            wait_for(lambda: written() == [20, 100], SECONDS, "what the first definition admits")
            replaced = "CREATE OR REPLACE STREAM long_views AS SELECT userid, seconds FROM views WHERE seconds > 50;"
            [result] = pipeline.executor.execute(replaced)
            assert result.kind == "replaced"
            assert reconciler.reconcile()
            # Not again and again: it runs what the catalog wants.
            assert not reconciler.reconcile()
            pipeline.put("views", [{"USERID": "a", "SECONDS": seconds} for seconds in (20, 60)])
            wait_for(lambda: len(written()) >= 3, SECONDS, "what the second definition admits")
            assert written() == [20, 100, 60]
            [status] = reconciler.statuses()
            assert (status.state, status.restarts, status.last_error) == ("running", 0, None)
            # Saying the same once more changes nothing.
            pipeline.executor.execute(replaced)
            assert not reconciler.reconcile()
        finally:
            runner.close()


def test_what_could_not_be_started_while_the_log_was_away_is_started_when_it_is_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pipeline(tmp_path, SQL) as pipeline:
        clock = SystemClock()
        runner = SparkQueryRunner(spark, pipeline.log_folder, SparkSettings(), clock, pipeline.log)
        reconciler = Reconciler(pipeline.catalog, runner, tmp_path / "checkpoints", clock)

        def start(spec: QuerySpec) -> NoReturn:
            raise NotRunning("nobody owns the log")

        try:
            with monkeypatch.context() as away:
                away.setattr(runner, "start", start)
                reconciler.reconcile()
            assert (reconciler.unfinished, reconciler.statuses()) == (True, []), "nothing has failed"
            assert reconciler.reconcile()
            assert not reconciler.unfinished
            pipeline.put("views", [{"USERID": "a", "SECONDS": 20}])
            wait_for(lambda: len(pipeline.records("LONG_VIEWS")) == 1, SECONDS, "the query to work")
        finally:
            runner.close()


def test_a_query_gets_another_bound_without_being_stopped(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.engine")
    with Pipeline(tmp_path, SQL) as pipeline:
        clock = SystemClock()
        runner = SparkQueryRunner(spark, pipeline.log_folder, SparkSettings(), clock, pipeline.log)
        reconciler = Reconciler(pipeline.catalog, runner, tmp_path / "checkpoints", clock)
        [query] = pipeline.catalog.queries()

        def put(seconds: int) -> int:
            """And up to where that is read."""
            pipeline.put("views", [{"USERID": "a", "SECONDS": seconds}])
            return pipeline.log.snapshot().arrival

        def bound(until: int | None) -> None:
            pipeline.catalog.append([QueryPaced(query.id, 0, until)])
            assert reconciler.reconcile()
            assert not reconciler.reconcile()

        def written(*seconds: int) -> None:
            wait_for(
                lambda: [record["SECONDS"] for record in pipeline.records("LONG_VIEWS")] == list(seconds),
                SECONDS,
                f"{seconds}",
            )

        try:
            bound(put(20))
            reached = put(30)
            put(40)
            written(20)
            bound(reached)
            written(20, 30)
            bound(None)
            written(20, 30, 40)
        finally:
            runner.close()
        assert caplog.messages == [f"starting {query.id}"]
