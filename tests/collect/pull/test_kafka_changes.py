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

CUSTOMERS = TopicSpec("customers", key=(Column("ID", BIGINT),), value=(Column("NAME", VARCHAR),))


def test_a_tombstone_behind_its_deletion_says_nothing_new() -> None:
    """It has no id, so a connector that says all again would delete with it a row that came back meanwhile."""
    deleted = json.dumps({"before": {"id": 2}, "after": None, "op": "d", "source": {"lsn": 4}}).encode()
    created = json.dumps({"before": None, "after": {"id": 2}, "op": "c", "source": {"lsn": 5}}).encode()
    reading, key = Changes(), b'{"id": 2}'

    def read(value: bytes | None, key: bytes = key, partition: int = 0) -> bool | None:
        item = reading.read(Message(topic="shop", partition=partition, key=key, value=value))
        return None if item is None else "$tombstone" in item.event

    assert [read(value) for value in (deleted, None, created, deleted, None, created)] == [
        True,
        None,
        False,
        True,
        None,
        False,
    ]
    # Where compaction took the deletion, the tombstone is all there is; and others' deletions are not its own.
    assert read(None) is True
    read(deleted)
    assert (read(None, b'{"id": 3}'), read(None, partition=1)) == (True, True)


@pytest.mark.slow
def test_changes_in_kafka_become_a_table(kafka: str, tmp_path: Path) -> None:
    source = f"shop.{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(source, 1, 1)])[source].result(60)
    producer = Producer({"bootstrap.servers": kafka})

    def write(lsn: int, before: Any, after: Any, op: str) -> None:
        row = before or after
        envelope = {"before": before, "after": after, "op": op, "source": {"connector": "postgresql", "lsn": lsn}}
        key, value = {"schema": {"type": "struct"}, "payload": {"id": row["id"]}}, {"schema": {}, "payload": envelope}
        producer.produce(source, json.dumps(value), json.dumps(key))
        if op == "d":
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
