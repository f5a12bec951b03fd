"""Which segments are archived when, and when their local copies go."""

from __future__ import annotations

import logging
import os
from itertools import pairwise
from pathlib import Path

from headrace.clock import Clock
from headrace.config import ArchiveSettings
from headrace.errors import CorruptFrame
from headrace.log.base import Topic
from headrace.log.local.archiving import archive_segment, expired_files
from headrace.log.local.files import sync_folder
from headrace.log.local.segment import index_path, segment_path
from headrace.log.local.walk import PartitionFiles

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000


class Archiver:
    """Used by maintenance only."""

    def __init__(self, log_folder: Path, settings: ArchiveSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._root = (log_folder.resolve().parent / settings.folder) if settings.folder else None

    def takes(self, topic: Topic) -> bool:
        """Events are the master dataset: what is derived from them can be made again, and a compacted topic is not
        done with its old segments."""
        spec = topic.spec
        return self._root is not None and spec.role == "events" and not topic.internal and not spec.config.compacted

    def archive(self, files: PartitionFiles, topic: Topic, number: int, active: int, wanted: int | None) -> int:
        """Archive what is due, the oldest first, at least up to offset `wanted`; then drop local copies whose time has
        come. How many segments were archived."""
        assert self._root is not None
        archived = 0
        done = files.archive.manifest().end
        sealed = list(pairwise(base for base in files.bases(again=True) if base <= active))
        size = sum(_size(files, base) for base, _ in sealed)
        for base, following in sealed:
            came = _came_ms(files, base)
            old = self._clock.now_ms() - came >= self._settings.after_hours * HOUR_MS
            large = self._settings.after_bytes and size > self._settings.after_bytes
            if not old and not large and following > (wanted or 0):
                break
            size -= _size(files, base)
            if following > done:
                try:
                    archive_segment(files, topic, number, base, following, came, self._root)
                except CorruptFrame as error:
                    # Those after it wait too: archived and local records follow each other without a gap.
                    logger.warning("`%s` is not archived: %s", segment_path(files.folder, base), error)
                    break
                archived += 1
        self._drop(files, active, wanted or 0)
        return archived

    def _drop(self, files: PartitionFiles, active: int, wanted: int) -> None:
        archived = files.archive.manifest().end
        for base, following in pairwise(base for base in files.bases(again=True) if base <= active):
            young = self._clock.now_ms() - _came_ms(files, base) < self._settings.keep_local_hours * HOUR_MS
            if following > archived or (young and following > wanted):
                return
            segment_path(files.folder, base).unlink()
            index_path(files.folder, base).unlink(missing_ok=True)
            # One by one: a later one must not be gone while an earlier one is there.
            sync_folder(files.folder)
            files.forget(base)

    def expired(self, files: PartitionFiles) -> int | None:
        """The start that the archive's retention leads to."""
        retention_ms = int(self._settings.retention_hours * HOUR_MS)
        return expired_files(files.archive.manifest(), retention_ms, self._clock.now_ms())


def _came_ms(files: PartitionFiles, base: int) -> int:
    """When a segment's last record came."""
    return os.stat(segment_path(files.folder, base)).st_mtime_ns // 1_000_000


def _size(files: PartitionFiles, base: int) -> int:
    return os.stat(segment_path(files.folder, base)).st_size
