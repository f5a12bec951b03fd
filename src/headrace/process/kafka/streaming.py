"""A lowered plan as a running Spark query between topics on Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from headrace.config import SparkSettings
from headrace.errors import UsageError
from headrace.log.base import TopicSpec
from headrace.log.copy.moves import Moves
from headrace.process.base import QuerySpec
from headrace.process.kafka.inputs import KafkaStreamInputs
from headrace.process.kafka.place import MAX_ROWS, KafkaPlace
from headrace.process.kafka.sink import write_batches
from headrace.process.lower.lower import lower_query, windowed_aggregate
from headrace.process.pace import max_rows
from headrace.sql.plan import Aggregate, Join, PersistentQuery, walk


def to_kafka(
    spark: SparkSession,
    place: KafkaPlace,
    topics: Callable[[str], TopicSpec],
    settings: SparkSettings,
    spec: QuerySpec,
) -> Any:
    """The writer of the query's results, ready to be started."""
    check_supported(spec.plan)
    windowed = windowed_aggregate(spec.plan.root)
    # A query that was moved here has results up to these offsets already; its state is made again from the records.
    stops = Moves(place.log).queries.get((spec.id, spec.version), {})
    inputs = KafkaStreamInputs(
        spark,
        place,
        topics,
        f"{spec.id}-v{spec.version}",
        min(max_rows(settings, spec), MAX_ROWS),
        spec.checkpoint,
        windowed.window.grace_ms if windowed is not None and windowed.window is not None else 0,
        stops,
    )
    lowered = lower_query(spec.plan, inputs, spec.late_topic)
    write = write_batches(place.log, spec, lowered.routes, stops)
    return lowered.frame.writeStream.outputMode(lowered.output_mode).foreachBatch(write)


def check_supported(plan: PersistentQuery) -> None:
    """What needs one order over several topics, or results that come with time alone, is not to be had on Kafka yet:
    better no result than one that depends on how the input was cut into batches."""
    nodes = list(walk(plan.root))
    hint = "it runs on the local log"
    if any(isinstance(node, Join) for node in nodes):
        raise UsageError("a join is not supported on Kafka yet", hint=hint)
    if any(isinstance(node, Aggregate) and node.over == "table" for node in nodes):
        raise UsageError("an aggregate over a table is not supported on Kafka yet", hint=hint)
    windows = [node.window for node in nodes if isinstance(node, Aggregate) and node.window is not None]
    if any(window.kind == "session" for window in windows):
        raise UsageError("session windows are not supported on Kafka yet", hint=hint)
    if plan.emit == "final":
        raise UsageError("EMIT FINAL is not supported on Kafka yet", hint=hint)
