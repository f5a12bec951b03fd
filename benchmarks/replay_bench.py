"""Replays: how their time grows with the log, and what live tables notice while one runs.

The first is one stream's count by key, replayed into a topic at each size. The second is a whole project: the delay
from an event to its change in a feed, at rest, and while another table is rebuilt again and again from millions.

python -m benchmarks replay --only "50 M"     the largest size, which takes too long to be measured each time
python -m benchmarks replay --only feed       only what live tables notice
python -m benchmarks replay --only keys       the same beside a table with as many keys as records
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.measure import Measure, percentile
from benchmarks.process_bench import COUNT, Bench, planned
from benchmarks.spark_bench import BATCH_ROWS, VIEWS, make_batch
from benchmarks.system_bench import ONE_QUERY, event_to_feed, running
from headrace.clock import SystemClock
from headrace.config import LogSettings, SparkSettings
from headrace.coordinate.catalog import Catalog, create_internal_topics
from headrace.coordinate.statements import StatementExecutor
from headrace.log.base import Append
from headrace.log.local.open import LocalLog
from headrace.process.session import query_session
from tests.support import free_port, wait_for

SIZES, QUICK_SIZES, ASKED_FOR = (1_000_000, 5_000_000, 20_000_000), (100_000, 300_000), 50_000_000
FEED = "event to feed p99 during a replay"
MANY = "event to feed p99 during a replay of many keys"
HISTORY, QUICK_HISTORY, MANY_KEYS = 20_000_000, 300_000, 8_000_000
REBUILT = (
    "CREATE TABLE per_user AS SELECT userid, COUNT(*) AS views FROM pageviews WHERE pageid <> '{}' GROUP BY userid;"
)
USERS = 50_000
OVER = ("switched", "cancelled", "failed", "rolled back")


def run(quick: bool = False, only: str = "") -> Iterator[Measure]:
    if sizes := _sizes(quick, only):
        yield from _growth(sizes)
    if only in FEED:
        yield _beside(FEED, QUICK_HISTORY if quick else HISTORY, USERS, quick)
    if only and only in MANY and only not in FEED:
        yield _beside(MANY, MANY_KEYS, MANY_KEYS, quick)


def _sizes(quick: bool, only: str) -> Sequence[int]:
    """The first is always among them: the others are measured by it."""
    sizes = QUICK_SIZES if quick else SIZES
    if not only:
        return sizes
    asked = [size for size in (*sizes, ASKED_FOR) if only in _name(size)]
    return sorted({sizes[0], *asked}) if asked else ()


def _name(size: int) -> str:
    return f"replay of {size / 1e6:g} M events"


def _growth(sizes: Sequence[int]) -> list[Measure]:
    from headrace.process.jvm import spark_session

    settings = SparkSettings(master="local[2]", memory="3g", shuffle_partitions=2)
    session = spark_session(settings, "headrace replay bench")
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
            log = LocalLog(Path(name) / "log", LogSettings(), SystemClock())
            try:
                return _grown(session, log, Path(name), sizes)
            finally:
                log.close()
    finally:
        session.stop()


def _grown(session: SparkSession, log: LocalLog, folder: Path, sizes: Sequence[int]) -> list[Measure]:
    """The first size twice: once to warm up. What it took is what the others are measured by, event for event."""
    log.create_topic(VIEWS)
    bench, plan = Bench(query_session(session), log, folder), planned(COUNT)
    batch = SparkSettings().max_rows_per_batch
    found: list[Measure] = []
    filled, per_event = 0, 0.0
    for size in sizes:
        for first in range(filled, size, BATCH_ROWS):
            log.append([Append(VIEWS.name, make_batch(first, min(BATCH_ROWS, size - first)))]).result()
        filled = size
        if not found:
            bench.into_topic(plan, batch)
        seconds = size / bench.into_topic(plan, batch)[0]
        per_event = per_event or seconds / size
        found.append(
            Measure(_name(size), seconds, "s", per_event * size, "at the pace of the first", "grows with the events")
        )
    return found


def _beside(name: str, history: int, users: int, quick: bool) -> Measure:
    """A feed's delay while another table is replayed."""
    seconds = 8.0 if quick else 30.0
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", ignore_cleanup_errors=True) as folder:
        project, port = Path(folder) / "project", free_port()
        (project / "pipelines").mkdir(parents=True)
        sql = f"{ONE_QUERY}\n{REBUILT.format('/none')}"
        (project / "pipelines" / "bench.sql").write_text(sql)
        (project / "headrace.toml").write_text(f"[server]\nport = {port}\n[views]\ncheck_every_seconds = 0\n")
        _fill(project / ".headrace" / "log", sql, history, users)
        url = f"http://127.0.0.1:{port}"
        with running(project, url):
            wait_for(lambda: _is_caught_up(url), 120, "the history to be read")
            rest = event_to_feed(url, seconds)
            with _Rebuilding(url) as rebuilding:
                busy = event_to_feed(url, seconds, warm_up=2.0)
    assert rebuilding.begun, "nothing was replayed meanwhile"
    detail = f"{rebuilding.begun} replays of {history / 1e6:g} M events begun meanwhile"
    quiet, loud = percentile(rest, 0.99) * 1000, percentile(busy, 0.99) * 1000
    return Measure(name, loud, "ms", quiet, "at rest", "≤ 3 × at rest", detail)


def _fill(folder: Path, sql: str, rows: int, users: int) -> None:
    """The project's log, before the project runs."""
    log = LocalLog(folder, LogSettings(), SystemClock())
    try:
        create_internal_topics(log)
        StatementExecutor(log, Catalog(log), SystemClock()).execute(sql)
        for first in range(0, rows, BATCH_ROWS):
            numbers = range(first, min(first + BATCH_ROWS, rows))
            columns = {
                "USERID": pa.array([f"u{number % users}" for number in numbers]),
                "PAGEID": pa.array([f"/p{number % 100}" for number in numbers]),
                "$time": pa.array(numbers, pa.int64()),
            }
            log.append([Append("pageviews", pa.record_batch(columns))]).result()
    finally:
        log.close()


def _is_caught_up(url: str) -> bool:
    queries = httpx.get(f"{url}/v1/queries", timeout=10).json()["queries"]
    return len(queries) == 2 and all(one["state"] == "running" and one["lag"] == 0 for one in queries)


class _Rebuilding(threading.Thread):
    """Deploys one change after the other, for as long as it is open."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url, self._finish, self.begun = url, threading.Event(), 0

    def __enter__(self) -> _Rebuilding:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finish.set()
        self.join()

    def run(self) -> None:
        number = 0
        with httpx.Client(base_url=self._url, timeout=60) as http:
            while not self._finish.wait(0.1):
                newest = next(iter(http.get("/v1/deployments").json()["deployments"]), None)
                if newest is not None and newest["stage"] not in OVER:
                    continue
                assert newest is None or newest["stage"] != "failed", newest
                number += 1
                http.post("/v1/views/per_user/forget")
                sql = f"{ONE_QUERY}\n{REBUILT.format(f'/none{number}')}"
                wanted = {"files": {"pipelines/bench.sql": sql}, "approve": True}
                http.post("/v1/deployments", json=wanted).raise_for_status()
                self.begun += 1
