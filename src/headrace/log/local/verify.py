"""Reading every byte of the log to find out whether it is what it should be. Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import CorruptFrame, LogError
from headrace.log.base import ARRIVAL, OFFSET, STREAM_TIME, TIME, Topic
from headrace.log.local.archive import ArchivedFile, archived_path
from headrace.log.local.archiving import archive_schema
from headrace.log.local.frame import HAS_OFFSETS, FrameHeader, frame_body
from headrace.log.local.ids import IdIndex, ids_folder
from headrace.log.local.index import Index
from headrace.log.local.inspect import Extent, Finding, read_moment
from headrace.log.local.marks import EVERY_S as TIERS
from headrace.log.local.marks import FOLDER as MARKS
from headrace.log.local.marks import decode_marks
from headrace.log.local.marks import list_files as list_marks
from headrace.log.local.rewrite import schema_of
from headrace.log.local.segment import HEADER_SIZE, NO_TIME, MappedSegment, index_path, segment_path
from headrace.log.local.walk import SegmentVanished, find_damage, follows
from headrace.log.schema import OFFSET_FIELD


@dataclass(slots=True)
class Report:
    """What was looked at, and what was found."""

    running: bool
    partitions: int = 0
    segments: int = 0
    frames: int = 0
    records: int = 0
    bytes: int = 0
    set_aside: int = 0
    """Offsets that were quarantined before."""
    findings: tuple[Finding, ...] = ()


_FACTS = (OFFSET, ARRIVAL, STREAM_TIME, TIME)

Progress = Callable[[int, int], None]
"""Bytes done, bytes in all."""


def verify_log(folder: Path, topic: str | None = None, progress: Progress = lambda done, total: None) -> Report:
    """Every frame of every topic, or of one. Damage that is in quarantine already is counted, not named again."""
    moment = read_moment(folder)
    extents = moment.of(topic)
    total = sum(_size(extent) for extent in extents)
    report = Report(moment.running, partitions=len(extents))
    findings = list(moment.findings) if topic is None else []
    for extent in extents:
        for found in _Check(extent, moment.next_arrival, report, lambda: progress(report.bytes, total)).run():
            if not _has_expired(folder, extent, found):
                findings.append(found)
    findings += [
        found for one in {extent.topic.id: extent.topic for extent in extents}.values() for found in _ids(folder, one)
    ]
    findings += _marks(folder / MARKS) if topic is None else []
    progress(total, total)
    report.findings = tuple(findings)
    return report


def _ids(folder: Path, topic: Topic) -> list[Finding]:
    """The index of event ids. Its owner may just be writing it, so what is wrong must be so twice."""
    path = ids_folder(folder, topic)
    for last in (False, True):
        try:
            IdIndex(path).check()
            return []
        except LogError as error:
            if last:
                return [Finding(kind="ids", message=error.message, file=str(path), topic=topic.name)]
    return []


def _marks(folder: Path) -> list[Finding]:
    """The marks. The end of a tier's last file may be missing: it is never synced."""
    found = []
    for files in (list_marks(folder, tier) for tier in TIERS):
        for file in files:
            try:
                data = file.read_bytes()
            except FileNotFoundError:
                continue  # there were too many
            length = max((mark.length for mark, _, _ in decode_marks(data, file.name)), default=0)
            if length < len(data) and (file != files[-1] or not length):
                message = "marks are damaged: moments after them cannot be restored to"
                found.append(Finding(kind="marks", message=message, file=str(file), position=length))
    return found


def _size(extent: Extent) -> int:
    found = sum(file.bytes for file in extent.files.archive.manifest().files if file.next > extent.start)
    for base in extent.files.bases():
        try:
            found += os.stat(segment_path(extent.files.folder, base)).st_size
        except FileNotFoundError:
            continue
    return found


def _has_expired(folder: Path, extent: Extent, found: Finding) -> bool:
    """Whether an owner's retention took what was looked at meanwhile."""
    if not found.next_offset:
        return False
    now = {(other.topic.id, other.number): other.start for other in read_moment(folder).extents}
    return found.next_offset <= now.get((extent.topic.id, extent.number), 1 << 62)


