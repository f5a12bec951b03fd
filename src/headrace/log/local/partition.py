"""A partition as its owner sees it: where the next record goes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.clock import Clock
from headrace.config import LogSettings
from headrace.log.base import TIME, TopicConfig
from headrace.log.local.frame import HEADER_SIZE, MAX_BODY, FrameHeader, encode_batch, encode_frame
from headrace.log.local.producers import Stamp
from headrace.log.local.segment import HEADER_SIZE as SEGMENT_HEADER_SIZE
from headrace.log.local.segment import SegmentWriter, segment_path
from headrace.log.local.state import PartitionState

logger = logging.getLogger(__name__)

_PIECE_BYTES = MAX_BODY * 9 // 10


class Span(NamedTuple):
    """What a frame's header says about its rows."""

    first_arrival: int
    last_arrival: int
    min_time: int
    max_time: int
    max_lag: int


class Partition:
    """Used by the commit thread only. `next_offset` runs ahead of the committed end while a group is built; if the
    group fails, everything is opened again from the journal."""

    def __init__(
        self,
        folder: Path,
        topic_id: int,
        number: int,
        state: PartitionState,
        reopen: Callable[[], SegmentWriter | None],
        settings: LogSettings,
        clock: Clock,
        config: TopicConfig,
    ) -> None:
        self.folder, self.topic_id, self.number = folder, topic_id, number
        self.state = state
        self.next_offset = state.end
        self.new_files = False
        self._written = state.end
        self._active: SegmentWriter | None = None
        self._reopen: Callable[[], SegmentWriter | None] | None = reopen if state.position else None
        self._full: list[SegmentWriter] = []
        self._settings, self._clock = settings, clock
        self.config = config

    @property
    def _writer(self) -> SegmentWriter | None:
        """The active segment, opened and cut when it is first needed: most partitions of many are idle."""
        if self._reopen is not None:
            self._active, self._reopen = self._reopen(), None
        return self._active

    def reserve(self, rows: int) -> int:
        """The first of `rows` offsets that now belong to the caller."""
        first = self.next_offset
        self.next_offset += rows
        return first

    def write(
        self, batch: pa.RecordBatch, arrivals: Any, stream_times: Any, version: int, stamp: Stamp | None = None
    ) -> None:
        """Make frames of a batch that has all its columns, for its writers. `stamp`: the producer's write that all rows
        are of."""
        rows = batch.num_rows
        times = batch.column(TIME).to_numpy()
        step = -(-rows // _pieces(batch))
        for first in range(0, rows, step):
            rows_here = slice(first, min(rows, first + step))
            piece = batch.slice(first, rows_here.stop - first)
            self._write_frame(piece, arrivals[rows_here], stream_times[rows_here], times[rows_here], version, stamp)

    def _write_frame(
        self, batch: pa.RecordBatch, arrivals: Any, stream_times: Any, times: Any, version: int, stamp: Stamp | None
    ) -> None:
        body, compression = encode_batch(batch, self.config.compression)
        rows = batch.num_rows
        if body.size > MAX_BODY and rows > 1:
            for part in (slice(0, rows // 2), slice(rows // 2, rows)):
                piece = batch.slice(part.start, part.stop - part.start)
                self._write_frame(piece, arrivals[part], stream_times[part], times[part], version, stamp)
            return
        lag = int((stream_times - times).max())
        span = Span(int(arrivals[0]), int(arrivals[-1]), int(times.min()), int(times.max()), lag)
        self.add_frame(body, compression, rows, span, version, stamp)

    def add_frame(
        self, body: pa.Buffer, compression: int, rows: int, span: Span, version: int, stamp: Stamp | None
    ) -> None:
        """Rows that are encoded already."""
        first, next_ = self._written, self._written + rows
        producer = (stamp.producer, stamp.epoch, stamp.sequence & 0xFFFFFFFF) if stamp else (0, 0, 0)
        header = FrameHeader(body.size, rows, first, next_, *span, version, *producer, compression=compression)
        self._segment_for(header.size).add(header, encode_frame(header, body))
        self._written = next_

    def _segment_for(self, size: int) -> SegmentWriter:
        """The active segment, or a new one if this one is full or old."""
        writer = self._writer
        if writer is None:
            return self.roll()
        full = writer.position + size > (self.config.segment_bytes or self._settings.segment_bytes) + HEADER_SIZE
        return self.roll() if self._has_frames(writer) and (full or self.is_old()) else writer

    def is_old(self) -> bool:
        if not self._settings.segment_seconds or not self.has_frames():
            return False
        return self._clock.now_ms() - self._opened_ms() >= self._settings.segment_seconds * 1000

    def _opened_ms(self) -> int:
        if self._active is not None:
            return self._active.opened_ms
        try:
            return os.stat(segment_path(self.folder, self.state.segment)).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return self._clock.now_ms()

    def has_frames(self) -> bool:
        """Whether the active segment holds anything."""
        if self._reopen is not None:
            return self.state.position > SEGMENT_HEADER_SIZE
        return self._active is not None and self._has_frames(self._active)

    @staticmethod
    def _has_frames(writer: SegmentWriter) -> bool:
        return writer.position > SEGMENT_HEADER_SIZE

    def roll(self) -> SegmentWriter:
        """Begin a new segment. The old one is sealed after the commit that makes this so."""
        if self._writer is not None:
            self._full.append(self._writer)
        self._active = SegmentWriter.create(self.folder, self.topic_id, self.number, self._written)
        self._active.opened_ms = self._clock.now_ms()
        self.new_files = True
        return self._active

    def dirty_writers(self) -> list[SegmentWriter]:
        return [writer for writer in (*self._full, self._active) if writer is not None and writer.dirty]

    def position(self) -> tuple[int, int, int]:
        """(end offset, active segment, position in it), as the journal will say."""
        assert self._active is not None
        return self._written, self._active.base, self._active.position

    def sync_indexes(self) -> None:
        """Before the commit: the indexes of segments that it seals."""
        for writer in self._full:
            writer.sync_index()

    def committed(self) -> None:
        """After the commit: bring the index up to date, seal what is full. Failing here loses nothing but time."""
        full, self._full, self.new_files = self._full, [], False
        try:
            for writer in full:
                writer.seal(self._clock.now_ms())
            if self._active is not None:
                self._active.write_index()
        except OSError as error:
            logger.warning("cannot write an index in `%s`: %s", self.folder, error)

    def rest(self) -> None:
        """Give the open file back until the next write."""
        if self._active is not None and not self._active.dirty:
            self._active.rest()

    def close(self) -> None:
        for writer in (*self._full, self._active):
            if writer is not None:
                writer.close()


def is_small(batch: pa.RecordBatch) -> bool:
    """Whether it, and each part of it, is one frame. Counting exactly takes as long as all else that is done for a
    small one."""
    return bool(batch.get_total_buffer_size() <= _PIECE_BYTES)


def _pieces(batch: pa.RecordBatch) -> int:
    """How many frames it should be."""
    if is_small(batch):
        return 1
    return max(1, -(-int(batch.nbytes) // _PIECE_BYTES))
