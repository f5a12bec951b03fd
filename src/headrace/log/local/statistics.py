"""What a log consists of, partition by partition, told from frame headers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headrace.errors import CorruptFrame
from headrace.log.local.compaction import read_clean
from headrace.log.local.frame import HAS_OFFSETS, REWRITTEN
from headrace.log.local.inspect import Extent, read_moment
from headrace.log.local.rewrite import schema_of
from headrace.log.local.segment import index_path, segment_path
from headrace.log.local.walk import PartitionFiles, Place, SegmentPlace
from headrace.log.schema import OFFSET_FIELD


class PartitionStatistics(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    start: int
    end: int
    records: int
    bytes: int
    """Of the local segments."""
    segments: int
    archived_to: int | None
    """The offset before which records are in the archive; None if none are."""
    archived_bytes: int
    frames: int
    rewritten: int
    """Segments that were rewritten into large frames, or compacted."""
    compacted_to: int | None
    """How far compaction came, where a topic is compacted."""
    compression_ratio: float | None
    """Bytes of the batches before compression, by what they take; None if nothing is compressed."""
    oldest_ms: int | None
    newest_ms: int | None
    quarantined: int
    """Offsets that were set aside."""
    damaged: bool


def log_statistics(folder: Path, topic: str | None = None) -> Iterator[PartitionStatistics]:
    for extent in read_moment(folder).of(topic):
        yield _partition(extent)


def _partition(extent: Extent) -> PartitionStatistics:
    files, spec, manifest = extent.files, extent.topic.spec, extent.files.archive.manifest()
    records = frames = plain = stored = 0
    times: list[int] = []
    damaged = False
    rewritten: set[int] = set()
    try:
        for place in files.frames(extent.start, extent.end, check=False):
            header = place.header
            frames, records = frames + 1, records + header.rows
            if header.rows:
                times += [header.min_time, header.max_time]
                times = [min(times), max(times)]
            if isinstance(place, SegmentPlace) and header.flags & REWRITTEN:
                rewritten.add(place.segment.base)
            if header.compression:
                plain, stored = plain + _uncompressed(extent, place), stored + header.body_length
            else:
                plain, stored = plain + header.body_length, stored + header.body_length
    except CorruptFrame:
        damaged = True
    return PartitionStatistics(
        topic=extent.topic.name,
        partition=extent.number,
        start=extent.start,
        end=extent.end,
        records=records,
        bytes=_bytes(files),
        segments=len(files.bases()),
        archived_to=manifest.end or None,
        archived_bytes=sum(file.bytes for file in manifest.files),
        frames=frames,
        rewritten=len(rewritten),
        compacted_to=read_clean(files).offset if spec.config.compacted else None,
        compression_ratio=round(plain / stored, 2) if plain != stored else None,
        oldest_ms=times[0] if times else None,
        newest_ms=times[1] if times else None,
        quarantined=sum(after - first for first, after in files.quarantined()),
        damaged=damaged,
    )


def _uncompressed(extent: Extent, place: Place) -> int:
    schema = schema_of(extent.topic, place.header.schema_version)
    if place.header.flags & HAS_OFFSETS:
        schema = schema.insert(0, OFFSET_FIELD)
    return int(place.batch(schema).get_total_buffer_size())


def _bytes(files: PartitionFiles) -> int:
    paths = [make(files.folder, base) for base in files.bases() for make in (segment_path, index_path)]
    return sum(os.stat(path).st_size for path in paths if path.exists())
