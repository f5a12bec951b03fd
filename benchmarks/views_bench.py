"""Changing a view: replaying the log into a second version, against the same job as a Spark batch written by hand;
comparing two versions; the switch itself; reading a Lambda view."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.layers_bench import merged_reads
from benchmarks.measure import Measure, percentile
from benchmarks.process_bench import COUNT, TUMBLING, Bench, by_hand_batch, planned
from benchmarks.spark_bench import QUICK_ROWS, fill
from headrace.clock import SystemClock
from headrace.config import LogSettings, SparkSettings
from headrace.coordinate.base import ViewDefinition
from headrace.coordinate.catalog import Catalog, create_internal_topics
from headrace.coordinate.events import SourceCreated, VersionCreated, VersionsSwitched, ViewCreated
from headrace.log.base import Append, TopicSpec
from headrace.log.local import LocalLog
from headrace.process.session import query_session
from headrace.sql.source import Source
from headrace.store.follow import Followers
from headrace.store.sqlite import SqliteStore
from headrace.types import BIGINT, VARCHAR, Column
from headrace.views.difference import compare_spools
from headrace.views.spool import parts_of, spool_rows
from headrace.views.versions import Version

ROUNDS, REPLAYED = 3, 20_000_000
VIEW = Source("COUNTS", "table", "COUNTS", (Column("PAGE", VARCHAR),), (Column("N", BIGINT),))
SECOND = Source("COUNTS", "table", "COUNTS.v2", VIEW.key, VIEW.value)
SWITCHES = 200
QUERIES = (("count by key", COUNT), ("one-minute count", TUMBLING))


def run(quick: bool = False) -> list[Measure]:
    from headrace.process.jvm import spark_session

    session = spark_session(SparkSettings(master="local[2]", memory="3g", shuffle_partitions=2), "headrace views bench")
    try:
        measures = _replays(session, QUICK_ROWS if quick else REPLAYED)
    finally:
        session.stop()
    return [*measures, *_versions(20_000 if quick else 1_000_000), *merged_reads(20_000 if quick else 500_000)]


def _replays(spark: SparkSession, rows: int) -> list[Measure]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        log = LocalLog(folder / "log", LogSettings(), SystemClock())
        try:
            fill(log, folder / "parquet", rows)
            bench = Bench(query_session(spark), log, folder)
            return [measure for name, sql in QUERIES for measure in _replay(bench, name, sql, rows)]
        finally:
            log.close()


def _replay(bench: Bench, name: str, sql: str, rows: int) -> list[Measure]:
    """Of a table that another version is known of, and of a new one. In batches as large as they are by default, and
    in turn, so that whatever else the machine does meets all; the best counts."""
    plan, batch = planned(sql), SparkSettings().max_rows_per_batch
    rounds = [
        (bench.into_topic(plan, batch, keys=0)[0], bench.into_topic(plan, batch)[0], _by_hand(bench, sql, rows))
        for _ in range(ROUNDS + 1)
    ][1:]
    again, new, hand = (max(found[side] for found in rounds) for side in range(3))
    against = "batch by hand over Parquet"
    return [
        Measure(f"replay, {name}", again, "rows/s", hand, against, "≥ 0.8 × batch", "into a topic"),
        Measure(f"first build, {name}", new, "rows/s", hand, against, "", "into a topic"),
    ]


def _by_hand(bench: Bench, sql: str, rows: int) -> float:
    out = bench.folder / "by-hand"
    started = time.monotonic()
    frame = bench.spark.read.parquet(str(bench.folder / "parquet"))
    by_hand_batch(frame, planned(sql)).write.parquet(str(out))
    seconds = time.monotonic() - started
    shutil.rmtree(out)
    return rows / seconds


def _versions(rows: int) -> list[Measure]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        log = LocalLog(folder / "log", LogSettings(), SystemClock())
        store = SqliteStore(folder / "views")
        followers = Followers(log, store)
        try:
            create_internal_topics(log)
            catalog = Catalog(log)
            for number, source in ((1, VIEW), (2, SECOND)):
                _fill_view(log, source, rows, number)
            catalog.append(
                [
                    SourceCreated(VIEW),
                    ViewCreated(ViewDefinition("COUNTS", 1, None, VIEW.topic)),
                    VersionCreated(Version("COUNTS", 2, SECOND, "building")),
                ]
            )
            _follow(catalog, followers)
            while followers.lag("COUNTS", 1) or followers.lag("COUNTS", 2):
                time.sleep(0.05)
            return [_compared(followers, folder, rows), _switched(catalog, followers)]
        finally:
            followers.close()
            store.close()
            log.close()


def _fill_view(log: LocalLog, source: Source, rows: int, number: int) -> None:
    log.create_topic(TopicSpec(source.topic, source.key, source.value, role="derived"))
    for first in range(0, rows, 100_000):
        count = min(100_000, rows - first)
        columns = {
            "PAGE": pa.array([f"/{page}" for page in range(first, first + count)]),
            # Every hundredth row is another in the second version.
            "N": pa.array(
                [page + (number == 2 and page % 100 == 0) for page in range(first, first + count)], pa.int64()
            ),
            "$time": pa.array([0] * count, pa.int64()),
        }
        log.append([Append(source.topic, pa.record_batch(columns))]).result()


def _follow(catalog: Catalog, followers: Followers) -> None:
    beside = [(version.number, version.source) for version in catalog.beside()]
    followers.sync(catalog.views(), catalog.source, beside)


def _compared(followers: Followers, folder: Path, rows: int) -> Measure:
    started = time.monotonic()
    parts = parts_of(followers.version("COUNTS", 1))
    old, new = (spool_rows(followers.version("COUNTS", n), folder / f"spool{n}", parts) for n in (1, 2))
    assert old is not None
    assert new is not None
    found = compare_spools(old, new, (1, 2), 0)
    assert found.changed == -(-rows // 100), found
    return Measure("comparing two versions", rows / (time.monotonic() - started), "rows/s", detail=f"{rows:,} rows")


def _switched(catalog: Catalog, followers: Followers) -> Measure:
    """The record synced, the catalog folded, the pointer moved."""
    took = []
    for number in range(SWITCHES):
        started = time.perf_counter()
        catalog.append([VersionsSwitched({"COUNTS": 2 - number % 2}, number)])
        _follow(catalog, followers)
        took.append((time.perf_counter() - started) * 1000)
    return Measure("a switch", percentile(took, 0.99), "ms, p99", aim="≤ 100 ms", detail=f"{SWITCHES} in a row")
