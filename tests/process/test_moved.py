"""Results that wait for time, of a query that is moved from one log to the other: each comes out once, though Kafka
waits for the slowest partition and the local log goes by the fastest."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from headrace.config import SparkSettings
from headrace.coordinate.move import move_to_kafka, move_to_local
from headrace.process.base import QuerySpec
from headrace.process.moved import with_known_results
from headrace.process.session import query_session
from headrace.process.streaming import start_query
from tests.process.pipeline import Pipeline, Row
from tests.process.test_kafka import KafkaPipeline
from tests.support import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SQL = """
CREATE STREAM s (k VARCHAR KEY, n INTEGER) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE STREAM r (k VARCHAR KEY, m INTEGER) WITH (KAFKA_TOPIC='r', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE tumbling AS SELECT k, COUNT(*) AS c FROM s
  WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 2 SECONDS) WHERE n > 0 GROUP BY k EMIT FINAL;
CREATE TABLE visits AS SELECT k, COUNT(*) AS c FROM s WINDOW SESSION (4 SECONDS) GROUP BY k EMIT FINAL;
CREATE STREAM pairs AS SELECT s.k AS k, n, m FROM s LEFT JOIN r WITHIN 5 SECONDS GRACE PERIOD 0 SECONDS ON s.k = r.k;
"""
QUERIES = ["tumbling", "visits", "pairs"]
FAST, SLOW = 0, 1
LAST: dict[str, tuple[Any, ...]] = {"tumbling": ("a", 80, 1), "visits": ("a", 80, 1), "pairs": ("a", 80, None)}
"""What comes out last, because time has passed it."""
Results = dict[str, Counter[tuple[Any, ...]]]


class MovedPipeline(Pipeline):
    """On a local log that was copied."""

    def spec(self, sink: str) -> QuerySpec:
        return with_known_results(self.log, super().spec(sink))


def put(pipeline: Pipeline, *events: tuple[int, str, int, int]) -> None:
    """Partition, key, second and number of each."""
    for partition, key, second, number in events:
        row: Row = {"K": key, "N": number, "$time": second * 1000}
        pipeline.put("s", [row], partition)


def fill(pipeline: Pipeline) -> None:
    """One partition gets half a minute ahead of the other. Number 0 is in no window, but time goes on with it."""
    put(pipeline, (FAST, "a", 1, 1), (SLOW, "b", 2, 1), (FAST, "c", 3, 1), (FAST, "a", 11, 1), (SLOW, "b", 12, 1))
    pipeline.put("r", [{"K": "a", "M": 7, "$time": 12_000}], FAST)
    pipeline.put("r", [{"K": "b", "M": 8, "$time": 13_000}], SLOW)
    put(pipeline, (SLOW, "b", 25, 1), (SLOW, "b", 26, 0), (FAST, "a", 31, 1), (FAST, "d", 40, 1), (FAST, "a", 61, 0))


def run_and_break_off(pipeline: Pipeline, spark: SparkSession) -> None:
    """As a project does that is stopped under load: what the last batch has closed would have come with the next."""
    with patch("headrace.process.streaming.waits_for_time", lambda plan: False):
        pipeline.run_all(spark, QUERIES, max_rows=4)


def send_more(pipeline: Pipeline) -> None:
    """After the move. The first is late for what has come out."""
    put(pipeline, (SLOW, "b", 14, 1), (FAST, "a", 64, 1), (FAST, "a", 80, 1), (FAST, "z", 200, 1), (SLOW, "y", 200, 1))


def go_on(pipeline: Pipeline, spark: SparkSession) -> None:
    """As a project runs them, until each query has given its last result."""
    settings, session = SparkSettings(max_rows_per_batch=4), query_session(spark)
    started = [start_query(session, pipeline.where, pipeline.topic, settings, pipeline.spec(sink)) for sink in QUERIES]
    try:
        wait_for(lambda: all(LAST[sink] in results(pipeline)[sink] for sink in QUERIES), 120, "the last results")
    finally:
        for query in started:
            query.stop()


def results(pipeline: Pipeline) -> Results:
    """How often each came out."""
    windows = [(row["K"], row["$window_start"] // 1000, row["C"]) for row in pipeline.records("TUMBLING")]
    visits = [(row["K"], row["$window_start"] // 1000, row["C"]) for row in pipeline.records("VISITS")]
    pairs = [(row["K"], row["$time"] // 1000, row["M"]) for row in pipeline.records("PAIRS")]
    return {"tumbling": Counter(windows), "visits": Counter(visits), "pairs": Counter(pairs)}


def late(pipeline: Pipeline, sink: str) -> list[int]:
    topic = pipeline.spec(sink).late_topic
    assert topic is not None
    return sorted(row["$time"] // 1000 for row in pipeline.records(topic))


def nothing(done: int, total: int) -> None: ...


def test_a_window_that_waited_for_a_slow_partition_comes_out_on_the_local_log(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    with KafkaPipeline(tmp_path / "kafka", SQL, kafka) as there, MovedPipeline(tmp_path / "local", "") as here:
        fill(there)
        run_and_break_off(there, spark)
        before = results(there)
        # The slow partition is at 26, and not all of that has come out.
        assert ("a", 0, 1) in before["tumbling"]
        assert not {("b", 20, 1), ("a", 30, 1), ("d", 40, 1)} & before["tumbling"].keys()
        assert ("b", 25, 2) not in before["visits"]
        moved = move_to_local(there.log, here.log, there.folder / "checkpoints", nothing)
        assert moved.behind == ()
        here.catalog.refresh()
        send_more(here)
        go_on(here, spark)
        expect_each_once(here)


def test_a_window_that_the_fast_partition_has_closed_does_not_come_again_on_kafka(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    with Pipeline(tmp_path / "local", SQL) as here, KafkaPipeline(tmp_path / "kafka", "", kafka) as there:
        fill(here)
        run_and_break_off(here, spark)
        # On Kafka these would wait for the slow partition.
        assert ("b", 12, 1) in results(here)["visits"]
        assert ("b", 10, 1) in results(here)["tumbling"]
        move_to_kafka(here.log, there.log, here.folder / "checkpoints", nothing)
        there.catalog.refresh()
        send_more(there)
        go_on(there, spark)
        expect_each_once(there)


def expect_each_once(pipeline: Pipeline) -> None:
    """What was sent before the move, whenever it came out, and what came after."""
    found = results(pipeline)
    early = [
        ("a", 0, 1),
        ("c", 0, 1),
        ("b", 0, 1),
        ("a", 10, 1),
        ("b", 10, 1),
        ("b", 20, 1),
        ("a", 30, 1),
        ("d", 40, 1),
    ]
    assert found["tumbling"] == Counter([*early, ("a", 60, 1), LAST["tumbling"]])
    own = [("a", 1, 1), ("c", 3, 1), ("a", 11, 1), ("a", 31, 1), ("d", 40, 1), ("b", 2, 1), ("b", 12, 1), ("b", 25, 2)]
    assert found["visits"] == Counter([*own, ("a", 61, 2), LAST["visits"]])
    alone = [("a", 1), ("c", 3), ("a", 31), ("d", 40), ("b", 2), ("b", 25), ("b", 26), ("b", 14), ("a", 61), ("a", 64)]
    assert found["pairs"] == Counter([("a", 12, 7), ("b", 13, 8), *((*one, None) for one in alone), LAST["pairs"]])
    assert late(pipeline, "tumbling") == late(pipeline, "visits") == [14]
