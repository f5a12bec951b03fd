"""A question's plan → a DataFrame. For ranges that are too large for the server: the same nodes, the same meaning.

A stream is read from its topic, a table as the newest record of each key of its topic, all up to one moment of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import UsageError
from headrace.log.base import ARRIVAL, STREAM_TIME, TIME, TOMBSTONE, Log, Snapshot, TopicSpec
from headrace.process.ask.over import lower_over
from headrace.process.batch import range_inputs
from headrace.process.expressions import lower_expression
from headrace.process.lower.aggregate import lower_aggregate_node
from headrace.process.lower.flat_map import lower_flat_map
from headrace.process.lower.rows import LATE_ROW, PLACE, Rows, column
from headrace.process.lower.scan import lower_scan
from headrace.process.lower.session import lower_sessions
from headrace.process.session import query_session
from headrace.sql.ask_plan import (
    Around,
    AskNode,
    AskQuery,
    Cut,
    Expand,
    Group,
    Pair,
    Read,
    Select,
    Sort,
    Unique,
    Where,
    walk_nodes,
)
from headrace.sql.clauses import AsOf, TimeRange
from headrace.sql.expressions import ColumnRef, Over
from headrace.sql.plan import Aggregate, FlatMap, Scan
from headrace.sql.source import WINDOW_COLUMNS
from headrace.sql.walk import walk
from headrace.store.ranges import clip
from headrace.types import display_name

if TYPE_CHECKING:
    from headrace.process.kafka.place import KafkaPlace

SYSTEM = (TIME, ARRIVAL, TOMBSTONE, STREAM_TIME, PLACE)
JOINS = {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer"}


def ask_frame(spark: SparkSession, where: Path | KafkaPlace, log: Log, query: AskQuery) -> DataFrame:
    """The answer, computed when somebody looks at it. Columns are called as they are shown."""
    lowering = _Lowering(query_session(spark), where, log, log.snapshot())
    frame = lowering.lower(query.root)
    return frame.select(*(column(one.name).alias(display_name(one.name)) for one in query.columns))


@dataclass(frozen=True, slots=True)
class _Lowering:
    """Every frame has its node's columns and, until a join or a group, the system columns of the records."""

    spark: SparkSession
    where: Path | KafkaPlace
    log: Log
    now: Snapshot

    def lower(self, node: AskNode) -> DataFrame:
        match node:
            case Read():
                return self._read(node)
            case Pair():
                left, right = self.lower(node.left), _without_system(self.lower(node.right))
                left = left if node.tests else _without_system(left)
                return left.join(right, lower_expression(node.condition), JOINS[node.kind])
            case Where():
                return self.lower(node.input).filter(lower_expression(node.predicate))
            case Select():
                frame = self.lower(node.input)
                items = [lower_expression(item.expression).alias(item.name) for item in node.items]
                return frame.select(*items, *_system_of(frame))
            case Expand():
                rows = lower_flat_map(FlatMap(_scan_of(node), node.functions), _rows(self.lower(node.input)))
                return rows.frame
            case Group():
                return self._group(node)
            case Around():
                return self._around(node)
            case Unique():
                return _without_system(self.lower(node.input)).distinct()
            case Sort():
                frame = self.lower(node.input)
                return frame.orderBy(*(_ordered(lower_expression(o.expression), o.descending) for o in node.order))
            case Cut():
                frame = self.lower(node.input)
                frame = frame.offset(node.offset) if node.offset else frame
                return frame if node.limit is None else frame.limit(node.limit)

    def _read(self, node: Read) -> DataFrame:
        source = node.source
        if isinstance(node.range, AsOf):
            raise UsageError("AS OF is not answered on Spark", hint="ask the server: headrace.sql, or headrace sql")
        clipped = clip(self.log, self.now, node).ends[source.topic]
        starts = {source.topic: {number: ends.start for number, ends in enumerate(clipped)}}
        ends = {source.topic: {number: ends.end for number, ends in enumerate(clipped)}}
        inputs = range_inputs(self.spark, self.where, self._topic, starts, ends)
        needed = {one.name for one in node.wanted} | _names(node)
        if source.kind == "table":
            needed |= {one.name for one in source.key}
        frame = lower_scan(Scan(source), inputs, needed).frame
        if source.kind == "table":
            frame = _newest(frame, [one.name for one in source.key + (WINDOW_COLUMNS if source.window else ())])
        frame = frame.filter(~column(TOMBSTONE))
        if isinstance(node.range, TimeRange):
            frame = frame.filter(column(TIME).between(F.lit(node.range.low), F.lit(node.range.high)))
        if node.predicate is not None:
            frame = frame.filter(lower_expression(node.predicate))
        pairs = zip(node.wanted, node.names, strict=True)
        named = [column(one.name).alias(name) for one, name in pairs if one.name not in SYSTEM]
        return frame.select(*named, *_system_of(frame))

    def _topic(self, name: str) -> TopicSpec:
        return self.log.topic(name).spec

    def _group(self, node: Group) -> DataFrame:
        rows = _rows(self.lower(node.input))
        aggregate = Aggregate(_scan_of(node), node.keys, node.aggregates, node.window)
        if node.window is not None and node.window.kind == "session":
            frame = lower_sessions(aggregate, rows, final=False).frame
            frame = frame.filter(~column(TOMBSTONE) & column(LATE_ROW).isNull())
        else:
            frame = lower_aggregate_node(aggregate, rows).frame
        return frame.select(*(column(one.name) for one in node.columns))

    def _around(self, node: Around) -> DataFrame:
        frame = _rows(self.lower(node.input)).frame
        added = []
        for named in node.functions:
            assert isinstance(named.expression, Over)
            added.append(lower_over(named.expression, frame).alias(named.name))
        return frame.select("*", *added)


def _names(node: Read) -> set[str]:
    parts = walk(node.predicate) if node.predicate is not None else ()
    return {part.name for part in parts if isinstance(part, ColumnRef)}


def _newest(frame: DataFrame, keys: list[str]) -> DataFrame:
    """What a table holds: the last record of each key."""
    newest = F.max_by(F.struct(*(column(name) for name in frame.columns)), column(ARRIVAL)).alias("$newest")
    return frame.groupBy(*(column(name) for name in keys)).agg(newest).select("`$newest`.*")


def _system_of(frame: DataFrame) -> list[Column]:
    return [column(name) for name in SYSTEM if name in frame.columns]


def _without_system(frame: DataFrame) -> DataFrame:
    return frame.select(*(column(name) for name in frame.columns if name not in SYSTEM))


def _rows(frame: DataFrame) -> Rows:
    """As operators of running queries want them: rows that are no records any more have some order, and no time."""
    missing: dict[str, Callable[[], Column]] = {
        TIME: lambda: F.lit(0).cast("long"),
        ARRIVAL: F.monotonically_increasing_id,
        TOMBSTONE: lambda: F.lit(False),
    }
    for name, value in missing.items():
        if name not in frame.columns:
            frame = frame.withColumn(name, value())
    return Rows(frame)


def _ordered(value: Column, descending: bool) -> Column:
    return value.desc_nulls_last() if descending else value.asc_nulls_first()


def _scan_of(node: AskNode) -> Scan:
    """Only to say where rows come from."""
    return next(Scan(below.source) for below in walk_nodes(node) if isinstance(below, Read))
