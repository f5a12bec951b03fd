"""Scans of topics on Kafka: following, or over a range of offsets. Those of the local log mirror them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from headrace.log.base import TimestampColumn, TopicSpec
from headrace.log.codecs.of_source import source_options
from headrace.process.kafka.checkpoint import last_done, last_planned
from headrace.process.kafka.decode import REACHED, decode_topic
from headrace.process.kafka.place import SOURCE, KafkaPlace
from headrace.process.kafka.times import NOTE, read_note, times_at
from headrace.process.lower.known import Known
from headrace.process.lower.rows import column
from headrace.sql.source import Source

Offsets = Mapping[int, int]
EARLIEST, LATEST = -2, -1
"""As Kafka says them."""


@dataclass(frozen=True, slots=True)
class _KafkaInputs:
    spark: SparkSession
    place: KafkaPlace
    topic: Callable[[str], TopicSpec]

    def declared(self, topic: TopicSpec, source: Source) -> TopicSpec:
        return declared_topic(topic, source)

    @property
    def log_folder(self) -> None:
        """Records are decoded as they are read."""

    @property
    def common_time(self) -> bool:
        """Kafka has no order over topics; an operator makes one."""
        return False

    @property
    def in_order(self) -> bool:
        """Time belongs to a partition there."""
        return False


@dataclass(frozen=True, slots=True)
class KafkaStreamInputs(_KafkaInputs):
    """Scans that follow Kafka. All those of one query name the same `cut`: their batches end together, and one stamp
    holds for all of a topic."""

    cut: str
    max_rows: int
    checkpoint: Path
    ordered: bool = False
    """Whether batches of one topic, too, must be cut in order of time (several topics always are)."""
    wakes: bool = False
    """Whether results come with time alone: then a batch may have nothing else new."""
    stops: Mapping[str, Offsets] = field(default_factory=dict)
    """By topic: offsets at which a batch has to end."""
    starts: Mapping[str, Offsets] = field(default_factory=dict)
    """By topic: where to begin without a checkpoint; at the topic's start where it does not say."""
    box: Any = None
    """Where records go that cannot be decoded (`DeadLetterBox.java`)."""
    until: Mapping[str, Offsets] | None = None
    """By topic: offsets that no batch goes beyond."""
    closed: int | None = None
    """Of a query that was moved here: the watermark with which its results up to the stops were made."""
    ranks: dict[int, str] = field(default_factory=dict)
    """The topics that were read, by how they rank."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def read(
        self, topic: TopicSpec, columns: Sequence[str], min_lag: int | None, clock: Sequence[str] = ()
    ) -> DataFrame:
        decoding = self.place.decoding(topic, self.box)
        if min_lag is not None:
            late = self._load(topic, "late_input", {"role": "late", "minLag": str(min_lag)})
            return decode_topic(late, topic, columns, decoding=decoding)
        number = next(self.numbers)
        self.ranks[-number] = topic.name
        # By their order in the plan; the first has no number.
        name = "input" if number == 1 else f"input_{number}"
        found = self._load(topic, name, {"role": "records", "rank": str(-number)})
        return decode_topic(found, topic, columns, -number, decoding)

    @property
    def known(self) -> Known | None:
        return None if self.closed is None else Known(self.closed, self._is_before_stop)

    def _is_before_stop(self, arrival: Column) -> Column:
        """An arrival is the rank of the record's topic, its partition, and its offset there (`decode.arrival`)."""
        stops = [
            (rank, partition, stop)
            for rank, topic in self.ranks.items()
            for partition, stop in self.stops.get(topic, {}).items()
        ]
        rank, partition, offset = (arrival.getField(name) for name in ("rank", "partition", "offset"))
        known = [(rank == one) & (partition == number) & (offset < stop) for one, number, stop in stops]
        return reduce(Column.__or__, known, F.lit(False))

    def floor(self, topic: TopicSpec, delay_ms: int) -> DataFrame:
        """One row a batch, `$floor`: no record's stream time is below it any more."""
        closed = {} if self.closed is None else {"closed": str(self.closed + delay_ms)}
        return self._load(topic, "floor", {"role": "floor", **closed})

    def _load(self, topic: TopicSpec, name: str, more: Mapping[str, str]) -> DataFrame:
        note = self.checkpoint / topic.name / NOTE
        stops = self.stops.get(topic.name, {})
        return (
            self.spark.readStream.format(SOURCE)
            # The checkpoint knows the inputs by these names.
            .name(name)
            .options(**self.place.options(topic.name), **self._where(topic, note), **more)
            .option("startingOffsets", self._begin(topic))
            .option("maxOffsetsPerTrigger", self.max_rows)
            .option("maxRows", self.max_rows)
            .option("ordered", self.ordered)
            .option("cut", self.cut)
            .option("wakes", self.wakes)
            .option("timesFile", str(note))
            .option("stopAt", by_partition(stops))
            .options(**self._bound(topic))
            .load()
        )

    def _bound(self, topic: TopicSpec) -> dict[str, str]:
        return {} if self.until is None else {"until": by_partition(self.until.get(topic.name, {}))}

    def _begin(self, topic: TopicSpec) -> str:
        starts = self.starts.get(topic.name)
        return "earliest" if starts is None else offsets_json(self.place, topic, starts, EARLIEST)

    def _where(self, topic: TopicSpec, note: Path) -> dict[str, str]:
        """Where the query goes on, and how far time had come there."""
        done, planned = last_done(self.checkpoint), last_planned(self.checkpoint)
        kafka = self.place.log.kafka_names(topic.name)
        found = {}
        begin = self.starts.get(topic.name, {}) if done is None else done.ends(*kafka)
        if begin:
            former = self.checkpoint / self.place.log.topic(topic.name).fork_of / NOTE
            noted = read_note(note) or read_note(former)
            found["times"] = by_partition(times_at(self.place.log, topic.name, begin, noted))
        if planned is not None:
            found["floor"] = str(planned.floor)
            if ends := planned.ends(*kafka):
                found["from"] = json.dumps({kafka[0]: ends})
        return found


