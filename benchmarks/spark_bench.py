"""Spark over the log, against the same jobs over Parquet files in the same session; and from topic to topic."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.measure import Measure
from headrace.clock import SystemClock
from headrace.config import LogSettings, SparkSettings
from headrace.log.base import Append, TopicSpec
from headrace.log.local import LocalLog
from headrace.process.jvm import spark_session
from headrace.spark import read_topic, write_topic
from headrace.types import BIGINT, VARCHAR, Column

ROWS, QUICK_ROWS = 5_000_000, 200_000
USERS, PAGES, PARTITIONS = 10_000, 1_000, 2
BATCH_ROWS = 40_000
FILES = 4
KEY, VALUE = (Column("USERID", VARCHAR),), (Column("PAGEID", VARCHAR), Column("DURATION", BIGINT))
VIEWS = TopicSpec("views", key=KEY, value=VALUE, partitions=PARTITIONS)
LONG_VIEWS = TopicSpec("long_views", key=KEY, value=VALUE, partitions=PARTITIONS, role="derived")
COLUMNS = ["$time", "USERID", "PAGEID", "DURATION"]
PARQUET = "over Parquet"


def run(quick: bool = False, rows: int | None = None) -> list[Measure]:
    """The session is ours to make: its settings are part of what is measured."""
    spark = spark_session(SparkSettings(master="local[2]", memory="3g", shuffle_partitions=2), "headrace bench")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        log = LocalLog(Path(folder) / "log", LogSettings(), SystemClock())
        try:
            return measure(spark, log, Path(folder), rows or (QUICK_ROWS if quick else ROWS))
        finally:
            log.close()
            spark.stop()


def measure(spark: SparkSession, log: LocalLog, folder: Path, rows: int) -> list[Measure]:
    fill(log, folder / "parquet", rows)
    schema = spark.read.parquet(str(folder / "parquet")).schema
    topic = read_topic(spark, log.folder, "views", columns=COLUMNS)
    files = spark.read.parquet(str(folder / "parquet"))
    topic_stream = read_topic(spark, log.folder, "views", columns=COLUMNS, stream=True)
    file_stream = spark.readStream.schema(schema).format("parquet").name("files").load(str(folder / "parquet"))

    def compare(name: str, rate: Callable[[DataFrame], float], ours: DataFrame, theirs: DataFrame, aim: str) -> Measure:
        """Each once to warm up, then in turn, so that whatever else the machine does meets both; the best counts."""
        pairs = [(rate(ours), rate(theirs)) for _ in range(4)][1:]
        return Measure(name, max(p[0] for p in pairs), "rows/s", max(p[1] for p in pairs), PARQUET, aim)

    def streaming(job: Callable[[DataFrame], DataFrame]) -> Callable[[DataFrame], float]:
        return lambda frame: stream_rate(job(frame), folder / "checkpoint")

    return [
        compare("scan and filter", lambda frame: scan_rate(frame, rows), topic, files, "≥ 0.8 × Parquet"),
        compare("count by key", streaming(count_by_key), topic_stream, file_stream, "≥ 4 M rows/s, ≥ 0.8 × Parquet"),
        compare("one-minute count", streaming(count_by_minute), topic_stream, file_stream, "≥ 0.8 × Parquet"),
        Measure(
            "filter and write to a topic",
            max(write_rate(topic_stream, log, folder / "checkpoint", number) for number in range(3)),
            "rows/s",
            aim="≥ 2 M rows/s",
            detail="rows read; half are written",
        ),
    ]


def fill(log: LocalLog, parquet: Path, rows: int) -> None:
    """The same rows into the topic and into Parquet files, as pyarrow writes them by default."""
    log.create_topic(VIEWS)
    log.create_topic(LONG_VIEWS)
    batches = [make_batch(first, min(BATCH_ROWS, rows - first)) for first in range(0, rows, BATCH_ROWS)]
    for batch in batches:
        log.append([Append("views", batch)]).result()
    parquet.mkdir()
    table = pa.Table.from_batches(batches)
    per_file = -(-rows // FILES)
    for number in range(FILES):
        pq.write_table(table.slice(number * per_file, per_file), parquet / f"{number}.parquet", row_group_size=500_000)


def make_batch(first: int, rows: int) -> pa.RecordBatch:
    random = np.random.default_rng(first)
    users = pa.array([f"user-{number}" for number in range(USERS)])
    pages = pa.array([f"/page/{number}" for number in range(PAGES)])
    return pa.RecordBatch.from_pydict(
        {
            "$time": pa.array(1_700_000_000_000 + np.arange(first, first + rows) // 10),
            "USERID": users.take(pa.array(random.integers(0, USERS, rows))),
            "PAGEID": pages.take(pa.array(random.integers(0, PAGES, rows))),
            "DURATION": pa.array(random.integers(0, 1000, rows)),
        }
    )


def count_by_key(frame: DataFrame) -> DataFrame:
    return frame.groupBy("USERID").count()


def count_by_minute(frame: DataFrame) -> DataFrame:
    return frame.groupBy("PAGEID", (frame["$time"] - frame["$time"] % 60_000).alias("MINUTE")).count()


def scan_rate(frame: DataFrame, rows: int) -> float:
    """Every column is looked at, so that none is left out by either reader."""
    started = time.monotonic()
    frame.where(
        "DURATION < 900 AND `$time` > 0 AND length(USERID) > 3 AND PAGEID <> '/page/7'"
    ).groupBy().count().collect()
    return rows / (time.monotonic() - started)


def stream_rate(frame: DataFrame, checkpoint: Path) -> float:
    """Rows per second within the trigger, state included, into a sink that does nothing."""
    shutil.rmtree(checkpoint, ignore_errors=True)
    writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    return trigger_rate(writer.trigger(availableNow=True).start())


def write_rate(views: DataFrame, log: LocalLog, checkpoint: Path, number: int) -> float:
    shutil.rmtree(checkpoint, ignore_errors=True)
    query = write_topic(
        views.where("DURATION >= 500"),
        log.folder,
        "long_views",
        query=f"bench_{number}",
        checkpoint=checkpoint,
        available_now=True,
    )
    assert query is not None
    return trigger_rate(query)


def trigger_rate(query: StreamingQuery) -> float:
    query.awaitTermination()
    progress: list[dict[str, Any]] = [json.loads(batch.json) for batch in query.recentProgress]
    rows = sum(batch["numInputRows"] for batch in progress)
    return float(rows / sum(batch["durationMs"]["triggerExecution"] for batch in progress) * 1000)
