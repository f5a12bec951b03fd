"""Topics without a server: the command itself becomes the log's owner for as long as it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.clock import SystemClock
from headrace.collect.base import RawEvents
from headrace.collect.dead_letters import DEAD_LETTERS_TOPIC, create_dead_letters
from headrace.collect.decode import EventCollector
from headrace.config import Project
from headrace.coordinate.catalog import Catalog
from headrace.log.base import NO_STREAM_TIME, Log, Topic
from headrace.log.open import open_log
from headrace.types import display_name


class OfflineTopics:
    """The same answers as the HTTP API's, made from the log."""

    def __init__(self, log: Log, project: Project) -> None:
        self._log = log
        self._project = project
        self._catalog = Catalog(log)

    def topics(self, internal: bool) -> list[dict[str, Any]]:
        return [self._describe(topic) for topic in self._log.topics() if internal or not topic.internal]

    def topic(self, name: str) -> dict[str, Any]:
        return self._describe(self._log.topic(name))

    def put(self, name: str, body: bytes, idempotency_key: str | None) -> dict[str, Any]:
        create_dead_letters(self._log)
        collector = EventCollector(self._log, SystemClock(), self._project.settings.collect)
        raw = RawEvents(name, body, "ndjson", "headrace topic put", idempotency_key=idempotency_key)
        outcome = collector.collect(raw).result()
        return {
            "accepted": outcome.accepted,
            "duplicates": outcome.duplicates,
            "rejected": [
                {"index": item.index, "reason": item.reason, "dead_letter": item.dead_letter}
                for item in outcome.rejected
            ],
            "positions": [list(position) for position in outcome.positions],
        }

    def _describe(self, topic: Topic) -> dict[str, Any]:
        spec, stats = topic.spec, self._log.stats(topic.name)
        keyed = [(column, True) for column in spec.key] + [(column, False) for column in spec.value]
        return {
            "name": topic.name,
            "kind": spec.kind,
            "role": spec.role,
            "partitions": [
                {"partition": number, "start": ends.start, "end": ends.end}
                for number, ends in enumerate(stats.partitions)
            ],
            "records": stats.records,
            "bytes": stats.bytes,
            "segments": stats.segments,
            "stream_time_ms": None if stats.stream_time == NO_STREAM_TIME else stats.stream_time,
            "columns": [
                {"name": display_name(column.name), "type": str(column.type), "key": key} for column, key in keyed
            ],
            "timestamp": display_name(spec.timestamp.column) if spec.timestamp else None,
            "retention_ms": spec.config.retention_ms,
            "retention_bytes": spec.config.retention_bytes,
            "internal": topic.internal,
            "sources": [display_name(source.name) for source in self._catalog.over_topic(topic.name)],
            "rate": 0,
            "dead_letters": self._dead_letters(topic.name),
        }

    def _dead_letters(self, name: str) -> int:
        ends = self._log.snapshot().ends.get(DEAD_LETTERS_TOPIC)
        if not ends:
            return 0
        letters = self._log.read(DEAD_LETTERS_TOPIC, 0, ends[0].start, ends[0].end, ["TOPIC"])
        return sum(records.batch.column("TOPIC").to_pylist().count(name) for records in letters)


@contextmanager
def open_offline(project: Project) -> Iterator[OfflineTopics]:
    log = open_log(project, SystemClock())
    try:
        yield OfflineTopics(log, project)
    finally:
        log.close()