def declared_topic(topic: TopicSpec, source: Source) -> TopicSpec:
    """What of a raw topic a stream declares: on Kafka records are bytes anyway, in whatever format is said."""
    return replace(
        topic,
        kind="typed",
        key=source.key,
        value=source.value,
        key_format=source.key_format,
        value_format=source.value_format,
        key_options=source_options(source, "key"),
        value_options=source_options(source, "value"),
        timestamp=TimestampColumn(source.timestamp, source.timestamp_format) if source.timestamp else None,
    )


def offsets_json(place: KafkaPlace, topic: TopicSpec, offsets: Offsets, otherwise: int) -> str:
    """Kafka wants every partition named."""
    named = {str(partition): offsets.get(partition, otherwise) for partition in range(topic.partitions)}
    return json.dumps({place.log.kafka_name(topic.name): named})


def by_partition(numbers: Mapping[int, int]) -> str:
    return json.dumps({str(partition): number for partition, number in numbers.items()})


@dataclass(frozen=True, slots=True)
class KafkaRangeInputs(_KafkaInputs):
    """Scans of what lies between `starts` and `ends`, by topic and partition; from the log's start, to its end now,
    where they say nothing."""

    starts: Mapping[str, Offsets] = field(default_factory=dict)
    ends: Mapping[str, Offsets] = field(default_factory=dict)
    box: Any = None
    """Where records go that cannot be decoded; without one they are left out."""
    times: Mapping[str, Offsets] = field(default_factory=dict)
    """By topic: how far time had come at `starts`; where it does not say, that is read."""
    observed: dict[str, Observation] | None = None
    """By topic: how far it comes, if that is asked for."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def read(
        self, topic: TopicSpec, columns: Sequence[str], min_lag: int | None, clock: Sequence[str] = ()
    ) -> DataFrame:
        starts = self.starts.get(topic.name, {})
        times = self.times.get(topic.name)
        if times is None:
            times = times_at(self.place.log, topic.name, starts, None)
        reader = self.spark.read.format(SOURCE).options(**self.place.options(topic.name), times=by_partition(times))
        if topic.name in self.starts:
            reader = reader.option("startingOffsets", offsets_json(self.place, topic, starts, EARLIEST))
        if topic.name in self.ends:
            ends = offsets_json(self.place, topic, self.ends[topic.name], LATEST)
            reader = reader.option("endingOffsets", ends)
        if min_lag is not None:
            reader = reader.option("minLag", min_lag)
        frame = reader.load()
        if self.observed is not None and min_lag is None and topic.name not in self.observed:
            self.observed[topic.name] = Observation()
            largest = (F.max(F.when(F.col("partition") == n, column(REACHED))) for n in range(topic.partitions))
            frame = frame.observe(self.observed[topic.name], *(one.alias(f"p{n}") for n, one in enumerate(largest)))
        return decode_topic(frame, topic, columns, -next(self.numbers), self.place.decoding(topic, self.box))

    def reached(self) -> dict[str, dict[int, int]]:
        """By topic and partition: how far time has come at `ends`, once all has been read."""
        found = {}
        for topic, observation in (self.observed or {}).items():
            seen = {int(name[1:]): time for name, time in observation.get.items() if time is not None}
            found[topic] = {**self.times.get(topic, {}), **seen}
        return found

    @property
    def known(self) -> None:
        """A batch gives all there is."""

    def floor(self, topic: TopicSpec, delay_ms: int) -> None:
        """A batch keeps no state."""
