"""The same plan over a bounded range of offsets: rebuilds, tests, checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.log.base import ARRIVAL, TIME, TOMBSTONE, WINDOW_END, WINDOW_START, TopicSpec
from headrace.process.inputs import Offsets, RangeInputs
from headrace.process.lower.lower import lower_node
from headrace.process.lower.rows import LATE_ROW, column
from headrace.process.lower.scan import Inputs
from headrace.process.session import query_session
from headrace.sql.plan import Aggregate, PersistentQuery, walk
from headrace.sql.source import WINDOW_COLUMNS

if TYPE_CHECKING:
    from headrace.process.kafka.place import KafkaPlace


def run_batch(
    spark: SparkSession,
    log: Path | KafkaPlace,
    topics: Callable[[str], TopicSpec],
    query: PersistentQuery,
    starts: Mapping[str, Offsets] | None = None,
    ends: Mapping[str, Offsets] | None = None,
) -> DataFrame:
    """What the sink would hold after exactly these records: of a table its rows, of a stream its records. Columns are
    the sink's (with WINDOWSTART and WINDOWEND) and `$time`."""
    inputs = range_inputs(query_session(spark), log, topics, starts or {}, ends or {})
    rows = lower_node(query.root, inputs, query.emit == "final")
    frame = rows.frame.filter(column(LATE_ROW).isNull()) if rows.late else rows.frame
    if query.sink.kind == "table":
        frame = last_by_key(query, frame).filter(~column(TOMBSTONE))
    keys = [column(named.name).alias(c.name) for named, c in zip(query.root.key, query.sink.key, strict=True)]
    values = [column(named.name).alias(c.name) for named, c in zip(query.root.value, query.sink.value, strict=True)]
    windows = [column(name) for name in (WINDOW_START, WINDOW_END)] if query.sink.window else []
    bounds = [bound.alias(c.name) for bound, c in zip(windows, WINDOW_COLUMNS, strict=False)]
    return frame.select(*keys, *bounds, *values, column(TIME))


def range_inputs(
    spark: SparkSession,
    log: Path | KafkaPlace,
    topics: Callable[[str], TopicSpec],
    starts: Mapping[str, Offsets],
    ends: Mapping[str, Offsets],
) -> Inputs:
    if isinstance(log, Path):
        return RangeInputs(spark, log, topics, starts, ends)
    # Only those who use Kafka have its packages.
    from headrace.process.kafka.inputs import KafkaRangeInputs

    return KafkaRangeInputs(spark, log, topics, starts, ends)


def last_by_key(query: PersistentQuery, frame: DataFrame) -> DataFrame:
    """A batch's aggregate has one row per key already; a changelog has every change."""
    if any(isinstance(node, Aggregate) for node in walk(query.root)):
        return frame
    keys = [named.name for named in query.root.key]
    keys += [WINDOW_START, WINDOW_END] if query.sink.window else []
    newest = F.max_by(F.struct(*(column(name) for name in frame.columns)), column(ARRIVAL)).alias("$newest")
    return frame.groupBy(*(column(name) for name in keys)).agg(newest).select("`$newest`.*")
