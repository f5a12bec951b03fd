"""CREATE OR REPLACE while the query runs: it goes on from where it was, as another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.config import SparkSettings
from headrace.coordinate.reconcile import Reconciler
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
