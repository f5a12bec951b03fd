"""A lowered plan as a running Spark query between topics on Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from headrace.config import SparkSettings
from headrace.log.base import TopicSpec
from headrace.log.copy.moves import Moves
from headrace.log.dead_letters import create_dead_letters
from headrace.process.base import QuerySpec
from headrace.process.kafka.inputs import KafkaStreamInputs
from headrace.process.kafka.letters import dead_letters
from headrace.process.kafka.place import MAX_ROWS, KafkaPlace
from headrace.process.kafka.sink import write_batches
from headrace.process.lower.lower import has_sessions, lower_query
from headrace.process.pace import max_rows
from headrace.sql.plan import waits_for_time


def to_kafka(
    spark: SparkSession,
    place: KafkaPlace,
    topics: Callable[[str], TopicSpec],
    settings: SparkSettings,
    spec: QuerySpec,
) -> Any:
    """The writer of the query's results, ready to be started."""
    # A query that was moved here has results up to these offsets already; its state is made again from the records.
    moves, key = Moves(place.log), (spec.id, spec.version)
    stops = moves.queries.get(key, {})
    # Before the query needs it: within a batch's transaction nothing can be made.
    create_dead_letters(place.log)
    letters = dead_letters(spark, spec.id)
    inputs = KafkaStreamInputs(
        spark,
        place,
        topics,
        f"{spec.id}-v{spec.version} {spec.checkpoint}",
        min(max_rows(settings, spec), MAX_ROWS),
        spec.checkpoint,
        has_sessions(spec.plan),
        waits_for_time(spec.plan),
        stops,
        spec.starts,
        letters.box,
        None if spec.until is None or isinstance(spec.until, int) else spec.until,
        moves.closed.get(key),
    )
    lowered = lower_query(spec.plan, inputs, spec.late_topic, topics(spec.plan.sink.topic))
    write = write_batches(place.log, spec, lowered.routes, stops, letters)
    return lowered.frame.writeStream.outputMode(lowered.output_mode).foreachBatch(write)
