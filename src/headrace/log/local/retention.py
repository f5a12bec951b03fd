"""Which of a partition's records have expired."""

from __future__ import annotations

import os

from headrace.clock import Clock
from headrace.config import LogSettings
from headrace.log.base import Topic
from headrace.log.local.segment import segment_path
from headrace.log.local.state import TopicState
from headrace.log.local.walk import PartitionFiles


def limits(topic: TopicState, settings: LogSettings) -> tuple[int, int]:
    """(milliseconds, bytes) to keep; 0 keeps everything. The general settings are for events: a derived topic may be a
    table, whose old records are its oldest keys, and Headrace's own topics are what it knows about itself."""
    spec = topic.topic.spec
    general = spec.role == "events" and not topic.topic.internal
    age = spec.config.retention_ms or (int(settings.retention_hours * 3_600_000) if general else 0)
    size = spec.config.retention_bytes or (settings.retention_bytes if general else 0)
    return age, size


def id_window(topic: Topic, settings: LogSettings) -> int:
    """Milliseconds for which an event id is known; 0 is as long as its record is kept. Headrace's own are always."""
    if topic.internal:
        return 0
    return topic.spec.config.id_window_ms or int(settings.id_window_hours * 3_600_000)


def expired_start(
    topic: TopicState, files: PartitionFiles, active: int, settings: LogSettings, clock: Clock
) -> int | None:
    """The new start of a partition, None if nothing has expired. Only whole sealed segments expire, oldest first."""
    max_age, max_bytes = limits(topic, settings)
    if not max_age and not max_bytes:
        return None
    bases = [base for base in files.bases(again=True) if base <= active]
    now = clock.now_ms()
    stats = [os.stat(segment_path(files.folder, base)) for base in bases]
    size = sum(status.st_size for status in stats)
    start = None
    for status, following in zip(stats, bases[1:], strict=False):
        old = max_age and now - status.st_mtime_ns // 1_000_000 >= max_age
        large = max_bytes and size > max_bytes
        if not old and not large:
            break
        start = following
        size -= status.st_size
    return start
