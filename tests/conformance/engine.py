"""What a case runs on: a log of its own, with a catalog, whose queries Spark runs."""

from __future__ import annotations

import base64
import itertools
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.config import LogSettings, SparkSettings
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.planning import query_spec
from headrace.coordinate.statements import StatementExecutor
from headrace.log.base import HEADERS, TIME, TOMBSTONE, WINDOW_END, WINDOW_START, Append
from headrace.log.codecs.event_time import ANY_TIME, EventTimes
from headrace.log.local.open import LocalLog
from headrace.log.schema import arrow_type
from headrace.process.session import query_session
from headrace.process.streaming import start_query
from tests.conformance.case import CaseData
from tests.conformance.compare import Record
from tests.conformance.records import Row, TopicFormat, Unreadable, topic_format

SYSTEM_TYPES = {
    TIME: pa.int64(),
    TOMBSTONE: pa.bool_(),
    WINDOW_START: pa.int64(),
    WINDOW_END: pa.int64(),
    "$rest": pa.string(),
    HEADERS: pa.map_(pa.string(), pa.binary()),
}
MEMORY = Path("/dev/shm")


class Engine:
    """A log, a catalog and an executor for one case. `folder` is in memory where there is such a place."""

    def __init__(self, spark: SparkSession) -> None:
        memory = str(MEMORY) if MEMORY.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-case-", dir=memory))
        settings = LogSettings(linger_ms=0, min_free_bytes=0)
        self.log = LocalLog(self.folder / "log", settings, SystemClock())
        self.catalog = Catalog(self.log)
        self.executor = StatementExecutor(self.log, self.catalog, SystemClock())
        self.spark = query_session(spark)
        self.spark.conf.set("spark.sql.shuffle.partitions", "1")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *failure: object) -> None:
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def append(self, case: CaseData, records: Iterable[Record]) -> None:
        """In order; a run of one topic's records at a time. What cannot be read is left out."""
        for topic, run in itertools.groupby(records, key=lambda record: record["topic"]):
            format_ = self.format(case, topic)
            rows = [row for record in run if (row := _readable(format_, record)) is not None]
            if rows:
                self.log.append([Append(topic, _batch(format_, rows))]).result(30)

    def format(self, case: CaseData, topic: str) -> TopicFormat:
        return topic_format(case, self.log.topic(topic).spec)

    def compute(self, record_by_record: bool = False) -> None:
        """Each query reads what is there and ends; they were created inputs first."""
        settings = SparkSettings(max_rows_per_batch=1) if record_by_record else SparkSettings()
        for query in self.catalog.queries():
            spec = query_spec(query, self.catalog, self.folder / "checkpoints")
            running = start_query(
                self.spark,
                self.folder / "log",
                lambda name: self.log.topic(name).spec,
                settings,
                spec,
                available_now=True,
            )
            running.awaitTermination()

    def records(self, case: CaseData, topic: str) -> list[Record]:
        format_ = self.format(case, topic)
        found: list[Row] = []
        for number, ends in enumerate(self.log.snapshot().ends[topic]):
            for records in self.log.read(topic, number, ends.start, ends.end):
                found += format_.rows(records.batch)
        return [format_.record(row) for row in sorted(found, key=lambda row: row["$arrival"])]


def _readable(format_: TopicFormat, record: Record) -> Row | None:
    try:
        row = format_.row(record)
        times = _event_times(format_, row)
    except Unreadable:
        return None
    if times is None:
        return None
    headers = [(one["KEY"], base64.b64decode(one["VALUE"])) for one in record.get("headers") or ()]
    return row | {TIME: times} | ({HEADERS: headers} if headers else {})


def _event_times(format_: TopicFormat, row: Row) -> int | None:
    """The record's event time, as the collector reads it; none if there is a column for it that cannot be read."""
    stamp = format_.spec.timestamp
    if stamp is None:
        return int(row[TIME]) if row[TIME] >= 0 else None
    rejected: list[str] = []
    types = {column.name: column.type for column in format_.spec.key + format_.spec.value}
    arrays = {stamp.column: pa.array([row.get(stamp.column)], arrow_type(types[stamp.column]))}
    times = EventTimes(format_.spec).read(arrays, [row[TIME]], 1, 0, ANY_TIME, lambda _, why: rejected.append(why))
    return None if rejected or times is None else int(times[0].as_py())


def _batch(format_: TopicFormat, rows: list[Row]) -> pa.RecordBatch:
    spec = format_.spec
    types = {column.name: arrow_type(column.type) for column in spec.key + spec.value} | SYSTEM_TYPES
    names = [name for name in types if any(name in row for row in rows)]
    return pa.record_batch({name: pa.array([row.get(name) for row in rows], types[name]) for name in names})
