"""Whose turn it is to write event ids: a queue that all who do can read, so that nobody is shut out in mid-sentence.

The queue is a table in Kafka, a row for each who waits or writes, in the order they came. It is for politeness only:
what makes an id unique is that Kafka shuts the former one out (`identified`). Without it, servers would do so to each
other all the time, and librdkafka does not bear that well in the middle of a write.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.log.kafka.client import Connection
from headrace.log.kafka.errors import translate
from headrace.log.kafka.producer import plain_conf
from headrace.log.kafka.table import Table

TURNS_TOPIC = "_headrace_turns"
PATIENCE_S = 10.0
"""Who is first for so long, and is still, while others wait, is taken for dead."""
_LOOK_S = 0.02


def name_of(folder: Path) -> str:
    """Of a process, by the folder that it alone has: one that is started in its place has its name, and its row."""
    return f"{socket.gethostname()}:{folder.resolve()}"


class Turns:
    """For one thread."""

    def __init__(self, connection: Connection, table: Table, name: str) -> None:
        self._connection, self._table, self._name = connection, table, name
        self._producer: Producer | None = None
        self._failed: KafkaError | None = None
        table.make(connection)

    def is_mine(self) -> bool:
        return next(iter(self._table.refresh()), None) == self._name

    def take(self) -> None:
        """Wait until it is. Who is first for too long is put out of the queue."""
        self._put(self._name, b"waits")
        first, since = "", time.monotonic()
        while (head := next(iter(rows := self._table.refresh()), "")) != self._name:
            if self._name not in rows:
                self._put(self._name, b"waits")  # we were taken for dead
            elif head != first:
                first, since = head, time.monotonic()
            elif time.monotonic() - since > PATIENCE_S:
                self._put(head, None)
            time.sleep(_LOOK_S)

    def others_wait(self) -> bool:
        return len(self._table.refresh()) > 1

    def give_up(self) -> None:
        self._put(self._name, None)

    def _put(self, name: str, value: bytes | None) -> None:
        if self._producer is None:
            self._producer = Producer(plain_conf(self._connection, "all", 0.0))
        self._failed = None
        try:
            self._producer.produce(self._table.topic, key=name, value=value, on_delivery=self._delivered)
            left = self._producer.flush(self._connection.settings.delivery_seconds)
        except KafkaException as failure:
            raise translate(failure, "wait for a turn", self._connection) from failure
        if self._failed is not None or left:
            failed = self._failed or KafkaError(KafkaError._TIMED_OUT)
            raise translate(failed, "wait for a turn", self._connection)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._failed = error
