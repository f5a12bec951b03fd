"""A lowered plan as a running Spark query between the log's source and sink."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.config import SparkSettings
from headrace.log.base import Route, TopicSpec
from headrace.process.base import QuerySpec
from headrace.process.checkpoints import relocate_checkpoint
from headrace.process.inputs import FORMAT, StreamInputs
from headrace.process.letters import box_for, writing_letters
from headrace.process.lower.lower import Lowered, lower_query
from headrace.process.pace import first_rows, max_rows, pause_ms
from headrace.process.session import query_session
from headrace.sql.plan import waits_for_time

if TYPE_CHECKING:
    from headrace.process.kafka.place import KafkaPlace

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def start_query(
    spark: SparkSession,
    log: Path | KafkaPlace,
    topics: Callable[[str], TopicSpec],
    settings: SparkSettings,
    spec: QuerySpec,
    available_now: bool = False,
) -> StreamingQuery:
    """Lower and start, from the checkpoint if there is one. `log` is the local one's folder, or where Kafka is. With
    `available_now` it ends by itself when it has read what is there."""
    if spec.plan.limits.batch_rows is not None:
        settings = msgspec.structs.replace(settings, max_rows_per_batch=spec.plan.limits.batch_rows)
    discard_unbegun(spec.checkpoint)
    relocate_checkpoint(spec.checkpoint)
    session = spark if isinstance(log, Path) else _session_on_kafka(spark, spec)
    with writing_letters(box_for(log, f"{spec.id}-v{spec.version}", spec.plan.inputs[0].topic)):
        writer = _lowered(session, log, topics, settings, spec)
    writer = writer.queryName(f"{spec.id}-v{spec.version}").option("checkpointLocation", str(spec.checkpoint))
    if available_now:
        writer = writer.trigger(availableNow=True)
    elif (least_ms := pause_ms(settings, spec)) > 0:
        writer = writer.trigger(processingTime=f"{least_ms} milliseconds")
    started: StreamingQuery = writer.start()
    return started


def _lowered(
    session: SparkSession,
    log: Path | KafkaPlace,
    topics: Callable[[str], TopicSpec],
    settings: SparkSettings,
    spec: QuerySpec,
) -> Any:
    if isinstance(log, Path):
        bound_query(session, log, spec)
        inputs = StreamInputs(
            session,
            log,
            topics,
            spec.id,
            max_rows(settings, spec),
            first_rows(settings, spec),
            spec.starts,
            spec.known_until,
            spec.known_closed,
            waits_for_time(spec.plan),
        )
        sink = topics(spec.plan.sink.topic)
        return to_local_log(lower_query(spec.plan, inputs, spec.late_topic, sink), log, spec)
    # Only those who use Kafka have its packages.
    from headrace.process.kafka.streaming import to_kafka

    return to_kafka(session, log, topics, settings, spec)


def bound_query(spark: SparkSession, log_folder: Path, spec: QuerySpec) -> None:
    """Up to where the query reads, whether it runs already or not."""
    bounds: Any = spark._jvm.dev.headrace.spark.Bounds
    if isinstance(spec.until, int):
        bounds.set(str(log_folder), spec.id, spec.until)
    else:
        bounds.clear(str(log_folder), spec.id)


def discard_unbegun(checkpoint: Path) -> None:
    """Of a query that was stopped before its first batch was planned Spark may have left folders of state, and then
    refuses to begin among them. Nothing has been read for them, so nothing is lost with them."""
    offsets = checkpoint / "offsets"
    planned = offsets.is_dir() and any(file.name.isdigit() for file in offsets.iterdir())
    if checkpoint.is_dir() and not planned:
        shutil.rmtree(checkpoint)


def to_local_log(lowered: Lowered, log_folder: Path, spec: QuerySpec) -> Any:
    return (
        lowered.frame.writeStream.format(FORMAT)
        .outputMode(lowered.output_mode)
        .option("path", str(log_folder))
        .option("routes", routes_json(lowered.routes))
        .option("query", spec.id)
        .option("version", spec.version)
        .option("knownUntil", spec.known_until)
    )


def _session_on_kafka(spark: SparkSession, spec: QuerySpec) -> SparkSession:
    """Most queries share a session. Results that come only with time need batches without input, which the others
    should not be made to run. On the local log the connector sees to it (`CutGroup.java`)."""
    if not waits_for_time(spec.plan):
        return spark
    session = query_session(spark)
    session.conf.set(SHUFFLE_PARTITIONS, spark.conf.get(SHUFFLE_PARTITIONS, "1"))
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    return session


def routes_json(routes: tuple[Route, ...]) -> str:
    return json.dumps(
        [{"topic": route.topic, "columns": dict(route.columns), "order": route.order} for route in routes]
    )
