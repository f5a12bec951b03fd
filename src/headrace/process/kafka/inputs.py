"""Scans of topics on Kafka: following, or over a range of offsets."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.log.base import TopicSpec
from headrace.process.kafka.checkpoint import last_done, last_planned
from headrace.process.kafka.decode import decode_topic
from headrace.process.kafka.place import SOURCE, KafkaPlace
from headrace.process.kafka.times import NOTE, Times, read_note, times_at

Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class KafkaStreamInputs:
    """Scans that follow Kafka. Those of one topic name the same `cut`: they read the same ranges, and one stamp holds
    for all of them."""

    spark: SparkSession
    place: KafkaPlace
    topics: Callable[[str], TopicSpec]
    cut: str
    max_rows: int
    checkpoint: Path
    grace_ms: int = 0
    stops: Mapping[str, Offsets] = field(default_factory=dict)
    """By topic: offsets at which a batch has to end."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def topic(self, name: str) -> TopicSpec:
        return self.topics(name)

    @property
    def common_time(self) -> bool:
        """Kafka has no order over topics; an operator makes one."""
        return False

    def read(
        self, topic: TopicSpec, columns: Sequence[str], min_lag: int | None, clock: Sequence[str] = ()
    ) -> DataFrame:
        more = {"role": "records"} if min_lag is None else {"role": "late", "minLag": str(min_lag)}
        return decode_topic(self._load(topic, self._name(min_lag is not None), more), topic, columns)

    def floor(self, topic: TopicSpec) -> DataFrame:
        """One row a batch, `$floor`: no record's stream time is below it any more."""
        return self._load(topic, "floor", {"role": "floor"})

    def _load(self, topic: TopicSpec, name: str, more: Mapping[str, str]) -> DataFrame:
        options = self.place.options(topic.name) | self._times(topic).options() | dict(more)
        return (
            self.spark.readStream.format(SOURCE)
            # The checkpoint knows the inputs by these names.
            .name(name)
            .options(**options)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.max_rows)
            .option("cut", f"{self.cut} {topic.name}")
            .option("timesFile", str(self._note(topic)))
            .option("stopAt", json.dumps({str(at): offset for at, offset in self.stops.get(topic.name, {}).items()}))
            .load()
        )

    def _note(self, topic: TopicSpec) -> Path:
        return self.checkpoint / topic.name / NOTE

    def _times(self, topic: TopicSpec) -> Times:
        done = last_done(self.checkpoint)
        if done is None:
            return Times()
        note, kafka = read_note(self._note(topic)), self.place.log.kafka_name(topic.name)
        found = times_at(self.place.log, topic.name, done.ends(kafka), note)
        # Spark's watermark is synced, the note is not. What Spark has forgotten must not be admitted again.
        planned = last_planned(self.checkpoint)
        closed = planned.watermark_ms + self.grace_ms if planned and planned.watermark_ms > 0 else -1
        return Times(found.reached, max(found.floor, closed))

    def _name(self, late: bool) -> str:
        """By their order in the plan; the first has no number."""
        if late:
            return "late_input"
        number = next(self.numbers)
        return "input" if number == 1 else f"input_{number}"


@dataclass(frozen=True, slots=True)
class KafkaRangeInputs:
    """Scans of what lies between `starts` and `ends`, by topic and partition; from the log's start, to its end now,
    where they say nothing."""

    spark: SparkSession
    place: KafkaPlace
    topics: Callable[[str], TopicSpec]
    starts: Mapping[str, Offsets] = field(default_factory=dict)
    ends: Mapping[str, Offsets] = field(default_factory=dict)

    def topic(self, name: str) -> TopicSpec:
        return self.topics(name)

    @property
    def common_time(self) -> bool:
        """Kafka has no order over topics; an operator makes one."""
        return False

    def read(
        self, topic: TopicSpec, columns: Sequence[str], min_lag: int | None, clock: Sequence[str] = ()
    ) -> DataFrame:
        starts = self.starts.get(topic.name, {})
        times = times_at(self.place.log, topic.name, starts, None)
        reader = self.spark.read.format(SOURCE).options(**self.place.options(topic.name), **times.options())
        if topic.name in self.starts:
            reader = reader.option("startingOffsets", self._offsets(topic, starts, -2))
        if topic.name in self.ends:
            reader = reader.option("endingOffsets", self._offsets(topic, self.ends[topic.name], -1))
        if min_lag is not None:
            reader = reader.option("minLag", min_lag)
        return decode_topic(reader.load(), topic, columns)

    def floor(self, topic: TopicSpec) -> None:
        """A batch keeps no state."""

    def _offsets(self, topic: TopicSpec, offsets: Offsets, otherwise: int) -> str:
        """Kafka wants every partition named; -2 is its earliest offset, -1 its latest."""
        named = {str(partition): offsets.get(partition, otherwise) for partition in range(topic.partitions)}
        return json.dumps({self.place.log.kafka_name(topic.name): named})
