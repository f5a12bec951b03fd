"""Walking a partition's frames, archived ones and those of its segments, the same for the owner and for everyone else.

Nothing here touches bytes past the end it was given: the walk goes by offsets, and stops before it would look further.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Container, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from headrace.log.base import ARRIVAL, OFFSET
from headrace.log.local.archive import Archive, ArchivedFile, ArchivedFrame, ArchivedPlace
from headrace.log.local.frame import HAS_OFFSETS, FrameHeader, frame_body
from headrace.log.local.index import Index
from headrace.log.local.segment import (
    HEADER_SIZE,
    NO_TIME,
    MappedSegment,
    corrupt,
    index_path,
    list_segments,
    segment_path,
)

QUARANTINED = "quarantined.json"
_MAPPED = 8
_HINTS = 16


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """A frame and where it is."""

    segment: MappedSegment
    position: int
    header: FrameHeader

    def batch(self, schema: pa.Schema, names: Container[str] | None = None) -> pa.RecordBatch:
        """Its rows. Columns come at no cost, so `names` is only a hint; compressed ones do not, so only those named."""
        body = frame_body(self.segment.data, self.position, self.header)
        if names is None or not self.header.compression:
            return pa.ipc.read_record_batch(body, schema)
        wanted = [number for number, field in enumerate(schema) if field.name in names or field.name == OFFSET]
        wanted = wanted or [schema.get_field_index(ARRIVAL)]  # a batch without columns would have no rows
        # Arrow takes such a choice for streams only; one compressed frame more to copy is nothing beside unpacking it.
        stream = b"".join((schema.serialize(), body))
        with pa.ipc.open_stream(stream, options=pa.ipc.IpcReadOptions(included_fields=wanted)) as reader:
            return reader.read_next_batch()


Place = SegmentPlace | ArchivedPlace


class SegmentVanished(Exception):
    """A file went between listing and opening: the caller lists again."""


class PartitionFiles:
    """The segments of one partition as files. Safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._listed: tuple[int, list[int]] = (-1, [])
        self._mapped: OrderedDict[int, MappedSegment] = OrderedDict()
        self._indexes: OrderedDict[int, tuple[tuple[int, int, int], Index]] = OrderedDict()
        self._hints: OrderedDict[int, tuple[int, int, int]] = OrderedDict()
        self._max_times: dict[int, tuple[int, int]] = {}
        self.archive = Archive(folder)

    # Files

    def bases(self, *, again: bool = False) -> list[int]:
        try:
            changed = os.stat(self.folder).st_mtime_ns
        except FileNotFoundError:
            return []
        if again or self._listed[0] != changed:
            self._listed = (changed, list_segments(self.folder))
        return self._listed[1]

    def segment(self, base: int) -> MappedSegment:
        """The segment as it is now."""
        with self._lock:
            known = self._mapped.get(base)
        try:
            if known is None or not known.is_current():
                known = MappedSegment(self.folder, base)
        except FileNotFoundError:
            self.forget(base)
            raise SegmentVanished from None
        with self._lock:
            self._mapped[base] = known
            self._mapped.move_to_end(base)
            while len(self._mapped) > _MAPPED:
                self._mapped.popitem(last=False)
        return known

    def forget(self, base: int) -> None:
        """Let go of a file that was deleted, so that its space becomes free."""
        with self._lock:
            self._mapped.pop(base, None)
            self._indexes.pop(base, None)
            self._max_times.pop(base, None)

    def _index(self, segment: MappedSegment) -> Index:
        try:
            status = os.stat(index_path(self.folder, segment.base))
        except FileNotFoundError:
            return Index()
        stamp = (status.st_ino, status.st_size, segment.generation)
        with self._lock:
            known = self._indexes.get(segment.base)
        if known is None or known[0] != stamp:
            known = (stamp, segment.index())
        with self._lock:
            self._indexes[segment.base] = known
            while len(self._indexes) > _MAPPED:
                self._indexes.popitem(last=False)
        return known[1]

    def quarantined(self) -> list[tuple[int, int]]:
        """Offsets that are set aside, [from, to)."""
        try:
            return msgspec.json.decode((self.folder / QUARANTINED).read_bytes(), type=list[tuple[int, int]])
        except FileNotFoundError:
            return []

    # Walking

    def frames(self, start: int, end: int, *, check: bool = True) -> Iterator[Place]:
        """Frames with records in [start, end), in order. With `check` their checksums are verified; damage is
        `CorruptFrame`, unless it was set aside."""
        offset = start
        while offset < end:
            base = self._base_of(offset)
            if base is None:
                archived = self.archive.manifest().at(offset)
                if archived is None:
                    offset = self._pass_gap(offset, end)
                else:
                    offset = yield from self._walk_archived(archived, offset, end)
                continue
            try:
                segment = self.segment(base)
            except SegmentVanished:
                self.bases(again=True)
                continue
            # Not the next segment's base: if retention deleted some meanwhile, that would skip records silently.
            offset = yield from self._walk(segment, offset, end, check)

    def _walk_archived(self, file: ArchivedFile, start: int, end: int) -> Generator[ArchivedPlace, None, int]:
        for place in self.archive.places(file):
            header = place.header
            inside = header.next_offset > start and header.base_offset < end
            if inside and not self._is_aside(header.base_offset, header.next_offset):
                yield place
        return file.next

    def _base_of(self, offset: int) -> int | None:
        """The segment that holds `offset`, if it is there."""
        for again in (False, True):
            bases = self.bases(again=again)
            number = bisect_right(bases, offset) - 1
            if number >= 0:
                return bases[number]
        return None

    def _limit(self, base: int, end: int) -> int:
        """The offset before which the records of a segment end."""
        bases = self.bases()
        number = bisect_right(bases, base)
        return min(end, bases[number]) if number < len(bases) else end

    def _walk(self, segment: MappedSegment, start: int, end: int, check: bool) -> Generator[SegmentPlace, None, int]:
        """The frames of one segment; returns the offset after them."""
        position, offset = origin = self._seek(segment, start)
        limit = self._limit(segment.base, end)
        while offset < limit:
            header = segment.header_at(position)
            if header is None or not follows(header, offset):
                self.bases(again=True)
                limit = self._limit(segment.base, end)
                if offset < limit:
                    if segment.is_replaced():
                        return offset  # it was rewritten: read on in the new one
                    position, offset = origin = self._pass_damage(segment, *origin, limit, start)
                continue
            if header.next_offset > start:
                if check and not segment.is_valid(position, header):
                    position, offset = origin = self._pass_damage(segment, position, offset, limit, start)
                    continue
                yield SegmentPlace(segment, position, header)
            position, offset = position + header.size, header.next_offset
        self._hint(offset, segment, position)
        return offset

    def _seek(self, segment: MappedSegment, start: int) -> tuple[int, int]:
        """(position, offset) of a frame at or before `start`."""
        with self._lock:
            hint = self._hints.get(start)
        if hint and hint[:2] == (segment.base, segment.generation):
            return hint[2], start
        index = self._index(segment)
        number = index.before_offset(start)
        return (HEADER_SIZE, segment.base) if number is None else (index.positions[number], index.offsets[number])

    def _hint(self, offset: int, segment: MappedSegment, position: int) -> None:
        """Remember where `offset` is: whoever follows the log comes back for it."""
        with self._lock:
            self._hints[offset] = (segment.base, segment.generation, position)
            while len(self._hints) > _HINTS:
                self._hints.popitem(last=False)

    # Damage

    def _pass_damage(
        self, segment: MappedSegment, position: int, offset: int, limit: int, start: int
    ) -> tuple[int, int]:
        """Find the first damaged frame from here on; go on after it if it was set aside or nobody asked for it."""
        position, offset, following, after = find_damage(segment, position, offset, limit)
        if after > start and not self._is_aside(offset, after):
            raise corrupt(segment.path, position, offset, after)
        return following, after

    def _pass_gap(self, offset: int, end: int) -> int:
        """No segment holds `offset`: a file is missing."""
        bases = self.bases()
        after = min(end, bases[0]) if bases else end
        if not self._is_aside(offset, after):
            raise corrupt(segment_path(self.folder, offset), 0, offset, after)
        return after

    def _is_aside(self, first: int, after: int) -> bool:
        return any(low <= first and after <= high for low, high in self.quarantined())

    # Searching

    def max_time(self, base: int, end: int) -> int:
        """Largest `$time` of a segment's records."""
        limit = self._limit(base, end)
        segment = self.segment(base)
        known = self._max_times.get(base)
        if known is not None and known[0] == segment.generation:
            return known[1]
        index = self._index(segment)
        largest, first = (index.times_before[-1], index.offsets[-1]) if index else (NO_TIME, base)
        for place in self.frames(first, limit, check=False):
            largest = max(largest, place.header.max_time)
        if base != self.bases()[-1]:
            self._max_times[base] = (segment.generation, largest)
        return largest

    def first_at_time(self, start: int, end: int, time_ms: int) -> Place | None:
        """The first frame from `start` on that holds a record with `$time` ≥ time_ms."""
        archived = self._archived_place(start, end, lambda frame: frame.max_time >= time_ms)
        return archived or self._search(lambda: self._first_at_time(start, end, time_ms))

    def first_at_arrival(self, start: int, end: int, arrival: int) -> Place | None:
        """The first frame from `start` on that holds a record with an arrival number ≥ `arrival`."""
        archived = self._archived_place(start, end, lambda frame: frame.last_arrival >= arrival)
        return archived or self._search(lambda: self._first_at_arrival(start, end, arrival))

    def _archived_place(self, start: int, end: int, wanted: Callable[[ArchivedFrame], bool]) -> Place | None:
        """The first archived frame that is wanted. Where there are local segments too, either would do."""
        for file in self.archive.manifest().files:
            for group, frame in enumerate(file.frames) if file.next > start and file.base < end else ():
                if frame.next > start and wanted(frame):
                    return self.archive.place(file, group)
        return None

    def _search(self, search: Callable[[], Place | None]) -> Place | None:
        """Again if a segment was deleted under it; there are only so many."""
        while True:
            try:
                return search()
            except SegmentVanished:
                self.bases(again=True)

    def _first_at_time(self, start: int, end: int, time_ms: int) -> Place | None:
        for base in self.bases()[max(0, bisect_right(self.bases(), start) - 1) :]:
            if base >= end or self.max_time(base, end) < time_ms:
                continue
            index = self._index(self.segment(base))
            number = index.before_time(time_ms)
            first = base if number is None else index.offsets[number]
            for place in self.frames(max(first, start), self._limit(base, end)):
                if place.header.max_time >= time_ms:
                    return place
        return None

    def _first_at_arrival(self, start: int, end: int, arrival: int) -> Place | None:
        bases = [base for base in self.bases() if base < end]
        low, high = max(0, bisect_right(bases, start) - 1), len(bases)
        while high - low > 1:
            middle = (low + high) // 2
            first = self._first_arrival(bases[middle], end)
            low, high = (middle, high) if first <= arrival else (low, middle)
        if not bases:
            return None
        index = self._index(self.segment(bases[low]))
        number = index.before_arrival(arrival)
        first = bases[low] if number is None else index.offsets[number]
        for place in self.frames(max(first, start), end):
            if place.header.last_arrival >= arrival:
                return place
        return None

    def _first_arrival(self, base: int, end: int) -> int:
        for place in self.frames(base, end, check=False):
            return place.header.first_arrival
        return 0


def find_damage(segment: MappedSegment, position: int, offset: int, limit: int) -> tuple[int, int, int, int]:
    """The first frame from here on that is not what it should be: its position and first offset, and the position and
    first offset of the next intact one (the segment's size and `limit` if there is none)."""
    while offset < limit:
        header = segment.header_at(position)
        if header is None or not follows(header, offset) or not segment.is_valid(position, header):
            break
        position, offset = position + header.size, header.next_offset
    found = segment.next_valid(position, offset, limit)
    following, after = (found[0], found[1].base_offset) if found else (segment.size, limit)
    return position, offset, following, after


def follows(header: FrameHeader, offset: int) -> bool:
    """Offsets are without gaps, unless compaction made some."""
    return header.base_offset == offset or (header.base_offset > offset and bool(header.flags & HAS_OFFSETS))
