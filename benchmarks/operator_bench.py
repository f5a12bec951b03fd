"""Joins, sessions and aggregates over tables in SQL, into nothing, against what somebody who knows Spark would write
over the same topics in the same run, where Spark has something like it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Measure
from benchmarks.spark_bench import BATCH_ROWS, KEY, PARTITIONS, QUICK_ROWS, VALUE, VIEWS, make_batch, trigger_rate
from headrace.clock import SystemClock
from headrace.config import LogSettings, SparkSettings
from headrace.log.base import Append, TopicSpec
from headrace.log.local import LocalLog
from headrace.process.jvm import spark_session
from headrace.process.lower.lower import lower_query
from headrace.process.session import query_session
from headrace.process.streaming import StreamInputs
from headrace.spark import read_topic
from headrace.sql.api import parse, plan_query
from headrace.sql.functions.function import Function
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect
from headrace.types import VARCHAR, Column, DataType

ROWS, PEOPLE, REGIONS, ROUNDS = 2_000_000, 100_000, 50, 3
USERS = TopicSpec("users", (Column("ID", VARCHAR),), (Column("REGION", VARCHAR),), PARTITIONS)
BUYS = TopicSpec("buys", KEY, VALUE, PARTITIONS)
SOURCES = {
    "VIEWS": Source("VIEWS", "stream", "views", KEY, VALUE, partitions=PARTITIONS),
    "BUYS": Source("BUYS", "stream", "buys", KEY, VALUE, partitions=PARTITIONS),
    "USERS": Source("USERS", "table", "users", USERS.key, USERS.value, partitions=PARTITIONS),
}
QUERIES = {
    "stream-table join": """CREATE STREAM out AS SELECT views.userid, pageid, region
      FROM views LEFT JOIN users ON views.userid = users.id;""",
    "stream-stream join": """CREATE STREAM out AS SELECT views.userid AS u, views.pageid AS seen, buys.pageid AS bought
      FROM views JOIN buys WITHIN 1 SECOND GRACE PERIOD 1 SECOND ON views.userid = buys.userid;""",
    "session": """CREATE TABLE out AS SELECT userid, COUNT(*) AS n, SUM(duration) AS total
      FROM views WINDOW SESSION (5 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY userid;""",
    "table aggregate": "CREATE TABLE out AS SELECT region, COUNT(*) AS n FROM users GROUP BY region;",
}
AIMS = {
    "stream-table join": "≥ 1 M rows/s",
    "stream-stream join": "≥ 0.5 M rows/s",
    "session": "≥ 0.5 M rows/s",
    "table aggregate": "",
}


class Known:
    def source(self, name: str) -> Source | None:
        return SOURCES.get(name)

    def sources(self) -> list[Source]:
        return list(SOURCES.values())

    def types(self) -> Mapping[str, DataType]:
        return {}

    def functions(self) -> Mapping[str, Function]:
        return {}


def run(quick: bool = False, rows: int | None = None) -> list[Measure]:
    spark = spark_session(SparkSettings(master="local[2]", memory="3g", shuffle_partitions=2), "headrace operators")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        log = LocalLog(Path(folder) / "log", LogSettings(), SystemClock())
        try:
            _fill(log, rows or (QUICK_ROWS if quick else ROWS))
            return [measure for name in QUERIES for measure in _measure(name, query_session(spark), log, Path(folder))]
        finally:
            log.close()
            spark.stop()


def _fill(log: LocalLog, rows: int) -> None:
    for topic in (VIEWS, BUYS, USERS):
        log.create_topic(topic)
    for round_ in range(2):
        ids = pa.array([f"user-{number}" for number in range(PEOPLE)])
        regions = np.random.default_rng(round_).integers(0, REGIONS, PEOPLE)
        batch = pa.RecordBatch.from_pydict({"ID": ids, "REGION": pa.array([f"region-{n}" for n in regions])})
        log.append([Append("users", batch)]).result()
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        log.append([Append("views", make_batch(first, count))]).result()
        log.append([Append("buys", make_batch(first + 1, count))]).result()


def _measure(name: str, spark: SparkSession, log: LocalLog, folder: Path) -> list[Measure]:
    """Each once to warm up, then in turn; the best counts."""
    rounds = [(_ours(name, spark, log, folder), _theirs(name, spark, log, folder)) for _ in range(ROUNDS)][1:]
    ours = max(pair[0] for pair in rounds)
    hand = max((pair[1] for pair in rounds if pair[1] is not None), default=None)
    against = "by hand" if hand is not None else ""
    return [Measure(f"SQL {name}", ours, "rows/s", hand, against, AIMS[name], "into nothing")]


def _ours(name: str, spark: SparkSession, log: LocalLog, folder: Path) -> float:
    [statement] = parse(QUERIES[name])
    assert isinstance(statement, CreateAsSelect)
    inputs = StreamInputs(spark, log.folder, lambda topic: log.topic(topic).spec, "bench", 1_000_000)
    return _rate(lower_query(plan_query(statement, Known()), inputs).frame, folder, "update")


def _theirs(name: str, spark: SparkSession, log: LocalLog, folder: Path) -> float | None:
    def stream(topic: str) -> DataFrame:
        columns = ["$time", *(column.name for column in log.topic(topic).spec.key + log.topic(topic).spec.value)]
        frame = read_topic(spark, log.folder, topic, columns=columns, stream=True)
        return frame.withColumn("time", F.timestamp_millis(F.col("`$time`")))

    match name:
        case "stream-table join":
            # A table that does not change: Spark has no other.
            users = read_topic(spark, log.folder, "users", columns=["ID", "REGION"]).dropDuplicates(["ID"])
            return _rate(stream("views").join(F.broadcast(users), F.col("USERID") == F.col("ID"), "left"), folder)
        case "stream-stream join":
            left = stream("views").withWatermark("time", "1 second").alias("l")
            right = stream("buys").withWatermark("time", "1 second").alias("r")
            near = "l.USERID = r.USERID AND r.time BETWEEN l.time - INTERVAL 1 SECOND AND l.time + INTERVAL 1 SECOND"
            return _rate(left.join(right, F.expr(near)), folder)
        case "session":
            timed = stream("views").withWatermark("time", "10 seconds")
            grouped = timed.groupBy("USERID", F.session_window("time", "5 seconds"))
            return _rate(grouped.agg(F.count("*"), F.sum("DURATION")), folder)
    return None


def _rate(frame: DataFrame, folder: Path, mode: str = "append") -> float:
    checkpoint = folder / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
    return trigger_rate(writer.trigger(availableNow=True).start())