class _Check:
    """One partition."""

    def __init__(self, extent: Extent, next_arrival: int, report: Report, step: Callable[[], None]) -> None:
        self._extent, self._report, self._step = extent, report, step
        self._files, self._topic = extent.files, extent.topic
        self._next_arrival = next_arrival
        self._last_arrival = -1
        self._aside = extent.files.quarantined()

    def run(self) -> Iterator[Finding]:
        start, end = self._extent.start, self._extent.end
        if start >= end:
            return
        bases = [base for base in self._files.bases(again=True) if base < end]
        held = [base for base, following in pairwise([*bases, end]) if following > start]
        for file in self._files.archive.manifest().files:
            if file.next > start:
                yield from self._archived(file)
        first = held[0] if held else end
        start = max(start, self._files.archive.manifest().end) if first > start else start
        if first > start:
            yield from self._unless_aside(self._file(start), 0, start, first, "a segment is missing")
        for base, following in pairwise([*held, end]):
            try:
                yield from self._segment(self._files.segment(base), max(base, start), following)
            except SegmentVanished:
                yield from self._unless_aside(self._file(base), 0, base, following, "the segment vanished")

    def _file(self, base: int) -> Path:
        return segment_path(self._files.folder, base)

    def _finding(self, kind: Any, message: str, file: Path, position: int = 0, **more: Any) -> Finding:
        return Finding(
            kind=kind,
            message=message,
            file=str(file),
            position=position,
            topic=self._topic.name,
            partition=self._extent.number,
            **more,
        )

    def _unless_aside(self, file: Path, position: int, first: int, after: int, message: str) -> Iterator[Finding]:
        if any(low <= first and after <= high for low, high in self._aside):
            self._report.set_aside += after - first
            return
        yield self._finding(
            "frame", message, file, position, first_offset=first, next_offset=after, repair="quarantine"
        )

    def _archived(self, file: ArchivedFile) -> Iterator[Finding]:
        """A Parquet file: its pages have checksums, its row groups must be what the manifest says."""
        path, last = archived_path(self._files.folder, file), self._last_arrival
        schema = archive_schema(self._topic)
        self._report.segments += 1
        for place in self._files.archive.places(file):
            header = place.header
            self._report.frames += 1
            try:
                batch = place.batch(pa.schema([schema.field(name) for name in _FACTS]), None)
                batch.validate(full=True)
                place.batch(schema_of(self._topic, header.schema_version))
            except CorruptFrame:
                first, after = header.base_offset, header.next_offset
                yield from self._unless_aside(path, 0, first, after, "an archived row group cannot be read")
                continue
            self._report.records += header.rows
            for message in self._disagree(batch, header, last):
                yield self._finding(
                    "order", message, path, 0, first_offset=header.base_offset, next_offset=header.next_offset
                )
            last = header.last_arrival
        self._report.bytes += file.bytes
        self._last_arrival = last if self._files.bases() and file.next <= self._files.bases()[0] else self._last_arrival
        self._step()

    def _segment(self, segment: MappedSegment, start: int, following: int) -> Iterator[Finding]:
        self._report.segments += 1
        if segment.generation < 0:
            yield self._finding("segment", "the segment's header is damaged", segment.path)
        walked = Index()
        """Every frame."""
        position, offset, largest, whole = HEADER_SIZE, segment.base, NO_TIME, True
        while offset < following:
            header = segment.header_at(position)
            if header is None or not follows(header, offset) or not segment.is_valid(position, header):
                whole = False
                at, first, position, offset = find_damage(segment, position, offset, following)
                if offset > start:
                    message = "the bytes do not match their checksum, or are no frame"
                    yield from self._unless_aside(segment.path, at, max(first, start), offset, message)
                continue
            yield from self._frame(segment, position, header)
            walked.add(header, position, largest)
            largest = max(largest, header.max_time)
            position, offset = position + header.size, header.next_offset
        self._report.bytes += segment.size
        self._step()
        if whole:
            yield from self._index(segment, walked)

    def _frame(self, segment: MappedSegment, position: int, header: FrameHeader) -> Iterator[Finding]:
        self._report.frames += 1
        self._report.records += header.rows
        for message in self._wrong(segment, position, header):
            yield self._finding(
                "order",
                message,
                segment.path,
                position,
                first_offset=header.base_offset,
                next_offset=header.next_offset,
            )

    def _wrong(self, segment: MappedSegment, position: int, header: FrameHeader) -> Iterator[str]:
        """What a frame with a right checksum may still get wrong: a fault of the program that wrote it."""
        try:
            schema = schema_of(self._topic, header.schema_version)
            if header.flags & HAS_OFFSETS:
                schema = schema.insert(0, OFFSET_FIELD)
            batch = pa.ipc.read_record_batch(frame_body(segment.data, position, header), schema)
            batch.validate(full=True)
        except (StopIteration, pa.ArrowException, OSError) as error:
            yield f"the frame's batch cannot be read: {error or 'its schema version is not known'}"
            return
        if batch.num_rows != header.rows:
            yield f"the frame has {batch.num_rows} rows, its header says {header.rows}"
        if batch.num_rows:
            yield from self._disagree(batch, header, self._last_arrival)
            self._last_arrival = max(self._last_arrival, header.last_arrival)
        if header.flags & HAS_OFFSETS:
            return
        if header.next_offset - header.base_offset != header.rows:
            yield "the frame's offsets are not as many as its rows"

    def _disagree(self, batch: pa.RecordBatch, header: FrameHeader, last: int) -> Iterator[str]:
        arrivals, times = batch.column(ARRIVAL).to_numpy(), batch.column(TIME).to_numpy()
        if not _grow(arrivals) or arrivals[0] <= last or arrivals[-1] >= self._next_arrival:
            yield "arrival numbers do not grow"
        lag = int((batch.column(STREAM_TIME).to_numpy() - times).max())
        said = (header.first_arrival, header.last_arrival, header.min_time, header.max_time, header.max_lag)
        if said != (int(arrivals[0]), int(arrivals[-1]), int(times.min()), int(times.max()), lag):
            yield "the header's arrival numbers or times are not those of its rows"
        if batch.schema.names[0] == OFFSET:
            offsets = batch.column(0).to_numpy()
            if not _grow(offsets) or offsets[0] < header.base_offset or offsets[-1] >= header.next_offset:
                yield "offsets do not grow"

    def _index(self, segment: MappedSegment, walked: Index) -> Iterator[Finding]:
        """An index may lack entries only at the end of a segment that is still written to."""
        index, sealed = segment.index(), segment.base != self._files.bases()[-1]
        frames = dict(_entries(walked))
        wanted = _wanted(walked)
        end = walked.positions[-1] if walked else 0
        true = all(frames.get(position) == entry for position, entry in _entries(index) if position <= end)
        complete = set(wanted) <= set(index.positions) if sealed else set(index.positions) & set(wanted) or not index
        if true and complete:
            return
        yield self._finding(
            "index",
            "the index is incomplete" if true else "the index does not agree with the frames",
            index_path(self._files.folder, segment.base),
            first_offset=segment.base,
            repair="rebuild index" if sealed else "none",
        )


def _entries(index: Index) -> Iterator[tuple[int, tuple[int, int, int]]]:
    facts = zip(index.offsets, index.arrivals, index.times_before, strict=True)
    return zip(index.positions, facts, strict=True)


def _wanted(walked: Index) -> list[int]:
    """Positions of the frames that an index must have."""
    sparse = Index()
    for position in walked.positions:
        if sparse.wants(position):
            sparse.positions.append(position)
    return sparse.positions


def _grow(numbers: Any) -> bool:
    return bool((np.diff(numbers) > 0).all())
