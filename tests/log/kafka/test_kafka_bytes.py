"""What is in Kafka: other programs must understand what we write, and we what they do."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.errors import Conflict, TooLarge
from headrace.log.base import TimestampColumn, TopicConfig, TopicSpec
from headrace.log.kafka import KafkaLog
from headrace.log.writing.partitioning import partition_of
from headrace.types import BIGINT, VARCHAR, Column, Struct
from tests.kafka import open_kafka
from tests.log.support import DERIVED, PLAIN, VIEWS, put, rows

pytestmark = pytest.mark.slow


@pytest.fixture
def log(kafka: str) -> Iterator[KafkaLog]:
    with open_kafka(kafka) as made:
        yield made


def seen_by_others(log: KafkaLog, topic: str, partition: int = 0) -> list[Any]:
    """The messages as any Kafka consumer gets them."""
    consumer = Consumer(log.connection.conf(group_id="others", isolation_level="read_committed"))
    try:
        consumer.assign([TopicPartition(log.kafka_name(topic), partition, 0)])
        count = sum(records.batch.num_rows for records in log.read(topic, partition, 0))
        return list(consumer.consume(count, 20))
    finally:
        consumer.close()


def produced_by_others(log: KafkaLog, topic: str, *messages: dict[str, Any]) -> None:
    producer = Producer(log.connection.conf(partitioner="murmur2_random"))
    for message in messages:
        producer.produce(log.kafka_name(topic), **message)
    assert producer.flush(20) == 0


def test_a_record_is_json_with_the_keys_own_bytes(log: KafkaLog) -> None:
    log.create_topic(VIEWS)
    put(log, "pageviews", 0, USERID=["u1"], PAGEID=["/a"], N=[7], time_=[55], id_=["e1"], headers_=[[("h", b"x")]])
    [message] = seen_by_others(log, "pageviews")
    assert (message.key(), json.loads(message.value())) == (b"u1", {"pageid": "/a", "n": 7})
    assert (message.timestamp()[1], message.headers()) == (55, [("h", b"x"), ("headrace-id", b"e1")])
    [row] = rows(log, "pageviews")
    assert (row["$id"], row["$headers"], row["$time"]) == ("e1", {"h": b"x"}, 55)


def test_a_tombstone_is_a_record_without_value(log: KafkaLog) -> None:
    log.create_topic(DERIVED)
    put(log, "counts", K=["a", "b"], N=[1, None], tombstone_=[False, True])
    assert [message.value() for message in seen_by_others(log, "counts")] == [b'{"n":1}', None]
    assert [(row["K"], row["N"], row["$tombstone"]) for row in rows(log, "counts")] == [
        ("a", 1, False),
        ("b", None, True),
    ]


@pytest.mark.parametrize(
    ("windowed", "suffix"), [("time", struct.pack(">q", 1000)), ("session", struct.pack(">qq", 1750, 1000))]
)
def test_windows_are_in_the_key_as_in_kafka_streams(log: KafkaLog, windowed: Any, suffix: bytes) -> None:
    log.create_topic(replace(DERIVED, windowed=windowed))
    put(log, "counts", K=["a"], N=[3], window_start_=[1000], window_end_=[1750])
    assert [message.key() for message in seen_by_others(log, "counts")] == [b"a" + suffix]
    [row] = rows(log, "counts")
    assert (row["K"], row["$window_start"], row["$window_end"]) == ("a", 1000, 1750)


def test_keys_are_where_kafkas_producers_put_them(log: KafkaLog) -> None:
    log.create_topic(replace(VIEWS, partitions=5))
    users = [f"user {number}" for number in range(40)]
    put(log, "pageviews", USERID=users, N=list(range(40)))
    produced_by_others(log, "pageviews", *({"key": user, "value": b"{}"} for user in users))
    places: dict[str, set[int]] = {}
    for row in rows(log, "pageviews"):
        places.setdefault(row["USERID"], set()).add(row["partition"])
    assert places == {user: {partition_of(user.encode(), 5)} for user in users}


def test_fields_nobody_declared_stay_where_they_were(log: KafkaLog) -> None:
    place = Struct((("ZIP", VARCHAR),))
    log.create_topic(TopicSpec("events", value=(Column("N", BIGINT), Column("PLACE", place))))
    sent = b'{"n":1,"extra":[1,2.50],"Place":{"zip":"8000","lat":47.3}}'
    produced_by_others(log, "events", {"value": sent}, {"value": b'{"n":2}'})
    first, second = rows(log, "events")
    assert (first["N"], first["PLACE"]) == (1, {"ZIP": "8000"})
    assert json.loads(first["$rest"]) == {"extra": [1, 2.5], "Place": {"zip": "8000", "lat": 47.3}}
    assert (second["N"], second["$rest"]) == (2, None)
    put(log, "events", N=[1, 2], PLACE=[first["PLACE"], None], rest_=[first["$rest"], None])
    again = [json.loads(message.value()) for message in seen_by_others(log, "events")][2:]
    assert again[0] == {"n": 1, "extra": [1, 2.5], "Place": {"zip": "8000", "lat": 47.3}}


def test_what_is_not_in_the_topics_format_is_named_and_stops_nobody(log: KafkaLog) -> None:
    log.create_topic(PLAIN)
    produced_by_others(log, "plain", *({"value": value} for value in (b'{"N":1}', b"{", b'{"n":"one"}', b'{"n":4}')))
    [records] = log.read("plain", 0, 0)
    assert records.batch.column("N").to_pylist() == [1, None, None, 4]
    assert records.errors is not None
    assert sorted(records.errors) == [1, 2]
    assert "must be" in records.errors[2]


def test_the_event_time_is_the_declared_columns(log: KafkaLog) -> None:
    spec = TopicSpec("events", value=(Column("AT", BIGINT),), timestamp=TimestampColumn("AT"))
    log.create_topic(spec)
    produced_by_others(log, "events", {"value": b'{"at":77}', "timestamp": 5}, {"value": b"{}", "timestamp": 6})
    assert [row["$time"] for row in rows(log, "events")] == [77, 6]


def test_the_time_zero_is_a_time(log: KafkaLog) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2, 3], time_=[0, 1, 2], headers_=[[("h", b"")], None, None])
    assert [(row["$time"], row["$headers"]) for row in rows(log, "plain")] == [(0, {"h": b""}), (1, None), (2, None)]


def test_somebody_elses_topic_is_raw_until_it_is_declared(log: KafkaLog) -> None:
    admin = AdminClient(log.connection.conf())
    theirs = NewTopic(log.kafka_name("theirs"), 2, 1, config={"retention.ms": "3600000", "cleanup.policy": "compact"})
    admin.create_topics([theirs])[log.kafka_name("theirs")].result(60)
    produced_by_others(log, "theirs", {"key": b"k", "value": b'{"n":5}', "partition": 1})
    found = log.topic("theirs").spec
    assert (found.kind, found.partitions) == ("raw", 2)
    assert (found.config.retention_ms, found.config.compacted) == (3_600_000, True)
    assert [(row["KEY"], row["VALUE"]) for row in rows(log, "theirs")] == [(b"k", b'{"n":5}')]
    spec = TopicSpec("theirs", key=(Column("K", VARCHAR),), value=(Column("N", BIGINT),), partitions=2)
    with pytest.raises(Conflict, match="2 partitions"):
        log.create_topic(replace(spec, partitions=3))
    log.create_topic(spec)
    assert [(row["K"], row["N"]) for row in rows(log, "theirs")] == [("k", 5)]


def test_the_configuration_is_kafkas(log: KafkaLog) -> None:
    log.create_topic(VIEWS)
    assert log.stats("pageviews").extra["config"]["retention.ms"] == "-1"
    log.alter_topic(replace(VIEWS, config=TopicConfig(60_000, 0, compacted=True, compression="zstd")))
    config = log.stats("pageviews").extra["config"]
    wanted = {"retention.ms": "60000", "cleanup.policy": "compact,delete", "compression.type": "zstd"}
    assert {name: config[name] for name in wanted} == wanted


def test_a_record_that_is_too_large_is_refused_before_anything_is_sent(log: KafkaLog) -> None:
    log.create_topic(VIEWS)
    with pytest.raises(TooLarge, match=r"max\.message\.bytes|larger"):
        put(log, "pageviews", 0, USERID=["a", "b"], PAGEID=["small", "x" * 3_000_000])
    assert rows(log, "pageviews") == []


def test_another_process_sees_topics_and_added_columns(kafka: str) -> None:
    prefix = f"two{uuid.uuid4().hex[:8]}."
    with open_kafka(kafka, prefix) as one, open_kafka(kafka, prefix) as other:
        one.create_topic(PLAIN)
        put(other, "plain", N=[1])
        one.alter_topic(replace(PLAIN, value=(*PLAIN.value, Column("S", VARCHAR))))
        put(other, "plain", N=[2], S=["two"])
        assert [(row["N"], row["S"]) for row in rows(one, "plain")] == [(1, None), (2, "two")]
