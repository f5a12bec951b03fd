"""The queries of `operator_bench`, as somebody who knows PySpark would write them over the same topics.

Where Spark has no such operator (a row meets the table as it is when it arrives; the row before a change), that is a
stateful processor in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.spark import read_topic

JOINED = "USERID string, PAGEID string, REGION string"
CHANGED = "REGION string, SIGN int"


@dataclass(frozen=True, slots=True)
class Topics:
    spark: SparkSession
    log_folder: Path
    max_rows: int

    def stream(self, topic: str, *columns: str) -> DataFrame:
        """In batches as large as the SQL query's, which is what most of a small one's cost depends on."""
        frame = read_topic(
            self.spark,
            self.log_folder,
            topic,
            columns=["$time", *columns],
            stream=True,
            max_rows=self.max_rows,
            cut="by hand",
        )
        return frame.withColumn("time", F.timestamp_millis(F.col("`$time`")))

    def views(self) -> DataFrame:
        return self.stream("views", "USERID", "PAGEID", "DURATION")


def filter_(topics: Topics) -> DataFrame:
    return topics.views().where("DURATION >= 500").select("USERID", "PAGEID", "DURATION")


def count_by_key(topics: Topics) -> DataFrame:
    return topics.views().groupBy("USERID").count()


def tumbling(topics: Topics) -> DataFrame:
    timed = topics.views().withWatermark("time", "10 seconds")
    return timed.groupBy("PAGEID", F.window("time", "1 minute")).count()


def hopping(topics: Topics) -> DataFrame:
    timed = topics.views().withWatermark("time", "10 seconds")
    return timed.groupBy("PAGEID", F.window("time", "1 minute", "20 seconds")).count()


def session(topics: Topics) -> DataFrame:
    timed = topics.views().withWatermark("time", "10 seconds")
    grouped = timed.groupBy("USERID", F.session_window("time", "20 seconds"))
    return grouped.agg(F.count("*"), F.sum("DURATION"))


def stream_stream(topics: Topics) -> DataFrame:
    left = topics.stream("views", "USERID", "PAGEID").withWatermark("time", "1 second").alias("l")
    right = topics.stream("buys", "USERID", "PAGEID").withWatermark("time", "1 second").alias("r")
    near = "l.USERID = r.USERID AND r.time BETWEEN l.time - INTERVAL 1 SECOND AND l.time + INTERVAL 1 SECOND"
    return left.join(right, F.expr(near))


class Meeting(StatefulProcessor):  # type: ignore[misc]
    """Each view with the region its user has when it arrives."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.region = handle.getValueState("region", "region string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        held = self.region.get() if self.region.exists() else None
        region = before = held[0] if held else None
        for user, page, new, _ in sorted(rows, key=lambda row: row[3]):
            if page is None:
                region = new
            else:
                yield Row(USERID=user, PAGEID=page, REGION=region)
        if region is not None and region != before:
            self.region.update((region,))


class Changes(StatefulProcessor):  # type: ignore[misc]
    """Of each new row of the table its region with 1, and with -1 the region before."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.region = handle.getValueState("region", "region string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        held = self.region.get() if self.region.exists() else None
        region = held[0] if held else None
        for _, new, _ in sorted(rows, key=lambda row: row[2]):
            if region is not None:
                yield Row(REGION=region, SIGN=-1)
            yield Row(REGION=new, SIGN=1)
            region = new
        self.region.update((region,))


def stream_table(topics: Topics) -> DataFrame:
    views = topics.stream("views", "USERID", "PAGEID", "$arrival").withColumn("REGION", F.lit(None).cast("string"))
    users = topics.stream("users", "ID", "REGION", "$arrival")
    columns = ["USERID", "PAGEID", "REGION", "`$arrival`"]
    both = views.select(*columns).unionAll(
        users.select(F.col("ID"), F.lit(None).cast("string"), "REGION", "`$arrival`")
    )
    return both.groupBy("USERID").transformWithState(Meeting(), JOINED, "update", "none")


def table_aggregate(topics: Topics) -> DataFrame:
    users = topics.stream("users", "ID", "REGION", "$arrival").select("ID", "REGION", "`$arrival`")
    changes = users.groupBy("ID").transformWithState(Changes(), CHANGED, "update", "none")
    return changes.groupBy("REGION").agg(F.sum("SIGN"))


QUERIES: dict[str, tuple[Callable[[Topics], DataFrame], str]] = {
    "filter": (filter_, "append"),
    "count by key": (count_by_key, "update"),
    "tumbling": (tumbling, "update"),
    "hopping": (hopping, "update"),
    # Spark has no early results of sessions.
    "session": (session, "append"),
    "stream-table join": (stream_table, "update"),
    "stream-stream join": (stream_stream, "append"),
    "table aggregate": (table_aggregate, "update"),
}
