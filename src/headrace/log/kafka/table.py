"""A compacted topic of one partition as a table: the newest value of each key, read on as it grows."""

from __future__ import annotations

import threading
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.errors import LogError
from headrace.log.base import TopicPartition
from headrace.log.kafka.client import Connection
from headrace.log.kafka.encode import Outgoing
from headrace.log.kafka.errors import error_of, translate
from headrace.log.kafka.fetch import Fetcher
from headrace.log.kafka.offsets import Offsets

FOREVER = {"retention.ms": "-1", "retention.bytes": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
"""Kafka forgets after a week and refuses times an hour ahead, unless it is told not to."""


class Table:
    """Safe to use from several threads. Written by whoever has a producer, so that it can be part of a transaction."""

    def __init__(self, topic: str, admin: AdminClient, fetcher: Fetcher, offsets: Offsets) -> None:
        self.topic = topic
        self._admin = admin
        self._fetcher = fetcher
        self._offsets = offsets
        self._lock = threading.Lock()
        self._rows: dict[str, bytes] = {}
        self._next = 0

    def make(self, connection: Connection) -> None:
        """The topic, unless it is there."""
        settings = connection.settings
        config = FOREVER | {"cleanup.policy": "compact"}
        if settings.min_insync:
            config["min.insync.replicas"] = str(settings.min_insync)
        wanted = NewTopic(self.topic, 1, settings.replication or -1, config=config)
        try:
            self._admin.create_topics([wanted], request_timeout=settings.request_seconds)[self.topic].result()
        except KafkaException as failure:
            error = error_of(failure)
            if error is None or error.name() != "TOPIC_ALREADY_EXISTS":
                raise translate(failure, f"make `{self.topic}`", connection, self.topic) from failure
        self.wait_until_known(settings.request_seconds)

    def row(self, key: str, value: bytes | None, now_ms: int) -> Outgoing:
        """A row, to be sent; without a value it is deleted."""
        return Outgoing(self.topic, self.topic, [key.encode()], [value], [now_ms], [0], None, len(value or b""), 0)

    def wait_until_known(self, seconds: float) -> None:
        """Brokers hear of a new topic a moment after it was made."""
        deadline = time.monotonic() + seconds
        while not self._offsets.ends([TopicPartition(self.topic, 0)]):
            if time.monotonic() > deadline:
                raise LogError(f"topic `{self.topic}` was made but does not appear")
            time.sleep(0.01)

    def settle(self, seconds: float) -> dict[str, bytes]:
        """Return the rows once every transaction that has written to the table by now is committed or aborted.
        `Unsettled` if that takes longer than so many seconds."""
        self._offsets.wait_for(self._offsets.written([TopicPartition(self.topic, 0)]), seconds)
        return self.refresh()

    def refresh(self) -> dict[str, bytes]:
        """Return the rows up to the last stable offset: those after the first open transaction are missing."""
        with self._lock:
            end = self._offsets.ends([TopicPartition(self.topic, 0)]).get(TopicPartition(self.topic, 0), self._next)
            if end < self._next:
                # The topic was deleted and made again behind our back.
                self._rows, self._next = {}, 0
            for run in self._fetcher.messages(self.topic, 0, self._next, end):
                for message in run:
                    key, value = message.key(), message.value()
                    name = bytes(key or b"").decode("utf-8", "replace")
                    if value is None:
                        self._rows.pop(name, None)
                    else:
                        self._rows[name] = bytes(value)
                    self._next = (message.offset() or 0) + 1
            self._next = end
            return dict(self._rows)
