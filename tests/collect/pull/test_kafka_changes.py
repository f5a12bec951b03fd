"""A database's changes in a real Kafka, as Debezium writes them, → rows and tombstones, each once over a restart."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.collect.pull.kafka import Changes
from headrace.log.base import TopicSpec
from headrace.types import BIGINT, VARCHAR, Column
from tests.collect.listeners import listening
from tests.support import wait_for

CUSTOMERS = TopicSpec("customers", key=(Column("ID", BIGINT),), value=(Column("NAME", VARCHAR),))


KEY = b'{"id": 2}'
DELETED = json.dumps({"before": {"id": 2}, "after": None, "op": "d", "source": {"lsn": 4}}).encode()
CREATED = json.dumps({"before": None, "after": {"id": 2}, "op": "c", "source": {"lsn": 5}}).encode()


def messages(*values: bytes | None, key: bytes = KEY, partition: int = 0, first: int = 0) -> list[Message]:
    return [
        Message(topic="shop", partition=partition, offset=offset, key=key, value=value)
        for offset, value in enumerate(values, first)
    ]


def said(reading: Changes, read: list[Message]) -> list[bool]:
    """Whether each row that is told is gone."""
    return ["$tombstone" in item.event for item in reading.read(read)[0]]


def test_a_tombstone_behind_its_deletion_says_nothing_new() -> None:
    """It has no id, so a connector that says all again would delete with it a row that came back meanwhile."""
    reading = Changes()
    assert said(reading, messages(DELETED, None, CREATED) * 2) == [True, False, True, False]
    # Where compaction took the deletion, the tombstone is all there is; and others' deletions are not its own.
    assert said(reading, messages(None)) == [True]
    said(reading, messages(DELETED))
    assert said(reading, messages(None, key=b'{"id": 3}') + messages(None, partition=1)) == [True, True]


def test_also_when_the_collector_is_restarted_between_the_two() -> None:
    topic = messages(CREATED, DELETED, None, CREATED)
    for cut in range(1, len(topic)):
        read, places = Changes().read(topic[:cut])
        more, end = Changes().read(topic[places["0"] :])
        ids = {item.event.get("$id") for item in [*read, *more] if "$tombstone" in item.event}
        assert (len(ids), None in ids, end) == (1, False, {"0": 4}), f"one deletion, though it ended after {cut}"


@pytest.mark.slow
def test_changes_in_kafka_become_a_table(kafka: str, tmp_path: Path) -> None:
    source = f"shop.{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(source, 1, 1)])[source].result(60)
    producer = Producer({"bootstrap.servers": kafka})

    def write(lsn: int, before: Any, after: Any, op: str, tombstone: bool = True) -> None:
        row = before or after
        envelope = {"before": before, "after": after, "op": op, "source": {"connector": "postgresql", "lsn": lsn}}
        key, value = {"schema": {"type": "struct"}, "payload": {"id": row["id"]}}, {"schema": {}, "payload": envelope}
        producer.produce(source, json.dumps(value), json.dumps(key))
        if op == "d" and tombstone:
            producer.produce(source, None, json.dumps(key))
        producer.flush(60)

    write(1, None, {"id": 1, "name": "Ann"}, "c")
    write(2, None, {"id": 2, "name": "Bob"}, "c")
    write(1, None, {"id": 1, "name": "Ann"}, "c")  # a connector that was restarted says it again
    text = f'type = "kafka"\ntopic = "customers"\nbootstrap = "{kafka}"\nsource = "{source}"\nformat = "debezium"'
    with listening(tmp_path, {"changes": text}, [CUSTOMERS]) as running:
        assert [row["NAME"] for row in running.wait_rows("customers", 2)] == ["Ann", "Bob"]
    write(3, {"id": 1, "name": "Ann"}, {"id": 1, "name": "Anne"}, "u")
    write(4, {"id": 2, "name": "Bob"}, None, "d")
    with listening(tmp_path, {"changes": text}, [CUSTOMERS]) as running:
        rows = running.wait_rows("customers", 4)
        assert [(row["ID"], row["NAME"], row["$tombstone"]) for row in rows] == [
            (1, "Ann", False),
            (2, "Bob", False),
            (1, "Anne", False),
            (2, None, True),
        ]
        assert running.letters() == []
    # The row comes back. Then a connector that was restarted tells its end again, and the collector is restarted just
    # before the tombstone comes, which would be the last word on a row whose creation is known.
    write(5, None, {"id": 2, "name": "Bo"}, "c")
    write(4, {"id": 2, "name": "Bob"}, None, "d", tombstone=False)
    with listening(tmp_path, {"changes": text}, [CUSTOMERS]) as running:
        assert running.wait_rows("customers", 5)[-1]["NAME"] == "Bo"
        wait_for(lambda: running.status("changes").duplicates > 0, 60, "the deletion that is told again")
    producer.produce(source, None, json.dumps({"schema": {"type": "struct"}, "payload": {"id": 2}}))
    write(5, None, {"id": 2, "name": "Bo"}, "c")
    write(6, None, {"id": 3, "name": "Cy"}, "c")
    with listening(tmp_path, {"changes": text}, [CUSTOMERS]) as running:
        rows = running.wait_rows("customers", 6)
        assert [(row["ID"], row["NAME"], row["$tombstone"]) for row in rows[4:]] == [(2, "Bo", False), (3, "Cy", False)]
