"""How far behind a query is that reads several topics, on both logs: of each what it has yet to read."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.config import SparkSettings
from headrace.process.runner import SparkQueryRunner
from tests.process.pipeline import Pipeline, Row, batch_of
from tests.process.test_kafka import KafkaPipeline
from tests.support import wait_for

SECONDS = 60.0
SQL = """
CREATE STREAM clicks (u VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks', PARTITIONS=2);
CREATE TABLE users (id VARCHAR PRIMARY KEY, name VARCHAR) WITH (KAFKA_TOPIC='users', PARTITIONS=2);
CREATE STREAM named AS SELECT clicks.u, page, name FROM clicks LEFT JOIN users ON clicks.u = users.id;
"""


def clicks(count: int) -> list[Row]:
    return [{"U": f"u{number}", "PAGE": "/", "$time": number} for number in range(count)]


def users(count: int) -> list[Row]:
    return [{"ID": f"u{number}", "NAME": "Ann", "$time": number} for number in range(count)]


def put(pipeline: Pipeline, topic: str, rows: list[Row]) -> None:
    """In transactions, one of them aborted: on Kafka their marks have offsets of their own."""
    with pipeline.log.producer("loader") as producer:
        producer.begin()
        producer.send(topic, batch_of(pipeline.log.topic(topic), rows))
        producer.abort()
        producer.begin()
        producer.send(topic, batch_of(pipeline.log.topic(topic), rows))
        producer.commit()


def offsets(pipeline: Pipeline) -> int:
    ends = pipeline.log.snapshot().ends
    return sum(end.end for topic in ("clicks", "users") for end in ends[topic])


@pytest.mark.spark
@pytest.mark.parametrize("backend", ["local", pytest.param("kafka", marks=pytest.mark.slow)])
def test_all_that_a_join_reads_counts(
    spark: SparkSession, tmp_path: Path, backend: str, request: pytest.FixtureRequest
) -> None:
    bootstrap = request.getfixturevalue("kafka") if backend == "kafka" else ""
    with KafkaPipeline(tmp_path, SQL, bootstrap) if bootstrap else Pipeline(tmp_path, SQL) as pipeline:
        settings = SparkSettings(restart_backoff_s=0.1)
        runner = SparkQueryRunner(spark, pipeline.where, settings, SystemClock(), pipeline.log)
        try:
            put(pipeline, "users", users(5))
            put(pipeline, "clicks", clicks(3))
            spec = pipeline.spec("named")
            runner.start(spec)
            wait_for(lambda: len(pipeline.records("NAMED")) == 3, SECONDS, "three clicks")
            wait_for(lambda: runner.statuses()[0].lag == 0, SECONDS, "no lag")
            before = offsets(pipeline)
            assert runner.statuses()[0].rows == before
            assert before == 8 or backend == "kafka"
            runner.stop(spec.id)
            # Only of the table, which is not what the statement names first, and then of both.
            put(pipeline, "users", users(4))
            assert runner.statuses()[0].lag == offsets(pipeline) - before
            put(pipeline, "clicks", clicks(6))
            assert runner.statuses()[0].lag == offsets(pipeline) - before >= 10
            runner.start(spec)
            # As it was told before it has a batch of its own, by what it wrote, or already less.
            assert runner.statuses()[0].lag <= offsets(pipeline) - before
            wait_for(lambda: len(pipeline.records("NAMED")) == 9, SECONDS, "nine clicks")
            wait_for(lambda: runner.statuses()[0].lag == 0, SECONDS, "no lag")
            assert runner.statuses()[0].rows == offsets(pipeline)
        finally:
            runner.close()
