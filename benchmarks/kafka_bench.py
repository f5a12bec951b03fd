"""The local log against a Kafka broker on the same machine, in the same run.

Kafka is driven by its own `ProducerPerformance` (acks=all, which does not sync) and `ConsumerPerformance`, in Java; the
local log by one Python process with producers and consumers, every record synced before it is acknowledged. Records are
raw bytes of the same size, without a key.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measure import Measure
from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.base import Appended, Log, TopicSpec
from headrace.log.local import LocalLog
from scripts.kafka import Cluster, make_nodes

SIZES = (100, 1024)
PARTITIONS = (1, 10, 100)
BATCH = 10_000
_IN_FLIGHT = 8
_TOOLS = "org.apache.kafka.tools"


def run(quick: bool = False) -> list[Measure]:
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-kafka-") as folder:
        with Cluster(Path(folder) / "kafka", make_nodes(1), heap_mb=1024) as cluster:
            kafka = {case: _kafka(cluster, *case) for case in _cases(quick)}
        # One after the other: two logs on two cores would measure the scheduler.
        for size, partitions, rows in _cases(quick):
            place = Path(folder) / f"local-{size}-{partitions}"
            measures += _compare(place, size, partitions, rows, kafka[size, partitions, rows])
    return measures


def _cases(quick: bool) -> Iterator[tuple[int, int, int]]:
    for size in SIZES:
        for partitions in PARTITIONS:
            yield size, partitions, (200_000 if quick else 1_000_000) // (1 if size == 100 else 5)


def _compare(place: Path, size: int, partitions: int, rows: int, kafka: tuple[float, float]) -> list[Measure]:
    detail = f"{size} bytes, {partitions} partition{'s' if partitions > 1 else ''}"
    log = LocalLog(place, LogSettings(min_free_bytes=0), SystemClock(), serve=False)
    try:
        produced = _produce(log, size, partitions, rows)
        consumed = _consume(log, rows)
    finally:
        log.close()
    aim = "≥ 5" if size == 100 else ""
    return [
        Measure("durable produce", produced, "records/s", kafka[0], "Kafka, acks=all, not synced", aim, detail),
        Measure("consume", consumed, "records/s", kafka[1], "Kafka", "≥ 5", detail),
    ]


def _produce(log: Log, size: int, partitions: int, rows: int) -> float:
    log.create_topic(TopicSpec("events", kind="raw", partitions=partitions))
    data = np.random.default_rng(1).integers(0, 256, BATCH * size, np.uint8).tobytes()
    values = pa.array([data[start : start + size] for start in range(0, len(data), size)], pa.binary())
    batch = pa.record_batch({"VALUE": values})
    started = time.monotonic()
    with log.producer() as producer:
        waiting: deque[Future[Appended]] = deque()
        for _ in range(rows // BATCH):
            waiting.append(producer.send("events", batch))
            if len(waiting) >= _IN_FLIGHT:
                waiting.popleft().result(60)
        producer.flush(60)
    return rows / (time.monotonic() - started)


def _consume(log: Log, rows: int) -> float:
    started, found = time.monotonic(), 0
    with log.consumer("events", columns=["VALUE"]) as consumer:
        while found < rows:
            found += sum(records.batch.num_rows for records in consumer.poll(5, max_records=100_000))
    return rows / (time.monotonic() - started)


def _kafka(cluster: Cluster, size: int, partitions: int, rows: int) -> tuple[float, float]:
    """Records a second, produced and consumed."""
    topic = f"events-{size}-{partitions}"
    create = ("--create", "--topic", topic, "--partitions", str(partitions))
    cluster.run_tool(f"{_TOOLS}.TopicCommand", "--bootstrap-server", cluster.bootstrap, *create)
    options = ("--topic", topic, "--num-records", str(rows), "--record-size", str(size), "--throughput", "-1")
    properties = ("--producer-props", f"bootstrap.servers={cluster.bootstrap}", "acks=all")
    said = cluster.run_tool(f"{_TOOLS}.ProducerPerformance", *options, *properties)
    produced = re.findall(r"([\d.]+) records/sec", said)
    source = ("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--messages", str(rows))
    said = cluster.run_tool(f"{_TOOLS}.ConsumerPerformance", *source)
    # The last column is the rate without the time to join a group.
    consumed = said.strip().splitlines()[-1].split(",")[-1]
    return float(produced[-1]), float(consumed)
