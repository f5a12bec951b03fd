"""Joins, sessions, aggregates over tables and EMIT FINAL give on Kafka what they give on the local log; and on Kafka,
too, it does not matter how the input is cut into batches."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.process.pipeline import Pipeline, Row
from tests.process.test_kafka import KafkaPipeline

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SOURCES = """
CREATE STREAM s (k VARCHAR KEY, n INTEGER) WITH (KAFKA_TOPIC='s', PARTITIONS=2);
CREATE STREAM r (k VARCHAR KEY, m INTEGER) WITH (KAFKA_TOPIC='r', PARTITIONS=2);
CREATE TABLE t (id VARCHAR PRIMARY KEY, v INTEGER) WITH (KAFKA_TOPIC='t', PARTITIONS=2);
CREATE TABLE f (id VARCHAR PRIMARY KEY, ref VARCHAR) WITH (KAFKA_TOPIC='f', PARTITIONS=2);
CREATE STREAM one (k VARCHAR KEY, n INTEGER) WITH (KAFKA_TOPIC='one', PARTITIONS=1);
"""
QUERIES = {
    "met": "CREATE STREAM {} AS SELECT s.k AS k, n, v FROM s LEFT JOIN t ON s.k = t.id;",
    "pairs": """CREATE STREAM {} AS SELECT ROWKEY AS k, n, m FROM s FULL OUTER JOIN r
      WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON s.k = r.k;""",
    "refers": "CREATE TABLE {} AS SELECT f.id AS id, v FROM f LEFT JOIN t ON f.ref = t.id;",
    "both": "CREATE TABLE {} AS SELECT t.id AS id, v, ref FROM t JOIN f ON t.id = f.id;",
    "sums": "CREATE TABLE {} AS SELECT v, COUNT(*) AS n, COLLECT_LIST(id) AS ids FROM t GROUP BY v;",
    "visits": """CREATE TABLE {} AS SELECT k, COUNT(*) AS c, LATEST_BY_OFFSET(n) AS newest
      FROM one WINDOW SESSION (4 SECONDS, GRACE PERIOD 3 SECONDS) GROUP BY k;""",
    "final": """CREATE TABLE {} AS SELECT k, COUNT(*) AS c, COLLECT_LIST(n) AS ns
      FROM one WINDOW TUMBLING (SIZE 5 SECONDS, GRACE PERIOD 3 SECONDS) GROUP BY k EMIT FINAL;""",
}


def random_events(chance: random.Random, count: int, late: bool) -> list[tuple[str, Row]]:
    """In order of time, apart from the topic `one` and, with `late`, of all of them."""
    events: list[tuple[str, Row]] = []
    now = 0
    for number in range(count):
        now += chance.choice((1, 500, 3_000, 6_000))
        behind = chance.choice((0, 0, 0, 2_000, 8_001, 20_000))
        key = chance.choice("ab")
        match chance.choice("ssrrtf11111"):
            case "1":
                events.append(("one", {"K": key, "N": number, "$time": max(0, now - behind)}))
            case "t":
                row = {"ID": key, "V": chance.choice((1, 2, None)), "$tombstone": chance.random() < 0.2}
                events.append(("t", row | {"$time": now}))
            case "f":
                events.append(("f", {"ID": key, "REF": chance.choice(("a", "b", None)), "$time": now}))
            case topic:
                time = max(0, now - behind) if late else now
                events.append((topic, {"K": key, "N" if topic == "s" else "M": number, "$time": time}))
    return events


def put(pipeline: Pipeline, events: list[tuple[str, Row]]) -> None:
    for topic, row in events:
        pipeline.put(topic, [row])


def result(pipeline: Pipeline, sink: str) -> Any:
    """A table by its rows; a stream by its records, and how often each is there."""
    table = pipeline.spec(sink).plan.sink.kind == "table"
    rows = pipeline.table(sink.upper()) if table else pipeline.records(sink.upper())
    hidden = ("$arrival", "$stream_time")
    return Counter(str({name: value for name, value in row.items() if name not in hidden}) for row in rows)


def late_rows(pipeline: Pipeline, sink: str) -> Counter[tuple[Any, ...]]:
    topic = pipeline.spec(sink).late_topic
    rows = pipeline.records(topic) if topic is not None else []
    return Counter((row["TOPIC"], row["$time"], row["STREAM_TIME"]) for row in rows)


def outcome(pipeline: Pipeline) -> dict[str, tuple[Any, Counter[tuple[Any, ...]]]]:
    return {name: (result(pipeline, name), late_rows(pipeline, name)) for name in QUERIES}


def test_the_same_input_gives_the_same_on_both_logs(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    statements = SOURCES + "".join(sql.format(name) for name, sql in QUERIES.items())
    chance = random.Random(7)
    halves = [random_events(chance, 30, late=False)]
    halves.append([(topic, row | {"$time": row["$time"] + 300_000}) for topic, row in random_events(chance, 30, False)])
    with Pipeline(tmp_path / "local", statements) as pipeline:
        put(pipeline, [event for half in halves for event in half])
        pipeline.run_all(spark, list(QUERIES))
        local = outcome(pipeline)
    with KafkaPipeline(tmp_path / "kafka", statements, kafka) as pipeline:
        # Every query goes on once from its checkpoint.
        for half in halves:
            put(pipeline, half)
            pipeline.run_all(spark, list(QUERIES), max_rows=25)
        on_kafka = outcome(pipeline)
    for name in QUERIES:
        assert on_kafka[name] == local[name], name
        assert local[name][0], name
    assert local["visits"][1]
    assert local["final"][1]


def test_on_kafka_too_it_does_not_matter_how_the_input_is_cut(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    cuts = {"whole": 1_000_000, "parts": 9}
    names = ["met", "pairs", "refers", "sums"]
    statements = [QUERIES[name].format(f"{name}_{cut}") for cut in cuts for name in names]
    with KafkaPipeline(tmp_path, SOURCES + "".join(statements), kafka) as pipeline:
        put(pipeline, random_events(random.Random(3), 36, late=True))
        for cut, most in cuts.items():
            pipeline.run_all(spark, [f"{name}_{cut}" for name in names], max_rows=most)
        for name in names:
            assert result(pipeline, f"{name}_parts") == result(pipeline, f"{name}_whole"), name
            assert late_rows(pipeline, f"{name}_parts") == late_rows(pipeline, f"{name}_whole"), name
