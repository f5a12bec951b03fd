"""Reading, shared by the owner and its clients: both see the same files up to a published end."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import CorruptFrame, LogError, NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import (
    ARRIVAL,
    OFFSET,
    PARTITION,
    TIME,
    Acks,
    Consumer,
    Log,
    PartitionEnds,
    Producer,
    Records,
    Start,
    Subscription,
    Topic,
    TopicStats,
)
from headrace.log.local.archive import ArchivedFile
from headrace.log.local.consumer import LocalConsumer, OutOfRange
from headrace.log.local.frame import HAS_OFFSETS, FrameHeader
from headrace.log.local.producer import LocalProducer
from headrace.log.local.segment import index_path, segment_path
from headrace.log.local.services import Coordination, Desk
from headrace.log.local.topics import topic_folder
from headrace.log.local.walk import PartitionFiles, Place
from headrace.log.schema import OFFSET_FIELD, frame_schema

_MOST_FILES = 500
"""Partitions whose files stay mapped, each some of its segments."""


_MOST_DAMAGE = 100
"""Places that are remembered; `headrace log verify` finds all."""


class ReadingLog(Log):
    """The reading half of `Log`. Whoever inherits says what may be read (`snapshot`) and what topics there are."""

    capabilities = frozenset(
        {"arrival", "event-ids", "stage", "quarantine", "archive", "split", "sizes", "counted", "evict", "unheld"}
    )
    desk: Desk
    coordinator: Coordination

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: OrderedDict[tuple[int, int], PartitionFiles] = OrderedDict()
        self._files_lock = threading.Lock()
        self._damage: dict[tuple[str, int, int], CorruptFrame] = {}
        """By topic, partition and offset: what readers came upon."""

    @abstractmethod
    def _ends(self, topic: Topic, partition: int) -> PartitionEnds:
        """What of a partition may be read now."""

    def partition_files(self, topic: Topic, partition: int) -> PartitionFiles:
        if not 0 <= partition < topic.spec.partitions:
            raise NotFound(
                f"topic `{topic.name}` has no partition {partition}", hint=f"0 to {topic.spec.partitions - 1}"
            )
        with self._files_lock:
            files = self._files.get((topic.id, partition))
            if files is None:
                files = PartitionFiles(topic_folder(self.folder, topic.name) / str(partition))
                self._files[topic.id, partition] = files
                if len(self._files) > _MOST_FILES:
                    self._files.popitem(last=False)  # its maps go when nobody reads in them any more
            self._files.move_to_end((topic.id, partition))
            return files

    def _forget_topic(self, topic_id: int) -> None:
        with self._files_lock:
            for key in [key for key in self._files if key[0] == topic_id]:
                del self._files[key]

    def _let_go(self) -> None:
        """Unmap every file, when closing."""
        with self._files_lock:
            self._files.clear()

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Records]:
        found = self.topic(topic)
        files = self.partition_files(found, partition)
        ends = self._ends(found, partition)
        check_start(found, partition, start, ends)
        projection = Projection(found, partition, columns, lambda: self.topic(topic))
        return self._read(found, partition, files, start, ends.end if end is None else min(end, ends.end), projection)

    def _read(
        self, topic: Topic, partition: int, files: PartitionFiles, start: int, end: int, projection: Projection
    ) -> Iterator[Records]:
        offset = start
        try:
            for place in files.frames(start, end):
                records = projection.records(place, max(offset, place.header.base_offset), end)
                if records.batch.num_rows:
                    yield records
                offset = place.header.next_offset
        except LogError as error:
            # Retention may have overtaken this reader; that is not damage.
            check_start(topic, partition, offset, self._ends(topic, partition))
            if isinstance(error, CorruptFrame) and len(self._damage) < _MOST_DAMAGE:
                self._damage[topic.name, partition, error.data["first_offset"]] = error
            raise

    def known_damage(self) -> list[CorruptFrame]:
        return [error for place, error in sorted(self._damage.items()) if self._is_damaged(*place, error)]

    def _is_damaged(self, name: str, partition: int, first: int, error: CorruptFrame) -> bool:
        """Whether the damage is still there: neither set aside nor deleted."""
        try:
            topic = self.topic(name)
            aside = self.partition_files(topic, partition).quarantined()
            start = self._ends(topic, partition).start
        except (NotFound, LogError):
            return False
        return error.data["next_offset"] > start and not any(begin <= first < end for begin, end in aside)

    # Producers and consumers

    def producer(
        self,
        name: str | None = None,
        acks: Acks = "all",
        linger_ms: float = 5.0,
        transaction_timeout_s: float = 60.0,
    ) -> Producer:
        return LocalProducer(self.desk, name, acks, linger_ms, transaction_timeout_s)

    def consumer(
        self,
        topics: Subscription,
        group: str | None = None,
        start: Start = "earliest",
        columns: Sequence[str] | None = None,
        client: str = "",
        session_timeout_s: float = 10.0,
        out_of_range: OutOfRange = "error",
    ) -> Consumer:
        return LocalConsumer(
            self, self.coordinator, topics, group, start, columns, client, session_timeout_s, out_of_range
        )

    def offset_at_time(self, topic: str, partition: int, time_ms: int) -> int:
        found = self.topic(topic)
        ends = self._ends(found, partition)
        place = self.partition_files(found, partition).first_at_time(ends.start, ends.end, time_ms)
        return ends.end if place is None else self._first_row(found, partition, place, ends, TIME, time_ms)

    def offset_at_arrival(self, topic: str, partition: int, arrival: int) -> int:
        found = self.topic(topic)
        ends = self._ends(found, partition)
        place = self.partition_files(found, partition).first_at_arrival(ends.start, ends.end, arrival)
        return ends.end if place is None else self._first_row(found, partition, place, ends, ARRIVAL, arrival)

    def _first_row(
        self, topic: Topic, partition: int, place: Place, ends: PartitionEnds, column: str, least: int
    ) -> int:
        projection = Projection(topic, partition, [column, OFFSET], lambda: self.topic(topic.name))
        records = projection.records(place, max(ends.start, place.header.base_offset), ends.end)
        rows = np.flatnonzero(records.batch.column(0).to_numpy() >= least)
        return int(records.batch.column(1)[int(rows[0])].as_py()) if len(rows) else place.header.next_offset

    def stats(self, name: str) -> TopicStats:
        topic = self.topic(name)
        ends, size, segments, records = [], 0, 0, 0
        archived: list[ArchivedFile] = []
        for number in range(topic.spec.partitions):
            files = self.partition_files(topic, number)
            ends.append(self._ends(topic, number))
            records += _count(files, ends[-1], topic.spec.config.compacted)
            archived += files.archive.manifest().files
            for base in files.bases():
                segments += 1
                size += _size(segment_path(files.folder, base)) + _size(index_path(files.folder, base))
        return TopicStats(
            records=records,
            bytes=size,
            segments=segments,
            partitions=tuple(ends),
            stream_time=self.snapshot().stream_times.get(name, -1),
            extra={"archived_files": len(archived), "archived_bytes": sum(file.bytes for file in archived)},
        )


def check_start(topic: Topic, partition: int, start: int, ends: PartitionEnds) -> None:
    if start < ends.start or start > ends.end:
        raise OffsetOutOfRange(
            f"topic `{topic.name}`, partition {partition}: offset {start} is not in the log",
            detail=f"it goes from {ends.start} to {ends.end}",
            topic=topic.name,
            partition=partition,
            offset=start,
            start=ends.start,
            end=ends.end,
        )


def _count(files: PartitionFiles, ends: PartitionEnds, has_gaps: bool) -> int:
    """Records of a partition; where there may be gaps, frames are asked."""
    if not has_gaps:
        return ends.end - ends.start
    try:
        return sum(place.header.rows for place in files.frames(ends.start, ends.end, check=False))
    except CorruptFrame:
        return ends.end - ends.start


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class Projection:
    """Picks the wanted columns out of frames, whatever schema version they were written with."""

    def __init__(
        self, topic: Topic, partition: int, columns: Sequence[str] | None, reload: Callable[[], Topic]
    ) -> None:
        self._topic, self._partition, self._reload = topic, partition, reload
        newest = frame_schema(topic.spec)
        extra = [OFFSET_FIELD, pa.field(PARTITION, pa.int32(), nullable=False)]
        available = {field.name: field for field in [*newest, *extra]}
        names = newest.names if columns is None else columns
        for name in names:
            if name not in available:
                raise UsageError(
                    f"topic `{topic.name}` has no column `{name}`",
                    hint="its columns: " + ", ".join(f"`{known}`" for known in newest.names),
                )
        self._schema = pa.schema([available[name] for name in names])
        self._whole = newest if columns is None else None
        self._wanted = None if columns is None else frozenset(columns)
        self._versions: dict[int, pa.Schema] = {}

    def records(self, place: Place, start: int, end: int) -> Records:
        """The frame's rows with start ≤ offset < end."""
        header = place.header
        schema = self._frame_schema(header)
        batch = place.batch(schema, self._wanted)
        offsets: Any = None
        if header.flags & HAS_OFFSETS:
            offsets = batch.column(0).to_numpy()
            first, after = np.searchsorted(offsets, [start, end]).tolist()
        else:
            first, after = start - header.base_offset, min(end, header.next_offset) - header.base_offset
        if (first, after) != (0, batch.num_rows):
            batch = batch.slice(first, after - first)
            offsets = None if offsets is None else offsets[first:after]
        picked = batch if schema is self._whole else self._pick(batch, start, offsets)
        listed = None if offsets is None else offsets.tolist()
        return Records(self._topic.name, self._partition, listed[0] if listed else start, picked, listed)

    def _pick(self, batch: pa.RecordBatch, start: int, offsets: Any) -> pa.RecordBatch:
        rows = batch.num_rows
        columns = []
        for field in self._schema:
            number = batch.schema.get_field_index(field.name)
            if field.name == OFFSET:
                columns.append(pa.array(np.arange(start, start + rows) if offsets is None else offsets))
            elif field.name == PARTITION:
                columns.append(pa.array(np.full(rows, self._partition, np.int32)))
            else:
                columns.append(batch.column(number) if number >= 0 else pa.nulls(rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _frame_schema(self, header: FrameHeader) -> pa.Schema:
        version = header.schema_version
        schema = self._versions.get(version)
        if schema is None:
            schema = self._versions[version] = self._make_schema(version)
        if header.flags & HAS_OFFSETS:
            schema = schema.insert(0, OFFSET_FIELD)
        return schema

    def _make_schema(self, number: int) -> pa.Schema:
        for topic in (self._topic, self._reload()):
            for version in topic.schemas:
                if version.version == number:
                    schema = frame_schema(topic.spec, version)
                    return self._whole if self._whole is not None and schema == self._whole else schema
        raise LogError(f"topic `{self._topic.name}` has no schema version {number}", hint="its topic.json is damaged")
