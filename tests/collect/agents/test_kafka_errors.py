"""Errors that Kafka's client gives along with records, from librdkafka's own broker: no record is lost for them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.collect.agents.base import Event
from headrace.collect.agents.ports import Ports
from headrace.collect.agents.texts import to_bytes
from tests.collect.agents.making import Shelf, running
from tests.collect.agents.test_agent import flow
from tests.support import wait_for


class Cluster:
    """A broker within the process, and what fills it."""

    def __init__(self) -> None:
        self._producer: Any = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
        [broker] = self._producer.list_topics(timeout=30).brokers.values()
        self.bootstrap = f"{broker.host}:{broker.port}"

    def write(self, topic: str, count: int, **more: Any) -> None:
        for number in range(count):
            self._producer.produce(topic, b"%d" % number, **more)
        assert self._producer.flush(30) == 0

    def commit(self, group: str, *places: TopicPartition) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        consumer.commit(offsets=list(places), asynchronous=False)
        consumer.close()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def source(cluster: Cluster, topics: str, *more: str) -> str:
    lines = [f"kafka.bootstrap.servers = {cluster.bootstrap}", f"kafka.topics = {topics}", *more]
    return "\n".join(["type = org.apache.flume.source.kafka.KafkaSource", *lines])


def numbers(events: list[Event]) -> list[int]:
    return sorted(int(event.body) for event in events)


def test_the_end_of_a_partition_costs_the_source_nothing(cluster: Cluster) -> None:
    shelf = Shelf()
    cluster.write("t", 50, partition=0, key=b"\xff\x00")
    text = flow(source(cluster, "t", "kafka.consumer.enable.partition.eof = true"))
    with running(text, Ports(open_log=lambda: shelf)) as agent:
        wait_for(lambda: len(shelf.events) >= 50, 30, "the records")
    assert numbers(shelf.events) == list(range(50))
    assert {to_bytes(event.headers["key"]) for event in shelf.events} == {b"\xff\x00"}
    assert agent.counters["source", "r1"].last_error is None
    assert {event.place for event in shelf.events} == {f"t:0:{offset}" for offset in range(50)}


def test_a_partition_that_cannot_be_read_costs_the_others_nothing(cluster: Cluster) -> None:
    """It has no place to begin at, and is told not to look for one: an error among the other's records."""
    shelf, group = Shelf(), uuid.uuid4().hex
    cluster.write("t", 50, partition=0)
    cluster.write("t", 50, partition=1)
    cluster.commit(group, TopicPartition("t", 0, 0))
    more = ("kafka.consumer.auto.offset.reset = error", f"groupId = {group}", "batchDurationMillis = 3000")
    with running(flow(source(cluster, "t", *more)), Ports(open_log=lambda: shelf)) as agent:
        wait_for(lambda: len(shelf.events) >= 50, 30, "the records")
        counters = agent.counters["source", "r1"]
        wait_for(lambda: "no previously committed offset" in (counters.last_error or "").lower(), 30, "what is wrong")
    assert numbers(shelf.events) == list(range(50))


def test_the_end_of_a_partition_costs_a_channel_nothing(cluster: Cluster) -> None:
    shelf = Shelf()
    channel = f"type = org.apache.flume.channel.kafka.KafkaChannel\nkafka.bootstrap.servers = {cluster.bootstrap}\n"
    channel += "kafka.topic = c\nkafka.consumer.enable.partition.eof = true"
    text = flow("type = seq\ntotalEvents = 100\nbatchSize = 50", channel=channel)
    with running(text, Ports(open_log=lambda: shelf)):
        wait_for(lambda: len(shelf.events) >= 100, 60, "the events")
    assert numbers(shelf.events) == list(range(100))
