"""The same plan over a bounded range of offsets: rebuilds, tests, checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.log.base import ARRIVAL, TIME, TOMBSTONE, WINDOW_END, WINDOW_START, TopicSpec
from headrace.process.base import LayerSpec
from headrace.process.inputs import FORMAT, Offsets, RangeInputs
from headrace.process.letters import box_for, writing_letters
from headrace.process.lower.lower import lower_late_branch, lower_node
from headrace.process.lower.rows import LATE_ROW, column
from headrace.process.lower.scan import Inputs
from headrace.process.lower.sink import Routed, route_rows
from headrace.process.lower.window import LAST_TIME_MS
from headrace.process.session import query_session
from headrace.process.streaming import routes_json
from headrace.sql.plan import Aggregate, PersistentQuery, Project, walk
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
        frame = _last_by_key(query, frame).filter(~column(TOMBSTONE))
    keys = [column(named.name).alias(c.name) for named, c in zip(query.root.key, query.sink.key, strict=True)]
    values = [column(named.name).alias(c.name) for named, c in zip(query.root.value, query.sink.value, strict=True)]
    windows = [column(name) for name in (WINDOW_START, WINDOW_END)] if query.sink.window else []
    bounds = [bound.alias(c.name) for bound, c in zip(windows, WINDOW_COLUMNS, strict=False)]
    return frame.select(*keys, *bounds, *values, column(TIME))


def write_layer(
    spark: SparkSession, log: Path | KafkaPlace, topics: Callable[[str], TopicSpec], spec: LayerSpec
) -> None:
    """Compute what a table holds after exactly the records before the cut, and append it as one transaction, together
    with what came too late. Identified by the job's id: a repeat changes nothing."""
    session = query_session(spark)
    with writing_letters(box_for(log, spec.id, spec.plan.inputs[0].topic)):
        if isinstance(log, Path):
            _write_locally(log, spec, _layer(spec, RangeInputs(session, log, topics, {}, spec.ends)))
        else:
            _write_to_kafka(session, log, topics, spec)


def _layer(spec: LayerSpec, inputs: Inputs) -> Routed:
    query = spec.plan
    rows = lower_node(_never_late(query.root) if query.counts_late else query.root, inputs)
    late = lower_late_branch(query.root, inputs) if spec.late_topic is not None else None
    rows = replace(rows, frame=_last_by_key(query, rows.frame).filter(~column(TOMBSTONE)))
    return route_rows(query, rows, late, spec.late_topic)


def _never_late(root: Project) -> Project:
    """The same without a moment at which its window closes. What came late is written down all the same."""
    if isinstance(root.input, Aggregate) and root.input.window is not None:
        return replace(root, input=replace(root.input, window=replace(root.input.window, grace_ms=LAST_TIME_MS)))
    return root


def _write_locally(log: Path, spec: LayerSpec, routed: Routed) -> None:
    (
        routed.frame.write.format(FORMAT)
        .mode("append")
        .option("path", str(log))
        .option("routes", routes_json(routed.routes))
        .option("query", spec.id)
        .option("offsets", json.dumps({"arrival": spec.cut}))
        .save()
    )


def _write_to_kafka(
    session: SparkSession, place: KafkaPlace, topics: Callable[[str], TopicSpec], spec: LayerSpec
) -> None:
    # Only those who use Kafka have its packages.
    from headrace.log.dead_letters import create_dead_letters
    from headrace.process.kafka.inputs import KafkaRangeInputs
    from headrace.process.kafka.layer import commit_layer
    from headrace.process.kafka.letters import dead_letters

    create_dead_letters(place.log)
    letters = dead_letters(session, spec.id)
    inputs = KafkaRangeInputs(session, place, topics, {}, spec.ends, letters.box)
    commit_layer(place.log, spec, _layer(spec, inputs), letters)


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


def _last_by_key(query: PersistentQuery, frame: DataFrame) -> DataFrame:
    """A batch's aggregate has one row per key already; a changelog has every change."""
    if any(isinstance(node, Aggregate) for node in walk(query.root)):
        return frame
    keys = [named.name for named in query.root.key]
    keys += [WINDOW_START, WINDOW_END] if query.sink.window else []
    newest = F.max_by(F.struct(*(column(name) for name in frame.columns)), column(ARRIVAL)).alias("$newest")
    return frame.groupBy(*(column(name) for name in keys)).agg(newest).select("`$newest`.*")
