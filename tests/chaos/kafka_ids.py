"""Two servers on one Kafka, both sent the same events with ids by clients that do not give up: each is stored once."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa

from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.errors import HeadraceError
from headrace.log.base import ID, Append, TopicSpec
from headrace.log.kafka import KafkaLog
from headrace.types import BIGINT, Column
from tests.support import let_pass

TOPIC = TopicSpec("identified", value=(Column("N", BIGINT),), partitions=3, role="events")
AT_ONCE = 3
ANSWER_S = 300.0


class Client(threading.Thread):
    """Sends numbers in order, each under its own id, and the same again until they are acknowledged."""

    def __init__(self, log: KafkaLog) -> None:
        super().__init__(name="client", daemon=True)
        self.acknowledged = self.failures = 0
        self._log, self._stopped = log, threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            numbers = range(self.acknowledged, self.acknowledged + AT_ONCE)
            rows = pa.record_batch({"N": pa.array(numbers), ID: pa.array([f"event {n}" for n in numbers])})
            try:
                self._log.append([Append(TOPIC.name, rows)]).result(ANSWER_S)
                self.acknowledged += AT_ONCE
            except HeadraceError:
                self.failures += 1
                let_pass(0.1)

    def stop(self) -> None:
        self._stopped.set()
        self.join()


class Servers:
    """Two of them, each with a client, until `stop`."""

    def __init__(self, settings: LogSettings, folder: Path) -> None:
        self._logs = [KafkaLog(settings, SystemClock(), ids=folder / name) for name in ("one", "two")]
        self._logs[0].create_topic(TOPIC)
        self._clients = [Client(log) for log in self._logs]
        for client in self._clients:
            client.start()

    def stop(self) -> dict[str, int]:
        for client in self._clients:
            client.stop()
        log = self._logs[0]
        stored: Counter[int] = Counter()
        for partition in range(TOPIC.partitions):
            for records in log.read(TOPIC.name, partition, 0, columns=["N"]):
                stored.update(records.batch.column(0).to_pylist())
        for one in self._logs:
            one.close()
        most = max(client.acknowledged for client in self._clients)
        return {
            "events with ids": most,
            "failures": sum(client.failures for client in self._clients),
            "ids lost": sum(number not in stored for number in range(most)),
            "ids doubled": sum(count > 1 for count in stored.values()),
        }
