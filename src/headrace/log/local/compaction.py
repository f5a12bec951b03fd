"""Compaction: of each key only the newest record stays. Offsets, order, arrival numbers and stream times stay too.

A pass takes the segments that were sealed since the last one, as many as their keys fit into memory, learns the newest
offset of each key in them, and writes every sealed segment anew without the records that have a newer one. The oldest
segment goes first and each is in place before the next begins, so a crash leaves a log that is merely less compact;
and a tombstone goes only when everything it deletes is gone. Old neighbours that have become small become one segment.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.errors import CorruptFrame
from headrace.log.base import TOMBSTONE, Topic
from headrace.log.local.compacted_frames import write_segment
from headrace.log.local.files import replace_file, sync_folder
from headrace.log.local.keys import NewestOffsets, key_column, key_names
from headrace.log.local.reader import Projection
from headrace.log.local.replacement import Replacement
from headrace.log.local.rewrite import gently
from headrace.log.local.segment import index_path, segment_path
from headrace.log.local.walk import PartitionFiles, SegmentVanished
from headrace.structs import ready

logger = logging.getLogger(__name__)

KEY_BYTES = 64 * 1024 * 1024
"""Keys of one pass. Beyond it only by the keys of one segment."""
STATE = "compacted.json"
_MTIMES_APART = 8
"""Segments are merged if they came within this part of the retention time, or they would never get old."""


class Clean(msgspec.Struct, frozen=True):
    """How far a partition is compacted. A cache: without it a pass looks at everything."""

    offset: int = 0
    """No key has two records before it."""
    tombstones_ms: int | None = None
    """When the oldest tombstone before it may go; None if there is none."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed segment."""

    base: int
    following: int
    size: int
    modified_ns: int

    def age_ms(self, now_ms: int) -> int:
        return now_ms - self.modified_ns // 1_000_000


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays of a segment."""

    segment: Sealed
    offsets: Any
    tombstones: int
    changed: bool
    size: int


@dataclass(frozen=True, slots=True)
class Limits:
    frame_rows: int
    segment_bytes: int
    retention_ms: int
    now_ms: int
    stopped: Callable[[], bool]
    drop_tombstones: bool = True
    """Not where older records of the same keys are in another partition, which this one follows."""


def read_clean(files: PartitionFiles) -> Clean:
    try:
        return msgspec.json.decode((files.folder / STATE).read_bytes(), type=ready(Clean))
    except (OSError, msgspec.DecodeError):
        return Clean()


def compact_partition(
    files: PartitionFiles, topic: Topic, number: int, start: int, active: int, limits: Limits
) -> None:
    """Compact the sealed segments of a partition, if it is worth it."""
    try:
        clean = read_clean(files)
        sealed = _sealed(files, start, active)
        dirty = [segment for segment in sealed if segment.following > clean.offset]
        if not _is_due(sealed, dirty, clean, limits.now_ms):
            return
        upto = clean.offset
        while True:
            upto = _run_pass(files, topic, number, sealed, upto, limits)
            sealed = _sealed(files, start, active)
            if limits.stopped() or not sealed or upto >= sealed[-1].following:
                return
    except (SegmentVanished, FileNotFoundError):
        return  # the topic was deleted


def _run_pass(
    files: PartitionFiles, topic: Topic, number: int, sealed: list[Sealed], clean: int, limits: Limits
) -> int:
    """Returns how far it came."""
    one = _Pass(files, topic, number, limits)
    upto = one.learn([segment for segment in sealed if segment.following > clean], clean)
    due = one.rewrite([segment for segment in sealed if segment.following <= upto])
    if not limits.stopped() and files.folder.is_dir():
        replace_file(files.folder / STATE, msgspec.json.encode(Clean(upto, due)))
    return upto


def _sealed(files: PartitionFiles, start: int, active: int) -> list[Sealed]:
    bases = [base for base in files.bases(again=True) if base <= active]
    found = []
    for base, following in pairwise(bases):
        if following > start:
            status = os.stat(segment_path(files.folder, base))
            found.append(Sealed(base, following, status.st_size, status.st_mtime_ns))
    return found


def _is_due(sealed: list[Sealed], dirty: list[Sealed], clean: Clean, now_ms: int) -> bool:
    """A pass reads everything that is sealed: it waits until half of that is new, or tombstones have had their time."""
    if clean.tombstones_ms is not None and clean.tombstones_ms <= now_ms:
        return True
    return bool(dirty) and 2 * sum(part.size for part in dirty) >= sum(part.size for part in sealed)


class _Pass:
    def __init__(self, files: PartitionFiles, topic: Topic, number: int, limits: Limits) -> None:
        self._files, self._topic, self._number, self._limits = files, topic, number, limits
        self._newest = NewestOffsets()
        self._aside = files.quarantined()
        self._tombstone_ms = topic.spec.config.tombstone_ms

    # Learning

    def learn(self, dirty: list[Sealed], clean: int) -> int:
        """Take in the keys of the new segments, as many as fit; returns the offset after them."""
        upto = clean
        for segment in dirty:
            if self._limits.stopped() or self._newest.nbytes > KEY_BYTES:
                break
            keys, offsets, _ = self._keys(segment) or ([], [], None)
            self._newest.add(keys, offsets)
            upto = segment.following
        return upto

    def _keys(self, segment: Sealed) -> tuple[list[pa.Array], list[Any], Any] | None:
        """Keys, offsets and tombstones of a segment's records; None if it is damaged: it is left as it is."""
        if any(first < segment.following and segment.base < after for first, after in self._aside):
            return None
        names = [*key_names(self._topic.spec), TOMBSTONE]
        projection = Projection(self._topic, self._number, names, lambda: self._topic)
        keys, offsets, tombstones = [], [], [np.zeros(0, np.bool_)]
        try:
            for place in gently(self._files.frames(segment.base, segment.following)):
                records = projection.records(place, max(segment.base, place.header.base_offset), segment.following)
                keys.append(key_column(records.batch, self._topic.spec))
                offsets.append(np.asarray(records.each_offset(), np.int64))
                tombstones.append(records.batch.column(TOMBSTONE).to_numpy(zero_copy_only=False))
        except CorruptFrame as error:
            logger.warning("`%s` is not compacted: %s", self._files.folder, error)
            return None
        return keys, offsets, np.concatenate(tombstones)

    # Rewriting

    def rewrite(self, sealed: list[Sealed]) -> int | None:
        """Write anew what has something to lose, oldest first. Returns when the next tombstone is due."""
        due: int | None = None
        group: list[Kept] = []
        drop = self._limits.drop_tombstones
        for segment in sealed:
            if self._limits.stopped():
                return None
            kept = self._kept(segment, drop)
            drop = drop and kept is not None
            if kept is None or not self._may_join(group, kept):
                self._write(group)
                group = []
            if kept is not None:
                group.append(kept)
                if kept.tombstones:
                    when = segment.modified_ns // 1_000_000 + self._tombstone_ms
                    due = when if due is None else min(due, when)
        self._write(group)
        return due if drop else None

    def _kept(self, segment: Sealed, drop_tombstones: bool) -> Kept | None:
        found = self._keys(segment)
        if found is None:
            return None
        keys, parts, tombstones = found
        offsets = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        keep = self._newest.is_newest(keys, offsets)
        if drop_tombstones and segment.age_ms(self._limits.now_ms) >= self._tombstone_ms:
            keep &= ~tombstones
        rows = int(keep.sum())
        size = segment.size * rows // max(1, len(offsets))
        return Kept(segment, offsets[keep], int((tombstones & keep).sum()), rows < len(offsets), size)

    def _may_join(self, group: list[Kept], kept: Kept) -> bool:
        """Whether a segment becomes one with those before it: only if all are past the time of their tombstones, whose
        age is their segment's."""
        if not group:
            return True
        first, last, now = group[0].segment, kept.segment, self._limits.now_ms
        together = sum(part.size for part in group) + kept.size <= self._limits.segment_bytes
        old = min(part.segment.age_ms(now) for part in [*group, kept]) >= self._tombstone_ms
        apart = (last.modified_ns - first.modified_ns) // 1_000_000
        retained = self._limits.retention_ms
        return together and old and (not retained or apart <= retained // _MTIMES_APART)

    def _write(self, group: list[Kept]) -> None:
        """Write a group's survivors over its first segment, then remove the others, the oldest first: readers find each
        offset in the file with the nearest base below it, at every moment."""
        if not group or (len(group) == 1 and not group[0].changed):
            return
        files, first = self._files, group[0].segment
        generation = max(0, files.segment(first.base).generation) + 1
        with Replacement(files.folder, self._topic.id, self._number, first.base, generation) as written:
            for part in group:
                for header, body in gently(self._frames(part)):
                    written.add(header, body)
            modified = max(part.segment.modified_ns for part in group)
            if not written.finish(modified):
                raise SegmentVanished
        files.forget(first.base)
        for part in group[1:]:
            segment_path(files.folder, part.segment.base).unlink()
            index_path(files.folder, part.segment.base).unlink(missing_ok=True)
            sync_folder(files.folder)
            files.forget(part.segment.base)
        logger.info("compacted `%s` from offset %d: %d segments", files.folder, first.base, len(group))

    def _frames(self, part: Kept) -> Iterator[tuple[Any, pa.Buffer]]:
        segment = part.segment
        return write_segment(
            self._files, self._topic, segment.base, segment.following, part.offsets, self._limits.frame_rows
        )
