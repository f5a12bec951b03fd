"""Topics and their partitions."""

from __future__ import annotations

from typing import Literal

from headrace.server.models.base import Count, KeyedColumn, Model

Compression = Literal["none", "lz4", "zstd"]


class PartitionModel(Model, frozen=True):
    partition: Count
    start: Count
    end: Count


class TopicConfigModel(Model, frozen=True):
    """0: as the log's own settings say."""

    retention_ms: Count
    retention_bytes: Count
    compacted: bool
    tombstone_ms: Count
    id_window_ms: Count
    segment_bytes: Count
    compression: Compression
    replication: Count
    min_insync: Count


class TopicModel(Model, frozen=True):
    name: str
    kind: Literal["typed", "raw"]
    role: Literal["events", "derived"]
    partitions: list[PartitionModel]
    records: Count
    counts: Literal["records", "offsets"]
    bytes: Count
    segments: Count
    stream_time_ms: Count | None
    columns: list[KeyedColumn]
    timestamp: str | None
    retention_ms: Count
    retention_bytes: Count
    config: TopicConfigModel
    key_format: str
    value_format: str
    schema_versions: Count
    internal: bool
    sources: list[str]
    rate: float
    dead_letters: Count


class Topics(Model, frozen=True):
    topics: list[TopicModel]


class TopicSettings(Model, frozen=True):
    """What may be said of a topic's configuration."""

    retention_ms: Count | None = None
    retention_bytes: Count | None = None
    compacted: bool | None = None
    tombstone_ms: Count | None = None
    id_window_ms: Count | None = None
    segment_bytes: Count | None = None
    compression: Compression | None = None
    replication: Count | None = None
    min_insync: Count | None = None


class NewTopic(TopicSettings, frozen=True, kw_only=True):
    name: str
    partitions: int = 1
    kind: Literal["typed", "raw"] = "typed"
    columns: str = ""


class AlterTopic(TopicSettings, frozen=True):
    """What is left out stays as it is."""

    add_columns: str = ""


class DeletedRecords(Model, frozen=True):
    partitions: list[PartitionModel]


class Reshape(Model, frozen=True):
    """One of the two."""

    split: Count | None = None
    merge: tuple[Count, Count] | None = None


class Reshaped(Model, frozen=True):
    topic: str
    closed: list[Count]
    opened: list[Count]
