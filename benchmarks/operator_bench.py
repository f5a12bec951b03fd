"""Every kind of SQL query, into nothing, against the same by hand in PySpark over the same topics in the same run; how
each grows with the number of keys; and what many queries at once cost."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.by_hand import QUERIES as BY_HAND
from benchmarks.by_hand import Topics
from benchmarks.measure import Measure, percentile
from benchmarks.processor import processor_seconds
from benchmarks.spark_bench import BATCH_ROWS, KEY, LONG_VIEWS, PARTITIONS, QUICK_ROWS, VALUE, VIEWS, trigger_rate
from headrace.clock import SystemClock
from headrace.config import LogSettings, SparkSettings
from headrace.log.base import Append, TopicSpec
from headrace.log.local import LocalLog
from headrace.process.base import QuerySpec
from headrace.process.inputs import StreamInputs
from headrace.process.jvm import spark_session
from headrace.process.lower.lower import lower_query
from headrace.process.session import query_session
from headrace.process.streaming import start_query
from headrace.sql.api import parse, plan_query
from headrace.sql.functions.function import Function
from headrace.sql.plan import PersistentQuery
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect
from headrace.types import VARCHAR, Column, DataType

ROWS, JOIN_ROWS, PEOPLE, PAGES, REGIONS, ROUNDS = 4_000_000, 600_000, 100_000, 1_000, 50, 3
PAIR_ROWS, GROWTH_ROWS = 200_000, 100_000
"""Of joins of streams, whose state Spark itself is slow to write, and of what is measured three times over."""
KEYS = (1_000, 100_000, 1_000_000)
MAX_ROWS, JOIN_MAX_ROWS = 2_000_000, 300_000
MANY = 20
USERS = TopicSpec("users", (Column("ID", VARCHAR),), (Column("REGION", VARCHAR),), PARTITIONS)
BUYS = TopicSpec("buys", KEY, VALUE, PARTITIONS)
SOURCES = {
    "VIEWS": Source("VIEWS", "stream", "views", KEY, VALUE, partitions=PARTITIONS),
    "BUYS": Source("BUYS", "stream", "buys", KEY, VALUE, partitions=PARTITIONS),
    "USERS": Source("USERS", "table", "users", USERS.key, USERS.value, partitions=PARTITIONS),
}
QUERIES = {
    "filter": "CREATE STREAM long_views AS SELECT userid, pageid, duration FROM views WHERE duration >= 500;",
    "count by key": "CREATE TABLE out AS SELECT userid, COUNT(*) AS n FROM views GROUP BY userid;",
    "tumbling": """CREATE TABLE out AS SELECT pageid, COUNT(*) AS n FROM views
      WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY pageid;""",
    "hopping": """CREATE TABLE out AS SELECT pageid, COUNT(*) AS n FROM views
      WINDOW HOPPING (SIZE 1 MINUTE, ADVANCE BY 20 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY pageid;""",
    "session": """CREATE TABLE out AS SELECT userid, COUNT(*) AS n, SUM(duration) AS total
      FROM views WINDOW SESSION (20 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY userid;""",
    "stream-table join": """CREATE STREAM out AS SELECT views.userid, pageid, region
      FROM views LEFT JOIN users ON views.userid = users.id;""",
    "stream-stream join": """CREATE STREAM out AS SELECT views.userid AS u, views.pageid AS seen, buys.pageid AS bought
      FROM views JOIN buys WITHIN 1 SECOND GRACE PERIOD 1 SECOND ON views.userid = buys.userid;""",
    "table aggregate": "CREATE TABLE out AS SELECT region, COUNT(*) AS n FROM users GROUP BY region;",
}
AIMS = {
    "filter": "≥ 4 M rows/s",
    "count by key": "≥ 4 M rows/s",
    "tumbling": "≥ 4 M rows/s",
    "hopping": "≥ 4 M rows/s",
    "session": "≥ 0.5 M rows/s",
    "stream-table join": "≥ 1 M rows/s",
    "stream-stream join": "≥ 0.5 M rows/s",
    "table aggregate": "",
}
NATIVE = ("filter", "count by key", "tumbling", "hopping")
"""Done by Spark's own operators, and the fastest: they get more rows, or one would measure how batches begin."""
IN_PYTHON = ("stream-table join", "table aggregate")
"""By hand they are Python, which takes minutes and does not get warmer: once is enough."""
OF_PAIRS = ("stream-stream join",)
GROWING = ("count by key", "session", "stream-table join", "stream-stream join")


class Known:
    """All the catalog there is."""

    def source(self, name: str) -> Source | None:
        return SOURCES.get(name)

    def sources(self) -> list[Source]:
        return list(SOURCES.values())

    def types(self) -> Mapping[str, DataType]:
        return {}

    def functions(self) -> Mapping[str, Function]:
        return {}


def run(quick: bool = False, only: str = "") -> Iterator[Measure]:
    """`only`: of the queries, those with this in their name; `many` and `growth` are parts too."""
    spark = spark_session(SparkSettings(master="local[2]", memory="3g", shuffle_partitions=2), "headrace operators")
    rows, join_rows, rounds = (QUICK_ROWS, QUICK_ROWS, 2) if quick else (ROWS, JOIN_ROWS, ROUNDS)
    wanted = [name for name in QUERIES if only in name]
    native = [name for name in wanted if name in NATIVE]
    try:
        if native or only in "many":
            with bench(spark, rows, min(PEOPLE, rows), buys=False, rounds=rounds) as one:
                for name in native:
                    yield from one.against_hand(name)
                if "filter" in native:
                    yield one.into_a_topic()
                if only in "many":
                    yield from one.many()
        for of_pairs, count in ((False, join_rows), (True, min(PAIR_ROWS, join_rows))):
            if others := [name for name in wanted if name not in NATIVE and (name in OF_PAIRS) is of_pairs]:
                with bench(spark, count, min(PEOPLE, count), rounds=rounds) as one:
                    for name in others:
                        yield from one.against_hand(name)
        if only in "growth":
            for keys in KEYS[: 1 if quick else None]:
                with bench(spark, min(GROWTH_ROWS, join_rows), people=keys) as one:
                    for name in GROWING:
                        yield one.with_keys(name, keys)
    finally:
        spark.stop()


@contextmanager
def bench(spark: SparkSession, rows: int, people: int, buys: bool = True, rounds: int = 2) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        log = LocalLog(Path(folder) / "log", LogSettings(), SystemClock())
        try:
            fill(log, rows, people, buys)
            yield Bench(query_session(spark), log, Path(folder), rounds, JOIN_MAX_ROWS if buys else MAX_ROWS)
        finally:
            log.close()


def fill(log: LocalLog, rows: int, people: int, buys: bool) -> None:
    """Every user twice, then views, and buys in turn with them, ten a millisecond."""
    for topic in (VIEWS, LONG_VIEWS, BUYS, USERS):
        log.create_topic(topic)
    users = pa.array([f"user-{number}" for number in range(people)])
    for round_ in range(2):
        regions = np.random.default_rng(round_).integers(0, REGIONS, people)
        table = pa.table({"ID": users, "REGION": pa.array([f"region-{n}" for n in regions])})
        for batch in table.to_batches(BATCH_ROWS):
            log.append([Append("users", batch)]).result()
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        for name, seed in (("views", first), ("buys", first + 1))[: 2 if buys else 1]:
            log.append([Append(name, make_batch(users, seed, first, count))]).result()


def make_batch(users: pa.Array, seed: int, first: int, rows: int) -> pa.RecordBatch:
    random = np.random.default_rng(seed)
    pages = pa.array([f"/page/{number}" for number in range(PAGES)])
    return pa.RecordBatch.from_pydict(
        {
            "$time": pa.array(1_700_000_000_000 + np.arange(first, first + rows) // 10),
            "USERID": users.take(pa.array(random.integers(0, len(users), rows))),
            "PAGEID": pages.take(pa.array(random.integers(0, PAGES, rows))),
            "DURATION": pa.array(random.integers(0, 1000, rows)),
        }
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """Rows a second, and microseconds of processor a row."""

    rate: float
    processor: float

    @staticmethod
    def best(paces: Sequence[Pace]) -> Pace:
        return Pace(max(pace.rate for pace in paces), min(pace.processor for pace in paces))


@dataclass
class Bench:
    spark: SparkSession
    log: LocalLog
    folder: Path
    rounds: int
    max_rows: int
    runs: int = 0

    def against_hand(self, name: str) -> Iterator[Measure]:
        """Each once to warm up, then in turn, so that whatever else the machine does meets both; the best counts."""
        if name in IN_PYTHON:
            ours, theirs = Pace.best([self.ours(name) for _ in range(self.rounds)]), self.theirs(name)
        else:
            rounds = [(self.ours(name), self.theirs(name)) for _ in range(self.rounds)][1:]
            ours, theirs = (Pace.best(paces) for paces in zip(*rounds, strict=True))
        aim = f"{AIMS[name]} ≥ 0.83"
        yield Measure(f"SQL {name}", ours.rate, "rows/s", theirs.rate, "by hand", aim, "into nothing")
        yield Measure(
            f"SQL {name}", ours.processor, "µs/row", theirs.processor, "by hand", "≤ 1.2", "processor, into nothing"
        )

    def with_keys(self, name: str, keys: int) -> Measure:
        best = Pace.best([self.ours(name) for _ in range(2)])
        return Measure(f"SQL {name}", best.rate, "rows/s", detail=f"{keys:,} keys, {best.processor:.2f} µs/row")

    def ours(self, name: str) -> Pace:
        inputs = StreamInputs(self.spark, self.log.folder, self.topic, "bench", self.max_rows)
        return self.pace(lower_query(planned(QUERIES[name]), inputs).frame, "update")

    def theirs(self, name: str) -> Pace:
        query, mode = BY_HAND[name]
        return self.pace(query(Topics(self.spark, self.log.folder, self.max_rows)), mode)

    def pace(self, frame: DataFrame, mode: str) -> Pace:
        writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(self.checkpoint()))
        before = processor_seconds(self.spark)
        query = writer.trigger(availableNow=True).start()
        rate = trigger_rate(query)
        rows = sum(batch.numInputRows for batch in query.recentProgress)
        return Pace(rate, (processor_seconds(self.spark) - before) / rows * 1e6)

    def into_a_topic(self) -> Measure:
        rates = [trigger_rate(self.start("filter", available_now=True)) for _ in range(self.rounds)]
        return Measure("SQL filter", max(rates), "rows/s", aim="≥ 2 M rows/s", detail="into a topic, rows read")

    def many(self) -> list[Measure]:
        """Twenty queries running: how long until all have written one new batch, and how long one takes to start."""
        starts: list[float] = []
        queries: list[StreamingQuery] = []
        try:
            for _ in range(MANY):
                began = time.monotonic()
                queries.append(self.start("count by key" if len(queries) % 2 else "filter"))
                starts.append(time.monotonic() - began)
            for query in queries:
                query.processAllAvailable()
            batches = [_batch(query) for query in queries]
            began = time.monotonic()
            users = pa.array([f"user-{number}" for number in range(1_000)])
            self.log.append([Append("views", make_batch(users, 1, 0, 1_000))]).result()
            while any(_batch(query) <= before for query, before in zip(queries, batches, strict=True)):
                time.sleep(0.01)
            took = time.monotonic() - began
        finally:
            for query in queries:
                query.stop()
        return [
            Measure("twenty queries on one new batch", took, "s", aim="≤ 3 s"),
            Measure("query start", percentile(starts, 0.5), "s", aim="≤ 1 s", detail="median of twenty in turn"),
        ]

    def start(self, name: str, available_now: bool = False) -> StreamingQuery:
        plan = planned(QUERIES[name])
        checkpoint = self.checkpoint()
        if plan.sink.name == "OUT" and not any(topic.spec.name == "OUT" for topic in self.log.topics()):
            self.log.create_topic(TopicSpec("OUT", plan.sink.key, plan.sink.value, PARTITIONS, role="derived"))
        topic = LONG_VIEWS.name if name == "filter" else "OUT"
        plan = replace(plan, sink=replace(plan.sink, topic=topic))
        spec = QuerySpec(f"bench{self.runs}", 1, plan, checkpoint)
        settings = SparkSettings(max_rows_per_batch=self.max_rows)
        return start_query(self.spark, self.log.folder, self.topic, settings, spec, available_now)

    def topic(self, name: str) -> TopicSpec:
        return self.log.topic(name).spec

    def checkpoint(self) -> Path:
        """A new one each time."""
        self.runs += 1
        return self.folder / f"checkpoint{self.runs}"


def planned(sql: str) -> PersistentQuery:
    [statement] = parse(sql)
    assert isinstance(statement, CreateAsSelect)
    return plan_query(statement, Known())


def _batch(query: StreamingQuery) -> int:
    last = query.lastProgress
    return int(json.loads(last.json)["batchId"]) if last is not None and last.numInputRows else -1
