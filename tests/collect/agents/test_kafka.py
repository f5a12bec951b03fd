"""Against a real Kafka: the decks' configuration as it stands, the source, and the channel."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from headrace.collect.agents.kafka_clients import ensure_topic
from headrace.collect.agents.ports import Ports
from tests.collect.agents.making import Shelf, local_log, log_ports, running, values
from tests.collect.agents.test_agent import flow
from tests.support import wait_for

pytestmark = pytest.mark.slow

DECK = Path(__file__).with_name("deck.properties")


def read_topic(bootstrap: str, topic: str, count: int) -> list[bytes]:
    conf = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer(conf)
    consumer.subscribe([topic])
    found: list[bytes] = []

    def enough() -> bool:
        found.extend(message.value() for message in consumer.consume(1000, 0.5) if message.error() is None)
        return len(found) >= count

    try:
        wait_for(enough, 60, f"{count} records")
    finally:
        consumer.close()
    return found


def test_the_decks_configuration_into_kafka(kafka: str, tmp_path: Path) -> None:
    topic = f"mytopic-{uuid.uuid4().hex[:8]}"
    # The deck's words but for the broker's port and the name of the topic: both are this run's own.
    text = DECK.read_text().replace("localhost:9092", kafka).replace("mytopic", topic)
    with local_log(tmp_path / "log") as log:
        ports = log_ports(log, tmp_path)
        with running(text, ports) as agent:
            wait_for(lambda: agent.counters["sink", "k1"].read()["EventDrainSuccessCount"] > 300, 60, "events")
        sent = agent.counters["sink", "k1"].read()["EventDrainSuccessCount"]
        assert sorted(map(int, read_topic(kafka, topic, sent))) == list(range(sent))
        assert values(log, topic) == []
        # It has reached Kafka once: an outage does not send anything elsewhere.
        [reached] = (tmp_path / "a1").glob("*.reached")
        assert reached.read_text() == kafka
        reached.write_text("localhost:1")
        text = text.replace(kafka, "localhost:1")
        with running(text, ports) as agent:
            wait_for(lambda: agent.channels["c1"].size() > 0, 30, "events that wait")
            agent._sinks_stop.set()
        assert values(log, topic) == []


def test_from_kafka_each_record_once(kafka: str, tmp_path: Path) -> None:
    topic = f"in-{uuid.uuid4().hex[:8]}"
    conf = {"bootstrap.servers": kafka}
    producer: Any = Producer(conf)
    ensure_topic(producer, conf, topic)
    for number in range(200):
        producer.produce(topic, str(number).encode(), key=b"k%d" % (number % 3))
    assert producer.flush(60) == 0
    source = (
        f"type = org.apache.flume.source.kafka.KafkaSource\nkafka.bootstrap.servers = {kafka}\nkafka.topics = {topic}\n"
    )
    with local_log(tmp_path / "log") as log:
        for group in ("first", "second"):
            # Another group reads everything again: the ids are Kafka's places, so the log has it all already.
            text = flow(source + f"batchSize = 50\nkafka.consumer.group.id = {group}-{topic}")
            with running(text, log_ports(log, tmp_path)) as agent:
                wait_for(lambda: agent.counters["sink", "k1"].read()["EventDrainSuccessCount"] >= 200, 60, "events")
        assert sorted(int(value) for value in values(log, "t")) == list(range(200))
        assert agent.counters["sink", "k1"].read()["EventDuplicateCount"] == 200


def test_a_channel_in_kafka_gives_back_what_was_not_delivered(kafka: str) -> None:
    shelf = Shelf()
    shelf.broken.set()
    topic = f"channel-{uuid.uuid4().hex[:8]}"
    channel = f"type = org.apache.flume.channel.kafka.KafkaChannel\nkafka.bootstrap.servers = {kafka}\n"
    channel += f"kafka.topic = {topic}\n"
    text = flow("type = seq\ntotalEvents = 100\nbatchSize = 50", channel=channel + f"kafka.consumer.group.id = {topic}")
    with running(text, Ports(open_log=lambda: shelf)) as agent:
        wait_for(lambda: agent.counters["sink", "k1"].read()["EventWriteFail"] >= 1, 60, "a failure")
        shelf.broken.clear()
        wait_for(lambda: len(shelf.events) >= 100, 60, "the events")
    assert sorted(int(event.body) for event in shelf.events) == list(range(100))
