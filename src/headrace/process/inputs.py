"""Scans of topics in the local log: following, or over a range of offsets. `kafka/inputs.py` has those of Kafka."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.log.base import TopicSpec
from headrace.process.lower.known import Known
from headrace.sql.source import Source

FORMAT = "headrace"
Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _LocalInputs:
    spark: SparkSession
    log_folder: Path
    topic: Callable[[str], TopicSpec]

    def declared(self, topic: TopicSpec, source: Source) -> TopicSpec:
        return topic

    @property
    def common_time(self) -> bool:
        return True

    @property
    def in_order(self) -> bool:
        return True

    def _options(self, topic: TopicSpec, columns: Sequence[str], clock: Sequence[str]) -> dict[str, str]:
        # A list that is separated by commas; a name that has one makes the connector read all columns.
        plain = all("," not in name and name == name.strip() for name in columns)
        return {
            "path": str(self.log_folder),
            "topic": topic.name,
            "columns": ",".join(columns) if plain else "",
            "clock": json.dumps(list(clock)),
        }


@dataclass(frozen=True, slots=True)
class StreamInputs(_LocalInputs):
    """Scans that follow the log. All those of one query name the same `cut`, so a batch is the same moment of every
    input."""

    cut: str
    max_rows: int
    first_rows: int | None = None
    """Of a batch while there is more to read: the first, which says how many the next should have (`BatchSize`)."""
    starts: Mapping[str, Offsets] = field(default_factory=dict)
    known_until: int = 0
    known_closed: int | None = None
    closes: bool = False
    """Whether results wait for time: then what a batch's records have closed comes out of one without records."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def read(
        self, topic: TopicSpec, columns: Sequence[str], min_lag: int | None, clock: Sequence[str] = ()
    ) -> DataFrame:
        reader = (
            self.spark.readStream.format(FORMAT)
            # The checkpoint knows the inputs by these names.
            .name(self._name(min_lag is not None))
            .options(**self._options(topic, columns, clock))
            .option("cut", self.cut)
            .option("maxRowsPerTrigger", self.max_rows)
            .option("closes", self.closes)
        )
        if self.first_rows is not None:
            reader = reader.option("firstRows", self.first_rows)
        if topic.name in self.starts:
            reader = reader.option("startingOffsets", offsets_json(self.starts[topic.name]))
        if self.known_until:
            reader = reader.option("stopAt", self.known_until)
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


@dataclass(frozen=True, slots=True)
class RangeInputs(_LocalInputs):
    """Scans of what lies between `starts` and `ends`, by topic and partition; from the log's start, to its end now,
    where they say nothing."""

    starts: Mapping[str, Offsets] = field(default_factory=dict)
    ends: Mapping[str, Offsets] = field(default_factory=dict)

    def read(
        self, topic: TopicSpec, columns: Sequence[str], min_lag: int | None, clock: Sequence[str] = ()
    ) -> DataFrame:
        reader = self.spark.read.format(FORMAT).options(**self._options(topic, columns, clock))
        if topic.name in self.starts:
            reader = reader.option("startingOffsets", offsets_json(self.starts[topic.name]))
        if topic.name in self.ends:
            reader = reader.option("endingOffsets", offsets_json(self.ends[topic.name]))
        return (reader if min_lag is None else reader.option("minLag", min_lag)).load()

    @property
    def known(self) -> None:
        """A batch gives all there is."""

    def floor(self, topic: TopicSpec, delay_ms: int) -> None:
        """A batch keeps no state."""


def offsets_json(offsets: Offsets) -> str:
    """As the connector takes them."""
    return json.dumps({"partitions": {str(partition): offset for partition, offset in offsets.items()}})
