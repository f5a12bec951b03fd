"""Rewriting a sealed segment into large frames: same records, same offsets, a tenth of the time to read."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

from headrace.errors import CorruptFrame
from headrace.log.base import Topic
from headrace.log.local.frame import MAX_BODY, REWRITTEN, FrameHeader, encode_batch, frame_body
from headrace.log.local.replacement import Replacement
from headrace.log.local.segment import MappedSegment
from headrace.log.local.walk import PartitionFiles, SegmentVanished
from headrace.log.schema import frame_schema

logger = logging.getLogger(__name__)

_LARGE = MAX_BODY // 2
_BREATH = 64

T = TypeVar("T")

Frames = list[tuple[int, FrameHeader]]
"""Frames and their positions."""


def rewrite_segment(files: PartitionFiles, topic: Topic, number: int, base: int, following: int, rows: int) -> bool:
    """Rewrite the segment with records [base, following) if its frames are small. Whether it was."""
    try:
        segment = files.segment(base)
        if segment.generation != 0:
            return False
        frames = list(gently(segment.frames(base, following)))
    except (SegmentVanished, CorruptFrame):
        # Damage is left as it is: readers name it, and someone may still save it.
        return False
    runs = list(_runs(frames, rows))
    if len(frames) < 2 * len(runs):
        return False
    modified = os.stat(segment.path).st_mtime_ns
    with Replacement(files.folder, topic.id, number, base, segment.generation + 1) as written:
        for run in gently(runs):
            written.add(*_merge(segment, topic, run))
        if not written.finish(modified):
            return False
    files.forget(base)
    logger.info("rewrote `%s`: %d frames became %d", segment.path, len(frames), len(runs))
    return True


def gently(items: Iterable[T]) -> Iterator[T]:
    """Let go of the interpreter every so often: the commit thread must not wait for housekeeping."""
    for number, item in enumerate(items):
        if number % _BREATH == 0:
            time.sleep(0.001)
        yield item


def _runs(frames: Frames, rows: int) -> Iterator[Frames]:
    """Neighbours that become one frame: same schema, about `rows` rows, not too many bytes."""
    run: Frames = []
    count = size = 0
    for frame in frames:
        header = frame[1]
        fits = count + header.rows <= rows and size + header.body_length <= _LARGE
        if run and not (fits and header.schema_version == run[0][1].schema_version):
            yield run
            run, count, size = [], 0, 0
        run.append(frame)
        count, size = count + header.rows, size + header.body_length
    if run:
        yield run


def schema_of(topic: Topic, number: int) -> pa.Schema:
    return frame_schema(topic.spec, next(known for known in topic.schemas if known.version == number))


def _merge(segment: MappedSegment, topic: Topic, run: Frames) -> tuple[FrameHeader, pa.Buffer]:
    headers = [header for _, header in run]
    first, last = headers[0], headers[-1]
    if len(run) == 1:
        body, compression = frame_body(segment.data, run[0][0], first), first.compression
    else:
        schema = schema_of(topic, first.schema_version)
        bodies = [frame_body(segment.data, position, header) for position, header in run]
        whole = pa.concat_batches([pa.ipc.read_record_batch(part, schema) for part in bodies])
        body, compression = encode_batch(whole, topic.spec.config.compression)
    merged = FrameHeader(
        body_length=body.size,
        rows=sum(header.rows for header in headers),
        base_offset=first.base_offset,
        next_offset=last.next_offset,
        first_arrival=first.first_arrival,
        last_arrival=last.last_arrival,
        min_time=min(header.min_time for header in headers),
        max_time=max(header.max_time for header in headers),
        max_lag=max(header.max_lag for header in headers),
        schema_version=first.schema_version,
        flags=REWRITTEN,
        compression=compression,
    )
    return merged, body
