"""What goes in and out of a log: topics, batches, records, places, groups. `base.py` says what is promised of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from re import Pattern
from typing import Any, Literal

import pyarrow as pa

from headrace.patterns import Regex
from headrace.types import Column

Acks = Literal["0", "1", "all"]

ARRIVAL, STREAM_TIME, TIME, TOMBSTONE = "$arrival", "$stream_time", "$time", "$tombstone"
ID, HEADERS, REST = "$id", "$headers", "$rest"
WINDOW_START, WINDOW_END = "$window_start", "$window_end"
OFFSET, PARTITION, ROUTE = "$offset", "$partition", "$route"
LOG_TIME = "$log_time"
"""On Kafka, its own timestamp: what stream time is made of, whatever column `$time` is read from."""
NO_STREAM_TIME = -1


@dataclass(frozen=True, slots=True)
class TimestampColumn:
    """Which column holds the event time, and how it is written if it is text."""

    column: str
    format: str | None = None


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """0 means: as the log's own settings say."""

    retention_ms: int = 0
    retention_bytes: int = 0
    compacted: bool = False
    """Keep the newest value of each key; older ones go in the background. Offsets never change."""
    tombstone_ms: int = 24 * 3600 * 1000
    """How long a compacted topic keeps a tombstone, so that slow readers see the deletion."""
    segment_bytes: int = 0
    compression: Literal["none", "lz4", "zstd"] = "none"
    replication: int = 0
    min_insync: int = 0
    """Copies, and how many must have a record before `acks="all"` is answered. A local log has one, always synced."""
    id_window_ms: int = 0
    """How long an event id is known: at least so long, and a quarter more at most; then it may be used again."""


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """What WITH (…) may say about a format."""

    delimiter: str = ","
    wrap_single_value: bool = True
    full_name: str | None = None
    """The record's or message's name in a schema made from columns."""
    schema_id: int | None = None
    """Write, and resolve what is read, with this schema rather than with the subject's newest."""


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
    key_options: FormatOptions = FormatOptions()
    value_options: FormatOptions = FormatOptions()
    key_hash: Literal["murmur2", "md5"] = "murmur2"
    """How keys find their partition: as Kafka's producers do it, or as Kinesis does. Only a raw topic may be `md5`."""
    headers: bool = False
    """A topic of role `derived` whose records have headers, too: those of the records they were made of."""

    @property
    def has_headers(self) -> bool:
        return self.role == "events" or self.headers


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    version: int
    key: tuple[Column, ...]
    value: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Which keys a partition takes: those whose place, `(hash % n) * 2**31 + hash` where the topic was made with `n`
    partitions, is in [low, high). With `md5` a key's place is that hash itself, up to 2**128."""

    low: int
    high: int
    parents: tuple[int, ...] = ()
    """Whose keys it took over; readers read those to their end first."""
    closed: bool = False
    """It takes no more records: others have its keys."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists. `spec` is its newest definition."""

    id: int
    spec: TopicSpec
    schemas: tuple[SchemaVersion, ...]
    ranges: tuple[KeyRange, ...] = ()
    """By partition, once one was split or merged. Until then a key's partition is its hash modulo partitions, which
    is the same. A topic with the hash `md5` has them from the beginning."""
    forked_from: int = 0
    """The id of the topic that its first records were taken from, with their offsets and arrival numbers."""
    fork_of: str = ""
    """On Kafka, where topics cannot share records: the name of that topic, which the first records are read from."""
    fork_at: tuple[int, ...] = ()
    """On Kafka, by partition: the offset of the first record of its own. Empty until that is known."""

    @property
    def first_partitions(self) -> int:
        """How many partitions it was made with; `spec` counts all, closed ones too."""
        return sum(not part.parents for part in self.ranges) if self.ranges else self.spec.partitions

    def parents(self, partition: int) -> tuple[int, ...]:
        return self.ranges[partition].parents if self.ranges else ()

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
    buffered: bool = False
    """Durable here, but not in the log yet (`collect.spool`)."""


PUBLISHER_PREFIX = "_publisher."
"""Begins the names that whoever writes a public topic commits with; all other batches are of queries."""


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
    order: str | None = None
    """The stream's column, a whole number, by which the rows of all tasks are put in order when they are committed.
    Each task hands its own over in that order."""


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
    """Only where offsets have gaps (compaction; on Kafka transactions too)."""
    errors: Mapping[int, str] | None = None
    """Where records are bytes (Kafka): rows that are not in the topic's format, and why. Their columns are null."""

    @property
    def next_offset(self) -> int:
        return (self.offsets[-1] if self.offsets else self.first_offset + self.batch.num_rows - 1) + 1

    def each_offset(self) -> Sequence[int]:
        """The offset of every row."""
        return (
            range(self.first_offset, self.first_offset + self.batch.num_rows) if self.offsets is None else self.offsets
        )


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    topic: str
    partition: int


Start = Literal["earliest", "latest"]
Subscription = str | Sequence[str] | Pattern[str] | Regex
"""A topic, several, a wildcard (`orders.*`, `*-eu`), or a regular expression over whole names. A pattern takes
in topics made later; it never matches internal ones."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    id: str
    client: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Where a group is in one partition. `lag` counts the offsets from `committed` (or the start) to the end, and is 0
    when no record is left."""

    at: TopicPartition
    committed: int | None
    end: int
    lag: int
    member: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    state: Literal["empty", "rebalancing", "stable"]
    members: tuple[GroupMember, ...]
    offsets: tuple[GroupOffset, ...]

    @property
    def lag(self) -> int:
        return sum(offset.lag for offset in self.offsets)


@dataclass(frozen=True, slots=True)
class TopicStats:
    records: int
    """Offsets, where the log is not `counted`."""
    bytes: int
    segments: int
    partitions: tuple[PartitionEnds, ...]
    stream_time: int
    extra: dict[str, Any] = field(default_factory=dict)
