"""Spark over the local log against Spark over Kafka: the same rows, the same jobs, in the same session."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Measure
from benchmarks.spark_bench import (
    BATCH_ROWS,
    COLUMNS,
    VIEWS,
    count_by_key,
    fill,
    make_batch,
    scan_rate,
    stream_rate,
)
from headrace.clock import SystemClock
from headrace.config import KafkaSettings, LogSettings, SparkSettings
from headrace.log.base import Append, Appended
from headrace.log.kafka import KafkaLog
from headrace.log.local import LocalLog
from headrace.process.jvm import spark_session
from headrace.process.kafka.decode import decode_topic
from headrace.process.kafka.place import KafkaPlace
from headrace.process.session import query_session
from scripts.kafka import Cluster, make_nodes

ROWS, QUICK_ROWS = 2_000_000, 100_000
ROUNDS = 2
IN_FLIGHT = 4
"""Appends that are not yet acknowledged: the log refuses what it has no memory for."""
BYTES, DECODED = "Kafka's source, bytes", "Kafka, decoded"


def run(quick: bool = False, rows: int | None = None) -> list[Measure]:
    spark = spark_session(SparkSettings(master="local[2]", memory="3g", shuffle_partitions=2), "headrace bench")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        local = LocalLog(folder / "log", LogSettings(), SystemClock())
        with Cluster(folder / "kafka", make_nodes(1)) as cluster:
            settings = LogSettings(backend="kafka", kafka=KafkaSettings(bootstrap=cluster.bootstrap))
            kafka = KafkaLog(settings, SystemClock())
            try:
                return measure(query_session(spark), local, kafka, folder, rows or (QUICK_ROWS if quick else ROWS))
            finally:
                kafka.close()
                local.close()
                spark.stop()


def measure(spark: SparkSession, local: LocalLog, kafka: KafkaLog, folder: Path, rows: int) -> list[Measure]:
    fill(local, folder / "parquet", rows)
    fill_kafka(kafka, rows)
    place = KafkaPlace(kafka)
    ours = spark.read.format("headrace").option("path", str(local.folder)).option("topic", "views")
    ours_stream = spark.readStream.format("headrace").option("path", str(local.folder)).option("topic", "views")
    scan = decode_topic(spark.read.format("headrace-kafka").options(**place.options("views")).load(), VIEWS, COLUMNS)
    checkpoint = folder / "checkpoint"

    def streamed(make: Callable[[], DataFrame]) -> float:
        return stream_rate(make(), checkpoint)

    def kafka_stream(format_: str) -> DataFrame:
        reader = spark.readStream.format(format_).name("kafka").options(**place.options("views"))
        return reader.option("startingOffsets", "earliest").load()

    by_key = best(lambda: streamed(lambda: count_by_key(ours_stream.name("ours").load())))
    plain = best(lambda: streamed(lambda: kafka_stream("kafka").groupBy("key").count()))
    stamped = best(lambda: streamed(lambda: kafka_stream("headrace-kafka").groupBy("key").count()))
    decoded = best(lambda: streamed(lambda: count_by_key(decode_topic(kafka_stream("headrace-kafka"), VIEWS, COLUMNS))))
    local_scan = best(lambda: scan_rate(ours.load(), rows))
    kafka_scan = best(lambda: scan_rate(scan, rows))
    bytes_scan = best(lambda: bytes_rate(spark, place, rows))
    return [
        Measure("scan and filter, local log", local_scan, "rows/s", kafka_scan, DECODED, "≥ 5 ×"),
        Measure("scan, local log", local_scan, "rows/s", bytes_scan, BYTES, "≥ 5 ×"),
        Measure("count by key, local log", by_key, "rows/s", plain, BYTES, "≥ 5 ×"),
        Measure("count by key, local log", by_key, "rows/s", decoded, DECODED, "≥ 5 ×"),
        Measure("stamping stream time", stamped, "rows/s", plain, BYTES, "≥ 0.9 ×"),
    ]


def fill_kafka(log: KafkaLog, rows: int) -> None:
    log.create_topic(VIEWS)
    waiting: deque[Future[list[Appended]]] = deque()
    for first in range(0, rows, BATCH_ROWS):
        if len(waiting) == IN_FLIGHT:
            waiting.popleft().result()
        waiting.append(log.append([Append("views", make_batch(first, min(BATCH_ROWS, rows - first)))]))
    for future in waiting:
        future.result()


def best(rate: Callable[[], float]) -> float:
    """Once to warm up, then the best of several."""
    return max([rate() for _ in range(ROUNDS + 1)][1:])


def bytes_rate(spark: SparkSession, place: KafkaPlace, rows: int) -> float:
    """Spark's own source, nothing parsed."""
    frame = spark.read.format("kafka").options(**place.options("views")).load()
    started = time.monotonic()
    frame.where((F.octet_length("value") > 3) & (F.octet_length("key") > 3)).groupBy().count().collect()
    return rows / (time.monotonic() - started)
