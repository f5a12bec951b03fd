"""What every log promises.

The promises, whoever implements them:

- An append is acknowledged (`acks="all"`) when it is durable, and nobody reads what is not.
- Several batches in one call, and a committed transaction, become visible together or not at all.
- Every record gets an *arrival number* that grows across all topics, and its topic's *stream time*. A
  `Snapshot` is a moment of the log: everything below one arrival number. Reading up to the same snapshot
  twice gives the same records.
- A record whose event id the topic already has is not stored again; its row number comes back as a duplicate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from headrace.errors import UsageError
from headrace.types import Column

Acks = Literal["0", "1", "all"]

ARRIVAL, STREAM_TIME, TIME, TOMBSTONE = "$arrival", "$stream_time", "$time", "$tombstone"
ID, HEADERS, REST = "$id", "$headers", "$rest"
WINDOW_START, WINDOW_END = "$window_start", "$window_end"
OFFSET, PARTITION, ROUTE = "$offset", "$partition", "$route"
NO_STREAM_TIME = -1


@dataclass(frozen=True, slots=True)
class TimestampColumn:
    """Which column holds the event time, and how it is written if it is text."""

    column: str
    format: str | None = None


@dataclass(frozen=True, slots=True)
class TopicConfig:
    retention_ms: int = 0
    retention_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic is made from. `role` decides the system columns (see docs/log-format.md)."""

    name: str
    key: tuple[Column, ...] = ()
    value: tuple[Column, ...] = ()
    partitions: int = 1
    kind: Literal["typed", "raw"] = "typed"
    role: Literal["events", "derived"] = "events"
    key_format: str = "KAFKA"
    value_format: str = "JSON"
    timestamp: TimestampColumn | None = None
    windowed: Literal["time", "session"] | None = None
    config: TopicConfig = TopicConfig()


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    version: int
    key: tuple[Column, ...]
    value: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists. `spec` is its newest definition."""

    id: int
    spec: TopicSpec
    schemas: tuple[SchemaVersion, ...]

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def internal(self) -> bool:
        return self.name.startswith("_")


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    start: int
    """The oldest offset still there."""
    end: int
    """The offset the next visible record will have."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A moment of the log: all records with an arrival number below `arrival`."""

    arrival: int
    ends: Mapping[str, tuple[PartitionEnds, ...]]
    """By topic name, then partition."""
    stream_times: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Append:
    """One batch for one topic. Columns by name: the topic's, and the system columns the producer knows
    (`$time`, `$tombstone`, `$id`, `$headers`, `$rest`, `$window_start`, `$window_end`). Missing ones are null; a
    missing `$time` is the time of arrival."""

    topic: str
    batch: pa.RecordBatch
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    positions: tuple[tuple[int, int, int], ...]
    """(partition, first offset, last offset) for each partition that got records."""
    duplicates: tuple[int, ...] = ()
    """Rows of the batch that were already there, by event id."""


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Contract 7: what makes a query's batch the same batch."""

    query: str
    version: int
    checkpoint: str
    batch: int
    offsets: str


@dataclass(frozen=True, slots=True)
class Route:
    """Where staged rows go: `columns` maps the topic's column to the stream's."""

    topic: str
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Committed:
    arrival: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Records:
    """A run of consecutive records of one partition, columns in the newest schema's order, system columns first."""

    topic: str
    partition: int
    first_offset: int
    batch: pa.RecordBatch
    offsets: Sequence[int] | None = None
    """Only where offsets have gaps (compaction)."""

    @property
    def next_offset(self) -> int:
        return (self.offsets[-1] if self.offsets else self.first_offset + self.batch.num_rows - 1) + 1


@dataclass(frozen=True, slots=True)
class TopicStats:
    records: int
    bytes: int
    segments: int
    partitions: tuple[PartitionEnds, ...]
    stream_time: int
    extra: dict[str, Any] = field(default_factory=dict)


class Log(ABC):
    """Open until `close`. Safe to use from several threads."""

    # Topics

    @abstractmethod
    def create_topic(self, spec: TopicSpec) -> Topic:
        """Make a topic. `Conflict` if the name is taken by one that differs; the same again returns the
        existing one."""

    @abstractmethod
    def alter_topic(self, spec: TopicSpec) -> Topic:
        """Add value columns or change the configuration. Columns are never removed or retyped (`UsageError`)."""

    @abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abstractmethod
    def topic(self, name: str) -> Topic:
        """`NotFound`, with the nearest name as a hint, if there is none."""

    @abstractmethod
    def topics(self) -> list[Topic]:
        """By name, internal ones too."""

    @abstractmethod
    def stats(self, name: str) -> TopicStats: ...

    # Writing

    @abstractmethod
    def append(self, appends: Sequence[Append], acks: Acks = "all") -> Future[list[Appended]]:
        """One atomic write. The future is done when durable (`all`) or taken (`0`, `1`: positions are then empty).

        Raises at once `Overloaded` when too much is waiting, `DiskFull`, `NotFound`, `UsageError` for wrong columns.
        The future fails with `DiskFull` or `LogError` when the write did; then nothing of it will ever be visible.
        """

    @abstractmethod
    def stage(
        self,
        transaction: str,
        task: int,
        attempt: int,
        routes: Sequence[Route],
        batches: Iterator[pa.RecordBatch],
    ) -> int:
        """Hand over one task's rows of a transaction; returns how many. Nothing is visible or durable yet."""

    @abstractmethod
    def commit(
        self, transaction: str, tasks: Sequence[tuple[int, int]], identity: BatchIdentity | None = None
    ) -> Committed:
        """Make the named tasks' rows visible, all at once. `BatchConflict` as in docs/log-format.md."""

    @abstractmethod
    def abort(self, transaction: str) -> None:
        """Forget what was staged. Unknown transactions are fine."""

    @abstractmethod
    def last_identity(self, query: str, version: int) -> BatchIdentity | None: ...

    # Reading

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Now. Cheap enough to call in a loop."""

    @abstractmethod
    def wait(self, arrival: int, timeout: float) -> Snapshot:
        """The first snapshot whose arrival is above `arrival`, or the current one after `timeout` seconds."""

    @abstractmethod
    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Records]:
        """Records with start ≤ offset < end (default: the end now). Columns by name, system ones too; those
        the topic does not have are an error, those a frame does not have are null. `OffsetOutOfRange` if
        `start` is before the log's start; `CorruptFrame` at damage. Memory is bounded by a frame."""

    @abstractmethod
    def offset_at_time(self, topic: str, partition: int, time_ms: int) -> int:
        """The first offset from which on a record with `$time` ≥ time_ms can be; the end if there is none."""

    @abstractmethod
    def offset_at_arrival(self, topic: str, partition: int, arrival: int) -> int:
        """The first offset whose arrival number is ≥ arrival; the end if there is none."""

    # Care

    def quarantine(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        """Set aside the damage that `offset` is in, so that readers pass over exactly those offsets: [from, to).
        `UsageError` if nothing is damaged there."""
        raise UsageError("this log has nothing to set aside")

    def owner_alive(self) -> bool:
        """Whether writes can reach the log now. Cheap enough to call in a loop."""
        return True

    @abstractmethod
    def close(self) -> None: ...
