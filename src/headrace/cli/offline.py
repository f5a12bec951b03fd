"""Topics, groups and queues without a server: the command itself becomes the log's owner for as long as it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headrace.clock import SystemClock
from headrace.collect.base import RawEvents
from headrace.collect.decode import EventCollector
from headrace.config import Project
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.catalog_file import FILE, CatalogFile
from headrace.coordinate.describe import CONFIG, altered_topic, check_unused, delete_records, describe_topic, new_topic
from headrace.coordinate.groups import describe_group, describe_groups, describe_queue, reset_offsets
from headrace.deliver.browse import offsets_at, page_json, read_after, read_before
from headrace.deliver.filtering import compile_where
from headrace.lean import without_pandas
from headrace.log.base import Log, Topic, TopicPartition
from headrace.log.codecs.json_encode import to_json
from headrace.log.codecs.times import moment
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC, bury_spent, create_dead_letters
from headrace.log.open import open_log
from headrace.log.queues import QueueDefinition, Queues


class OfflineBackend:
    """The same answers as the HTTP API's, made from the log."""

    live = False

    def __init__(self, log: Log, project: Project) -> None:
        self._log = log
        self._project = project
        self._catalog = Catalog(log, file=CatalogFile(project.data / FILE))
        self._opened: Queues | None = None
        self._collector: EventCollector | None = None

    def topics(self, internal: bool) -> list[dict[str, Any]]:
        return [self._describe(topic) for topic in self._log.topics() if internal or not topic.internal]

    def topic(self, name: str) -> dict[str, Any]:
        return self._describe(self._log.topic(name))

    def put(self, name: str, body: bytes, idempotency_key: str | None) -> dict[str, Any]:
        if self._collector is None:
            create_dead_letters(self._log)
            self._collector = EventCollector(self._log, SystemClock(), self._project.settings.collect)
        raw = RawEvents(name, body, "ndjson", "headrace topic put", idempotency_key=idempotency_key)
        outcome = self._collector.collect(raw).result()
        return {
            "accepted": outcome.accepted,
            "duplicates": outcome.duplicates,
            "rejected": [
                {"index": item.index, "reason": item.reason, "dead_letter": item.dead_letter}
                for item in outcome.rejected
            ],
            "positions": [list(position) for position in outcome.positions],
        }

    def create_topic(self, body: dict[str, Any]) -> dict[str, Any]:
        config = {name: body[name] for name in CONFIG if name in body}
        spec = new_topic(
            body["name"], body.get("columns", ""), body.get("partitions", 1), body.get("kind", "typed"), config
        )
        return self._describe(self._log.create_topic(spec))

    def alter_topic(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        config = {name: body[name] for name in CONFIG if name in body}
        spec = altered_topic(self._log.topic(name), body.get("add_columns", ""), config)
        return self._describe(self._log.alter_topic(spec))

    def delete_topic(self, name: str) -> None:
        topic = self._log.topic(name)
        check_unused(topic, self._catalog, self._queues())
        self._log.delete_topic(name)

    def delete_records(self, name: str, partition: int | None, before: int | None) -> dict[str, Any]:
        left = delete_records(self._log, self._log.topic(name), partition, before)
        return {"partitions": [{"partition": n, "start": end.start, "end": end.end} for n, end in enumerate(left)]}

    def page(self, name: str, where: str | None, **place: Any) -> dict[str, Any]:
        topic = self._log.topic(name)
        condition = compile_where(topic, where) if where else None
        place.pop("wait", None)
        limit = place.pop("limit", 500)
        at = offsets_at(self._log, name, **place)
        read = read_before if "before" in place else read_after
        page: dict[str, Any] = json.loads(page_json(read(self._log, name, at, limit, where=condition)))
        return page

    # Groups and queues

    def groups(self) -> list[dict[str, Any]]:
        return describe_groups(self._log)

    def group(self, name: str) -> dict[str, Any]:
        return describe_group(self._log.group(name))

    def reset_group(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        given = body.get("offsets")
        offsets = (
            None if given is None else {TopicPartition(one["topic"], one["partition"]): one["offset"] for one in given}
        )
        time_ms = None if body.get("time") is None else moment(str(body["time"]), "time")
        to = reset_offsets(self._log, name, body.get("to"), time_ms, offsets, body.get("topics"))
        self._log.reset_group(name, to, body.get("force", False))
        return self.group(name)

    def delete_group(self, name: str) -> None:
        self._log.delete_group(name)

    def queues(self) -> list[dict[str, Any]]:
        return [describe_queue(queue) for queue in self._queues()]

    def queue(self, name: str) -> dict[str, Any]:
        return describe_queue(self._queues().queue(name))

    def create_queue(self, body: dict[str, Any]) -> dict[str, Any]:
        return describe_queue(self._queues().create(QueueDefinition(**body)))

    def delete_queue(self, name: str) -> None:
        self._queues().delete(name)

    def receive(self, name: str, limit: int, wait: float, lease: float | None) -> list[dict[str, Any]]:
        # Nobody else writes while this command owns the log: there is nothing to wait for.
        return [
            {"receipt": message.receipt, "deliveries": message.deliveries, "record": json.loads(to_json(message.event))}
            for message in self._queues().queue(name).receive(limit, lease)
        ]

    def settle(self, name: str, how: str, body: Mapping[str, Any]) -> dict[str, Any]:
        queue = self._queues().queue(name)
        match how:
            case "ack":
                settled = queue.ack(body["receipts"])
            case "nack":
                settled = queue.nack(body["receipts"], body.get("delay_s", 0.0), body.get("reason"))
            case _:
                settled = queue.extend(body["receipts"], body.get("lease_s"))
        return {"done": settled.done, "lost": list(settled.lost)}

    def _queues(self) -> Queues:
        if self._opened is None:
            create_dead_letters(self._log)
            self._opened = Queues(self._log, SystemClock(), bury_spent)
        return self._opened

    def _describe(self, topic: Topic) -> dict[str, Any]:
        return describe_topic(self._log, self._catalog, topic, 0.0, self._dead_letters(topic.name))

    def _dead_letters(self, name: str) -> int:
        ends = self._log.snapshot().ends.get(DEAD_LETTERS_TOPIC)
        if not ends:
            return 0
        letters = self._log.read(DEAD_LETTERS_TOPIC, 0, ends[0].start, ends[0].end, ["TOPIC"])
        return sum(records.batch.column("TOPIC").to_pylist().count(name) for records in letters)


@contextmanager
def open_offline(project: Project) -> Iterator[OfflineBackend]:
    without_pandas()
    log = open_log(project, SystemClock())
    try:
        yield OfflineBackend(log, project)
    finally:
        log.close()
