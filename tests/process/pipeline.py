"""A log with a catalog in a temporary folder: statements in, events in, queries run, tables out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.config import LogSettings, SparkSettings
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.planning import query_spec
from headrace.coordinate.statements import StatementExecutor
from headrace.log.base import TIME, TOMBSTONE, WINDOW_END, WINDOW_START, Append, Log, Topic, TopicSpec
from headrace.log.local.open import LocalLog
from headrace.log.schema import arrow_type
from headrace.process.base import QuerySpec
from headrace.process.kafka.place import KafkaPlace
from headrace.process.session import query_session
from headrace.process.streaming import start_query
from headrace.store.arrivals import has_arrivals

Row = dict[str, Any]


class Records:
    """What is in a log's topics."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def records(self, topic: str) -> list[Row]:
        """All records of a topic in order of arrival."""
        found: list[Row] = []
        for number, ends in enumerate(self.log.snapshot().ends[topic]):
            for records in self.log.read(topic, number, ends.start, ends.end):
                found += records.batch.to_pylist(maps_as_pydicts="strict")
        # Without arrival numbers a partition's order is all there is, and that is kept.
        return sorted(found, key=lambda record: record["$arrival"]) if has_arrivals(self.log) else found

    def table(self, topic: str) -> list[Row]:
        """A table has the newest row of each key and window; two sessions of a key may begin at the same time."""
        spec = self.log.topic(topic).spec
        rows: dict[tuple[Any, ...], Row] = {}
        for record in self.records(topic):
            key = tuple(record[column.name] for column in spec.key)
            key += (record[WINDOW_START], record[WINDOW_END]) if spec.windowed else ()
            rows.pop(key, None)
            if not record[TOMBSTONE]:
                rows[key] = {name: value for name, value in record.items() if name in kept(spec)}
        return sorted(rows.values(), key=lambda row: repr(list(row.values())))

    def result(self, names: Sequence[str], topic: str, table: bool) -> list[tuple[Any, ...]]:
        """The named columns of a table's rows, or of a stream's records."""
        rows = self.table(topic) if table else self.records(topic)
        return [tuple(row[name] for name in names) for row in rows]


class Pipeline(Records):
    def __init__(self, folder: Path, sql: str) -> None:
        self.folder = folder
        self.log_folder = folder / "log"
        log, self.where = self.open()
        super().__init__(log)
        self.catalog = Catalog(self.log)
        self.executor = StatementExecutor(self.log, self.catalog, SystemClock())
        self.executor.execute(sql)

    def open(self) -> tuple[Log, Path | KafkaPlace]:
        """The log, and where Spark finds it."""
        settings = LogSettings(linger_ms=0, min_free_bytes=0)
        return LocalLog(self.log_folder, settings, SystemClock()), self.log_folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.log.close()

    def spec(self, sink: str) -> QuerySpec:
        [query] = [query for query in self.catalog.queries() if query.sink == sink.upper()]
        return query_spec(query, self.catalog, self.folder / "checkpoints")

    def topic(self, name: str) -> TopicSpec:
        return self.log.topic(name).spec

    def put(self, topic: str, rows: Sequence[Row], partition: int | None = None) -> None:
        """One append, which is one frame per partition."""
        self.log.append([Append(topic, batch_of(self.log.topic(topic), rows), partition)]).result(30)

    def run(self, spark: SparkSession, sink: str, max_rows: int = 500_000) -> None:
        """Until the query has read what is there, through the real source, sink and checkpoint."""
        self.run_all(spark, [sink], max_rows)

    def run_all(self, spark: SparkSession, sinks: Sequence[str], max_rows: int = 500_000) -> None:
        """Side by side: none may read what another writes."""
        settings, session = SparkSettings(max_rows_per_batch=max_rows), query_session(spark)
        started = [
            start_query(session, self.where, self.topic, settings, self.spec(sink), available_now=True)
            for sink in sinks
        ]
        for query in started:
            query.awaitTermination()


def kept(spec: TopicSpec) -> set[str]:
    return {column.name for column in spec.key + spec.value} | {TIME, WINDOW_START, WINDOW_END}


def batch_of(topic: Topic, rows: Iterable[Row]) -> pa.RecordBatch:
    """Columns by name; system columns too, where a row has them."""
    rows = list(rows)
    types = {column.name: arrow_type(column.type) for column in topic.spec.key + topic.spec.value}
    types |= {"$time": pa.int64(), "$tombstone": pa.bool_(), "$id": pa.string(), "$rest": pa.string()}
    types["$headers"] = pa.map_(pa.string(), pa.binary())
    names = [name for name in types if any(name in row for row in rows)]
    return pa.record_batch({name: pa.array([row.get(name) for row in rows], types[name]) for name in names})
