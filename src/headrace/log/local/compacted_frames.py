"""The frames of a compacted segment: what is left of it, each record with its own offset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.log.base import ARRIVAL, STREAM_TIME, TIME, Topic
from headrace.log.local.frame import HAS_OFFSETS, MAX_BODY, REWRITTEN, FrameHeader, encode_batch
from headrace.log.local.rewrite import schema_of
from headrace.log.local.segment import NO_TIME
from headrace.log.local.walk import PartitionFiles, Place
from headrace.log.schema import OFFSET_FIELD

_LARGE = MAX_BODY // 2
_NEVER_LATE = -(1 << 62)

Frame = tuple[FrameHeader, pa.Buffer]


@dataclass(slots=True)
class _Gathered:
    """Rows that become one frame."""

    version: int = 0
    batches: list[pa.RecordBatch] = field(default_factory=list)
    offsets: list[Any] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def has_room(self, version: int, batch: pa.RecordBatch, most_rows: int) -> bool:
        same = version == self.version
        return not self.rows or (
            same and self.rows + batch.num_rows <= most_rows and self.bytes + batch.nbytes <= _LARGE
        )

    def add(self, version: int, batch: pa.RecordBatch, offsets: Any) -> None:
        self.version = version
        self.batches.append(batch)
        self.offsets.append(offsets)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes


def write_segment(
    files: PartitionFiles, topic: Topic, base: int, following: int, kept: Any, frame_rows: int
) -> Iterator[Frame]:
    """Frames that stand for the offsets [base, following) and hold those in `kept`, which grow. There is at least one:
    an empty one stands for a segment of which nothing is left."""
    compression = topic.spec.config.compression
    gathered, covered = _Gathered(), base
    arrivals: tuple[int, int] | None = None
    for place in files.frames(base, following):
        first, last = place.header.first_arrival, place.header.last_arrival
        arrivals = (first, last) if arrivals is None else (arrivals[0], last)
        version = place.header.schema_version
        batch, offsets = kept_rows(topic, place, kept)
        if not batch.num_rows:
            continue
        if not gathered.has_room(version, batch, frame_rows):
            after = int(offsets[0])
            yield _frame(topic, gathered, covered, after, compression)
            gathered, covered = _Gathered(), after
        gathered.add(version, batch, offsets)
    if gathered.rows:
        yield _frame(topic, gathered, covered, following, compression)
    else:
        yield empty_frame(topic, base, following, arrivals or (0, 0))


def kept_rows(topic: Topic, place: Place, kept: Any) -> tuple[pa.RecordBatch, Any]:
    """The rows of a frame whose offsets are in `kept`, without `$offset`, and their offsets."""
    header = place.header
    schema = schema_of(topic, header.schema_version)
    if header.flags & HAS_OFFSETS:
        schema = schema.insert(0, OFFSET_FIELD)
    batch = place.batch(schema)
    offsets = np.arange(header.base_offset, header.next_offset)
    if header.flags & HAS_OFFSETS:
        offsets = batch.column(0).to_numpy()
        batch = batch.select(range(1, batch.num_columns))
    here = kept[np.searchsorted(kept, header.base_offset) : np.searchsorted(kept, header.next_offset)]
    if len(here) == len(offsets):
        return batch, offsets
    return batch.take(pa.array(np.searchsorted(offsets, here))), here


def _frame(topic: Topic, rows: _Gathered, base: int, after: int, compression: str) -> Frame:
    batch, offsets = pa.concat_batches(rows.batches), np.concatenate(rows.offsets)
    times, arrivals = batch.column(TIME).to_numpy(), batch.column(ARRIVAL).to_numpy()
    has_gaps = len(offsets) < after - base
    lag = int((batch.column(STREAM_TIME).to_numpy() - times).max())
    if has_gaps:
        batch = _with_offsets(batch, offsets)
    body, number = encode_batch(batch, compression)
    header = FrameHeader(
        body_length=body.size,
        rows=len(offsets),
        base_offset=base,
        next_offset=after,
        first_arrival=int(arrivals[0]),
        last_arrival=int(arrivals[-1]),
        min_time=int(times.min()),
        max_time=int(times.max()),
        max_lag=lag,
        schema_version=rows.version,
        flags=REWRITTEN | (HAS_OFFSETS if has_gaps else 0),
        compression=number,
    )
    return header, body


def empty_frame(topic: Topic, base: int, after: int, arrivals: tuple[int, int]) -> Frame:
    """A frame that stands for offsets of which nothing is left. Arrival numbers must not be below those before it."""
    version = topic.schemas[-1].version
    schema = schema_of(topic, version)
    columns = [pa.array([], field.type) for field in schema]
    nothing = _with_offsets(pa.RecordBatch.from_arrays(columns, schema=schema), np.zeros(0, np.int64))
    body = nothing.serialize()
    header = FrameHeader(
        body_length=body.size,
        rows=0,
        base_offset=base,
        next_offset=after,
        first_arrival=arrivals[0],
        last_arrival=arrivals[1],
        min_time=0,
        max_time=NO_TIME,
        max_lag=_NEVER_LATE,
        schema_version=version,
        flags=REWRITTEN | HAS_OFFSETS,
    )
    return header, body


def _with_offsets(batch: pa.RecordBatch, offsets: Any) -> pa.RecordBatch:
    schema = batch.schema.insert(0, OFFSET_FIELD)
    return pa.RecordBatch.from_arrays([pa.array(offsets, pa.int64()), *batch.columns], schema=schema)
