"""A lowered plan as a running Spark query between the log's source and sink."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.config import SparkSettings
from headrace.log.base import Route, TopicSpec
from headrace.process.base import QuerySpec
from headrace.process.lower.lower import lower_query

FORMAT = "headrace"


@dataclass(frozen=True, slots=True)
class StreamInputs:
    """Scans that follow the log. All those of one query name the same `cut`, so a batch is the same moment of every
    input."""

    spark: SparkSession
    log_folder: Path
    topics: Callable[[str], TopicSpec]
    cut: str
    max_rows: int

    def topic(self, name: str) -> TopicSpec:
        return self.topics(name)

    def read(self, topic: TopicSpec, columns: Sequence[str], min_lag: int | None) -> DataFrame:
        reader = (
            self.spark.readStream.format(FORMAT)
            # The checkpoint knows the inputs by these names.
            .name("input" if min_lag is None else "late_input")
            .option("path", str(self.log_folder))
            .option("topic", topic.name)
            .option("columns", columns_option(columns))
            .option("cut", self.cut)
            .option("maxRowsPerTrigger", self.max_rows)
        )
        return (reader if min_lag is None else reader.option("minLag", min_lag)).load()


def start_query(
    spark: SparkSession,
    log_folder: Path,
    topics: Callable[[str], TopicSpec],
    settings: SparkSettings,
    spec: QuerySpec,
    available_now: bool = False,
) -> StreamingQuery:
    """Lower and start, from the checkpoint if there is one. With `available_now` it ends by itself when it has read
    what is there."""
    inputs = StreamInputs(spark, log_folder, topics, spec.id, settings.max_rows_per_batch)
    lowered = lower_query(spec.plan, inputs, spec.late_topic)
    writer = (
        lowered.frame.writeStream.format(FORMAT)
        .queryName(f"{spec.id}-v{spec.version}")
        .outputMode(lowered.output_mode)
        .option("path", str(log_folder))
        .option("routes", routes_json(lowered.routes))
        .option("query", spec.id)
        .option("version", spec.version)
        .option("checkpointLocation", str(spec.checkpoint))
    )
    if available_now:
        writer = writer.trigger(availableNow=True)
    elif settings.trigger_ms > 0:
        writer = writer.trigger(processingTime=f"{settings.trigger_ms} milliseconds")
    return writer.start()


def columns_option(columns: Sequence[str]) -> str:
    """The connector's list is separated by commas; a name that has one makes it read all columns."""
    plain = all("," not in name and name == name.strip() for name in columns)
    return ",".join(columns) if plain else ""


def routes_json(routes: tuple[Route, ...]) -> str:
    return json.dumps([{"topic": route.topic, "columns": dict(route.columns)} for route in routes])
