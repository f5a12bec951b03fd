"""Rewriting a sealed segment into large frames: same records, same offsets, a tenth of the time to read."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from headrace.errors import CorruptFrame
from headrace.log.base import Topic
from headrace.log.local.files import sync_file, sync_folder, write_all
from headrace.log.local.frame import MAX_BODY, REWRITTEN, FrameHeader, encode_frame, frame_body
from headrace.log.local.index import Index, encode_entries, encode_index_header
from headrace.log.local.segment import HEADER_SIZE, NO_TIME, MappedSegment, encode_segment_header, index_path
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
        frames = list(_gently(segment.frames(base, following)))
    except (SegmentVanished, CorruptFrame):
        # Damage is left as it is: readers name it, and someone may still save it.
        return False
    runs = list(_runs(frames, rows))
    if len(frames) < 2 * len(runs):
        return False
    generation = segment.generation + 1
    temporary = segment.path.with_name(segment.path.name + ".tmp")
    modified = os.stat(segment.path).st_mtime_ns
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        position = write_all(descriptor, [encode_segment_header(topic.id, number, base, generation)], 0)
        index = _write_frames(descriptor, position, segment, topic, runs)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.utime(temporary, ns=(modified, modified))
    try:
        # A topic that was deleted meanwhile has no folder any more.
        os.rename(temporary, segment.path)
        _replace_index(index_path(files.folder, base), encode_index_header(generation, base) + encode_entries(index))
        sync_folder(files.folder)
    except FileNotFoundError:
        return False
    files.forget(base)
    logger.info("rewrote `%s`: %d frames became %d", segment.path, len(frames), len(runs))
    return True


def _gently(items: Iterable[T]) -> Iterator[T]:
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


def _write_frames(descriptor: int, position: int, segment: MappedSegment, topic: Topic, runs: list[Frames]) -> Index:
    index, max_time = Index(), NO_TIME
    assert position == HEADER_SIZE
    for run in _gently(runs):
        header, body = _merge(segment, topic, run)
        if index.wants(position):
            index.add(header, position, max_time)
        max_time = max(max_time, header.max_time)
        position = write_all(descriptor, encode_frame(header, body), position)
    return index


def _merge(segment: MappedSegment, topic: Topic, run: Frames) -> tuple[FrameHeader, pa.Buffer]:
    headers = [header for _, header in run]
    first, last = headers[0], headers[-1]
    if len(run) == 1:
        body = frame_body(segment.data, run[0][0], first)
    else:
        version = next(known for known in topic.schemas if known.version == first.schema_version)
        schema = frame_schema(topic.spec, version)
        bodies = [frame_body(segment.data, position, header) for position, header in run]
        body = pa.concat_batches([pa.ipc.read_record_batch(part, schema) for part in bodies]).serialize()
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
    )
    return merged, body


def _replace_index(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    sync_file(temporary)
    os.rename(temporary, path)
