"""A lowered plan as a running Spark query between the log's source and sink."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.config import SparkSettings
from headrace.log.base import Route, TopicSpec
from headrace.process.base import QuerySpec
from headrace.process.letters import box_for, writing_letters
from headrace.process.lower.known import Known
from headrace.process.lower.lower import Lowered, lower_query, waits_for_time
from headrace.process.pace import max_rows, pause_ms
from headrace.process.session import query_session
from headrace.sql.source import Source

if TYPE_CHECKING:
    from headrace.process.kafka.place import KafkaPlace

FORMAT = "headrace"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True, slots=True)
class StreamInputs:
    """Scans that follow the log. All those of one query name the same `cut`, so a batch is the same moment of every
    input."""

    spark: SparkSession
    log_folder: Path
    topics: Callable[[str], TopicSpec]
    cut: str
    max_rows: int
    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    until: int | None = None
    known_until: int = 0
    known_closed: int | None = None
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def topic(self, name: str) -> TopicSpec:
        return self.topics(name)

    def declared(self, topic: TopicSpec, source: Source) -> TopicSpec:
        return topic

    @property
    def common_time(self) -> bool:
        return True

    def read(
        self, topic: TopicSpec, columns: Sequence[str], min_lag: int | None, clock: Sequence[str] = ()
    ) -> DataFrame:
        reader = (
            self.spark.readStream.format(FORMAT)
            # The checkpoint knows the inputs by these names.
            .name(self._name(min_lag is not None))
            .option("path", str(self.log_folder))
            .option("topic", topic.name)
            .option("columns", columns_option(columns))
            .option("clock", json.dumps(list(clock)))
            .option("cut", self.cut)
            .option("maxRowsPerTrigger", self.max_rows)
        )
        if topic.name in self.starts:
            reader = reader.option("startingOffsets", offsets_json(self.starts[topic.name]))
        if self.known_until:
            reader = reader.option("stopAt", self.known_until)
        if self.until is not None:
            reader = reader.option("maxArrival", self.until)
        return (reader if min_lag is None else reader.option("minLag", min_lag)).load()

    @property
    def known(self) -> Known | None:
        if self.known_closed is None:
            return None
        return Known(self.known_closed, lambda arrival: arrival < self.known_until)

    def floor(self, topic: TopicSpec, delay_ms: int) -> None:
        """The owner stamps a topic's stream time over all its partitions."""

    def _name(self, late: bool) -> str:
        """By their order in the plan; the first has no number."""
        if late:
            return "late_input"
        number = next(self.numbers)
        return "input" if number == 1 else f"input_{number}"


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
    session = _session_for(spark, spec)
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
        until = spec.until if isinstance(spec.until, int) else None
        inputs = StreamInputs(
            session,
            log,
            topics,
            spec.id,
            max_rows(settings, spec),
            spec.starts,
            until,
            spec.known_until,
            spec.known_closed,
        )
        sink = topics(spec.plan.sink.topic)
        return to_local_log(lower_query(spec.plan, inputs, spec.late_topic, sink), log, spec)
    # Only those who use Kafka have its packages.
    from headrace.process.kafka.streaming import to_kafka

    return to_kafka(session, log, topics, settings, spec)


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


def _session_for(spark: SparkSession, spec: QuerySpec) -> SparkSession:
    """Most queries share a session. Results that come only with time need batches without input, which the others
    should not be made to run."""
    if not waits_for_time(spec.plan):
        return spark
    session = query_session(spark)
    session.conf.set(SHUFFLE_PARTITIONS, spark.conf.get(SHUFFLE_PARTITIONS, "1"))
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    return session


def columns_option(columns: Sequence[str]) -> str:
    """The connector's list is separated by commas; a name that has one makes it read all columns."""
    plain = all("," not in name and name == name.strip() for name in columns)
    return ",".join(columns) if plain else ""


def offsets_json(offsets: Mapping[int, int]) -> str:
    """As the connector takes them."""
    return json.dumps({"partitions": {str(partition): offset for partition, offset in offsets.items()}})


def routes_json(routes: tuple[Route, ...]) -> str:
    return json.dumps([{"topic": route.topic, "columns": dict(route.columns)} for route in routes])
