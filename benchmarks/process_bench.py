"""SQL through the planner and the lowering: counting into nothing and into a topic, against the same job written by
hand over Parquet. Rows read and keys changed are different things, so both are reported."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Measure
from benchmarks.spark_bench import FILES, QUICK_ROWS, ROWS, VIEWS, fill, trigger_rate
from headrace.clock import SystemClock
from headrace.config import LogSettings, SparkSettings
from headrace.log.base import TopicSpec
from headrace.log.local import LocalLog
from headrace.process.base import LATE_COLUMNS, QuerySpec
from headrace.process.inputs import StreamInputs
from headrace.process.lower.lower import lower_query
from headrace.process.progress import topic_end
from headrace.process.session import query_session
from headrace.process.streaming import start_query
from headrace.sql.api import parse, plan_query
from headrace.sql.functions.function import Function
from headrace.sql.plan import PersistentQuery
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect
from headrace.types import DataType

STREAM = Source("VIEWS", "stream", VIEWS.name, VIEWS.key, VIEWS.value, partitions=VIEWS.partitions)
COUNT = "CREATE TABLE by_user AS SELECT userid, COUNT(*) AS n FROM views GROUP BY userid;"
TUMBLING = """CREATE TABLE by_minute AS SELECT pageid, COUNT(*) AS n FROM views
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY pageid;"""
LATE = "_late.bench"
ROUNDS = 3
# Two batches, as large as they may be by default or a little larger; of Parquet, two files each.
BATCH_ROWS, BATCH_FILES = ROWS // 2, FILES // 2


class OneStream:
    """All the catalog there is."""

    def source(self, name: str) -> Source | None:
        return STREAM if name == STREAM.name else None

    def sources(self) -> list[Source]:
        return [STREAM]

    def types(self) -> Mapping[str, DataType]:
        return {}

    def functions(self) -> Mapping[str, Function]:
        return {}


def run(quick: bool = False, spark: SparkSession | None = None) -> list[Measure]:
    if spark is not None:
        return _run(spark, QUICK_ROWS if quick else ROWS)
    from headrace.process.jvm import spark_session

    settings = SparkSettings(master="local[2]", memory="3g", shuffle_partitions=2)
    session = spark_session(settings, "headrace process bench")
    try:
        return _run(session, QUICK_ROWS if quick else ROWS)
    finally:
        session.stop()


def _run(spark: SparkSession, rows: int) -> list[Measure]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        log = LocalLog(folder / "log", LogSettings(), SystemClock())
        try:
            fill(log, folder / "parquet", rows)
            bench = Bench(query_session(spark), log, folder)
            return [*bench.measures("count by key", COUNT, rows), *bench.measures("one-minute count", TUMBLING, rows)]
        finally:
            log.close()


class Bench:
    def __init__(self, spark: SparkSession, log: LocalLog, folder: Path) -> None:
        self.spark, self.log, self.folder = spark, log, folder
        self.runs = 0

    def measures(self, name: str, sql: str, rows: int) -> list[Measure]:
        """Each once to warm up, then in turn, so that whatever else the machine does meets all; the best counts."""
        plan = planned(sql)
        rounds = [(self.into_nothing(plan), self.by_hand(plan), self.into_topic(plan)) for _ in range(ROUNDS + 1)][1:]
        nothing, hand = max(r[0] for r in rounds), max(r[1] for r in rounds)
        written, changed = max(r[2] for r in rounds)
        against = "by hand over Parquet"
        return [
            Measure(f"SQL {name}", nothing, "rows/s", hand, against, "≥ 0.8 × Parquet", "into nothing"),
            Measure(f"SQL {name}", written, "rows/s", nothing, "into nothing", "", "into a topic"),
            Measure(f"SQL {name}", changed, "changed keys/s", detail="into a topic"),
        ]

    def into_nothing(self, plan: PersistentQuery) -> float:
        inputs = StreamInputs(self.spark, self.log.folder, self.topic, "bench", BATCH_ROWS)
        return self.nowhere(lower_query(plan, inputs, LATE).frame)

    def by_hand(self, plan: PersistentQuery) -> float:
        parquet = str(self.folder / "parquet")
        files = self.spark.readStream.schema(self.spark.read.parquet(parquet).schema).format("parquet")
        return self.nowhere(_by_hand(files.name("files").option("maxFilesPerTrigger", BATCH_FILES).load(parquet), plan))

    def nowhere(self, frame: DataFrame) -> float:
        writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", self.checkpoint())
        return trigger_rate(writer.trigger(availableNow=True).start())

    def into_topic(
        self, plan: PersistentQuery, max_rows: int = BATCH_ROWS, keys: int | None = None
    ) -> tuple[float, float]:
        """Rows read and keys written a second. `keys` is what another version of the table tells."""
        sink = plan.sink
        self.log.create_topic(
            TopicSpec(
                sink.topic, sink.key, sink.value, role="derived", windowed="time" if sink.window is not None else None
            )
        )
        self.log.create_topic(TopicSpec(LATE, value=LATE_COLUMNS, role="derived"))
        checkpoint = Path(self.checkpoint())
        late = LATE if sink.window is not None else None
        spec = QuerySpec(f"bench{self.runs}", 1, plan, checkpoint, late, keys=keys)
        before = topic_end(self.log.snapshot(), sink.topic)
        settings = SparkSettings(max_rows_per_batch=max_rows)
        query = start_query(self.spark, self.log.folder, self.topic, settings, spec, available_now=True)
        rate = trigger_rate(query)
        changed = topic_end(self.log.snapshot(), sink.topic) - before
        seconds = sum(json.loads(b.json)["durationMs"]["triggerExecution"] for b in query.recentProgress) / 1000
        self.log.delete_topic(sink.topic)
        return rate, changed / seconds

    def topic(self, name: str) -> TopicSpec:
        return self.log.topic(name).spec

    def checkpoint(self) -> str:
        """A new one each time; the old ones go."""
        shutil.rmtree(self.folder / f"checkpoint{self.runs}", ignore_errors=True)
        self.runs += 1
        return str(self.folder / f"checkpoint{self.runs}")


def planned(sql: str) -> PersistentQuery:
    [statement] = parse(sql)
    assert isinstance(statement, CreateAsSelect)
    return plan_query(statement, OneStream())


def _by_hand(views: DataFrame, plan: PersistentQuery) -> DataFrame:
    """What somebody would write who knows Spark."""
    if plan.sink.window is None:
        return views.groupBy("USERID").count()
    timed = views.withColumn("time", F.timestamp_millis(F.col("`$time`"))).withWatermark("time", "10 seconds")
    return timed.groupBy("PAGEID", F.window("time", "1 minute")).count()


def by_hand_batch(views: DataFrame, plan: PersistentQuery) -> DataFrame:
    """The same for all that there is: no watermark."""
    if plan.sink.window is None:
        return views.groupBy("USERID").count()
    timed = views.withColumn("time", F.timestamp_millis(F.col("`$time`")))
    return timed.groupBy("PAGEID", F.window("time", "1 minute")).count()
