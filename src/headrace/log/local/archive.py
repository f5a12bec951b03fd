"""The archive as readers see it: a manifest per partition, and frames that are row groups of Parquet files.

Offsets below the first local segment are looked up here. The files of a partition follow each other without a gap, and
the local segments follow them; where both hold an offset, the local segment is read.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.log.base import ARRIVAL, OFFSET
from headrace.log.local.frame import HAS_OFFSETS, FrameHeader
from headrace.log.local.segment import corrupt
from headrace.structs import ready

MANIFEST = "archived.json"


class ArchivedFrame(msgspec.Struct, frozen=True, array_like=True):
    """What a frame's header would say of a row group."""

    base: int
    next: int
    rows: int
    first_arrival: int
    last_arrival: int
    min_time: int
    max_time: int
    max_lag: int


class ArchivedFile(msgspec.Struct, frozen=True):
    file: str
    """Relative to the log's folder."""
    base: int
    next: int
    version: int
    """Of the topic's schema."""
    bytes: int
    came_ms: int
    """When its last record came."""
    frames: list[ArchivedFrame]

    @property
    def rows(self) -> int:
        return sum(frame.rows for frame in self.frames)


class Manifest(msgspec.Struct, frozen=True):
    files: list[ArchivedFile] = []

    @property
    def end(self) -> int:
        """The offset after the last archived one; 0 if there is none."""
        return self.files[-1].next if self.files else 0

    def at(self, offset: int) -> ArchivedFile | None:
        number = bisect_right(self.files, offset, key=lambda file: file.base) - 1
        return self.files[number] if number >= 0 and offset < self.files[number].next else None


def read_manifest(partition: Path) -> Manifest:
    try:
        return msgspec.json.decode((partition / MANIFEST).read_bytes(), type=ready(Manifest))
    except FileNotFoundError:
        return Manifest()


@dataclass(frozen=True, slots=True)
class ArchivedPlace:
    """A row group, in the role of a frame."""

    partition: Path
    file: ArchivedFile
    group: int
    header: FrameHeader
    open: Callable[[ArchivedFile], pq.ParquetFile]

    def batch(self, schema: pa.Schema, names: Container[str] | None = None) -> pa.RecordBatch:
        """The rows, with those columns of `schema` that are named; `CorruptFrame` if the file cannot be read."""
        wanted = [field for field in schema if names is None or field.name in names or field.name == OFFSET]
        wanted = wanted or [schema.field(ARRIVAL)]  # a batch without columns would have no rows
        try:
            table = self.open(self.file).read_row_group(self.group, columns=[field.name for field in wanted])
            columns = [_single(table.column(field.name), field.type) for field in wanted]
        except (OSError, KeyError, pa.ArrowException) as error:
            raise self.damage() from error
        if any(len(column) != self.header.rows for column in columns):
            raise self.damage()
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(wanted))

    def damage(self) -> Exception:
        path = archived_path(self.partition, self.file)
        return corrupt(path, 0, self.header.base_offset, self.header.next_offset, self.partition)


def _single(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return whole if whole.type == type_ else whole.cast(type_)


def archived_path(partition: Path, file: ArchivedFile) -> Path:
    return partition.parent.parent.parent / file.file


@dataclass(slots=True)
class Archive:
    """The archived part of one partition. Read again when its manifest changes."""

    partition: Path
    _stamp: tuple[int, int] | None = None
    _manifest: Manifest = field(default_factory=Manifest)
    _opened: tuple[str, pq.ParquetFile] | None = None

    def manifest(self) -> Manifest:
        try:
            status = os.stat(self.partition / MANIFEST)
        except FileNotFoundError:
            return Manifest()
        stamp = (status.st_ino, status.st_mtime_ns)
        if stamp != self._stamp:
            self._manifest = read_manifest(self.partition)
            self._stamp = stamp
        return self._manifest

    def places(self, file: ArchivedFile) -> list[ArchivedPlace]:
        return [self.place(file, group) for group in range(len(file.frames))]

    def place(self, file: ArchivedFile, group: int) -> ArchivedPlace:
        frame = file.frames[group]
        header = FrameHeader(
            body_length=0,
            rows=frame.rows,
            base_offset=frame.base,
            next_offset=frame.next,
            first_arrival=frame.first_arrival,
            last_arrival=frame.last_arrival,
            min_time=frame.min_time,
            max_time=frame.max_time,
            max_lag=frame.max_lag,
            schema_version=file.version,
            flags=HAS_OFFSETS if frame.rows < frame.next - frame.base else 0,
        )
        return ArchivedPlace(self.partition, file, group, header, self._open)

    def _open(self, file: ArchivedFile) -> pq.ParquetFile:
        """The last one stays open: its row groups are read one after the other."""
        opened = self._opened
        if opened is None or opened[0] != file.file:
            parquet = pq.ParquetFile(archived_path(self.partition, file), page_checksum_verification=True)
            opened = self._opened = (file.file, parquet)
        return opened[1]
