"""A source's records as rows, read from the log in order of arrival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import OffsetOutOfRange
from headrace.log.base import TOMBSTONE, Log, Snapshot
from headrace.sql.source import Source
from headrace.store.arrivals import Stretch, behind, merge, position_at_end, position_at_start, read_stretch
from headrace.store.base import Position
from headrace.store.columns import source_rows
from headrace.store.decode import SourceDecoder
from headrace.types import Column


def stream_rows(
    log: Log, source: Source, columns: Sequence[Column], at_a_time: int
) -> tuple[Position, Iterator[tuple[Any, ...]]]:
    """All records of a stream as it is now, and the position they end at."""
    now = log.snapshot()
    return position_at_end(log, now, source.topic), _rows(log, source, columns, at_a_time, now)


def _rows(
    log: Log, source: Source, columns: Sequence[Column], at_a_time: int, now: Snapshot
) -> Iterator[tuple[Any, ...]]:
    decoder = SourceDecoder(log.topic(source.topic), source, log.schemas)
    position = position_at_start(log, now, source.topic)
    while behind(now, source.topic, position):
        stretch, now = _read(log, decoder, position, now, at_a_time)
        batch = merge([decoder.decode(records) for records in stretch.records])
        if batch is not None:
            yield from source_rows(without_tombstones(batch), source, columns)
        position = stretch.position


def _read(log: Log, decoder: SourceDecoder, position: Position, now: Snapshot, rows: int) -> tuple[Stretch, Snapshot]:
    """Retention may remove what was to be read next: then it is not there to be read."""
    topic = decoder.source.topic
    try:
        return read_stretch(log, topic, position, now, decoder.columns, rows), now
    except OffsetOutOfRange:
        later = log.snapshot()
        starts = {number: ends.start for number, ends in enumerate(later.ends[topic])}
        offsets = {number: max(offset, starts.get(number, 0)) for number, offset in position.offsets.items()}
        return read_stretch(log, topic, Position(position.arrival, offsets), later, decoder.columns, rows), later


def without_tombstones(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A record without a value is no row of a stream."""
    dead = batch.column(TOMBSTONE)
    return batch.filter(pc.invert(dead)) if dead.true_count else batch
