"""A source's records as rows, read from the log in order of arrival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import OffsetOutOfRange
from headrace.log.base import TOMBSTONE, Log, PartitionEnds, Snapshot
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
    chunks = record_chunks(log, source, columns, now, at_a_time)
    return position_at_end(log, now, source.topic), (row for chunk in chunks for row in chunk)


def record_chunks(
    log: Log, source: Source, columns: Sequence[Column], until: Snapshot, at_a_time: int = 20_000
) -> Iterator[list[tuple[Any, ...]]]:
    """A stream's records up to a moment, some at a time. `columns` may include system columns of the log."""
    system = [column.name for column in columns if column.name.startswith("$")]
    decoder = SourceDecoder(log.topic(source.topic), source, log.schemas, also=system)
    position = position_at_start(log, until, source.topic)
    while behind(until, source.topic, position):
        stretch, until = _read(log, decoder, position, until, at_a_time)
        batch = merge([decoder.decode(records) for records in stretch.records])
        if batch is not None:
            yield source_rows(without_tombstones(batch), source, columns)
        position = stretch.position


def _read(log: Log, decoder: SourceDecoder, position: Position, until: Snapshot, rows: int) -> tuple[Stretch, Snapshot]:
    """Retention may remove what was to be read next: then it is not there to be read."""
    topic = decoder.source.topic
    try:
        return read_stretch(log, topic, position, until, decoder.columns, rows), until
    except OffsetOutOfRange:
        starts = [ends.start for ends in log.snapshot().ends[topic]]
        left = tuple(PartitionEnds(max(one.start, starts[n]), one.end) for n, one in enumerate(until.ends[topic]))
        offsets = {number: max(offset, starts[number]) for number, offset in position.offsets.items()}
        until = replace(until, ends={**until.ends, topic: left})
        return read_stretch(log, topic, Position(position.arrival, offsets), until, decoder.columns, rows), until


def without_tombstones(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A record without a value is no row of a stream."""
    dead = batch.column(TOMBSTONE)
    return batch.filter(pc.invert(dead)) if dead.true_count else batch
