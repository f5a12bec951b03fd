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
from headrace.coordinate.describe import describe_topic
from headrace.log.base import Log, Topic
from headrace.log.open import open_log


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
        return describe_topic(self._log, self._catalog, topic, 0.0, self._dead_letters(topic.name))

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
