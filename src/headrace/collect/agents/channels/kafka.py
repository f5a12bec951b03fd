"""`org.apache.flume.channel.kafka.KafkaChannel`: events wait in a Kafka topic."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from headrace.collect.agents.avro_event import Reader, write_event
from headrace.collect.agents.base import AgentError, Channel, Counters, Event, Transaction
from headrace.collect.agents.kafka_clients import client_conf, consume, ensure_topic, make_client
from headrace.collect.agents.options import ComponentKind, Context, Option, Options
from headrace.errors import UsageError

DELIVERY_S = 30.0


class KafkaChannel(Channel):
    """Each thread that takes has a consumer of its own, so that what one gives back is no other's business."""

    transaction_capacity = 2**31
    name: str

    def __init__(self, name: str, options: Options, counters: Counters) -> None:
        self.name, self.options, self.counters = name, options, counters
        self._bootstrap, self.topic = options.text("kafka.bootstrap.servers"), options.text("kafka.topic")
        self._producer: Any = None
        self._lock = threading.Lock()
        self._own = threading.local()
        self._consumers: list[Any] = []
        self._size = 0

    def transaction(self) -> Transaction:
        return KafkaTransaction(self)

    def size(self) -> int:
        return max(0, self._size)

    def capacity(self) -> int:
        return 2**31

    def count(self, change: int) -> None:
        with self._lock:
            self._size += change

    def producer(self) -> Any:
        from confluent_kafka import Producer

        with self._lock:
            if self._producer is None:
                given = {"acks": "all", "delivery.timeout.ms": str(int(DELIVERY_S * 1000))}
                conf = client_conf(self._bootstrap, given | self.options.below("kafka.producer.*"))
                producer = make_client(Producer, conf)
                ensure_topic(producer, conf, self.topic)
                self._producer = producer
            return self._producer

    def consumer(self) -> Taker:
        found: Taker | None = getattr(self._own, "taker", None)
        if found is None:
            from confluent_kafka import Consumer

            given = {"auto.offset.reset": "earliest"} | self.options.below("kafka.consumer.*")
            given.setdefault("group.id", self.options.text("groupId"))
            consumer = make_client(Consumer, client_conf(self._bootstrap, given, enable_auto_commit=False))
            consumer.subscribe([self.topic])
            found = self._own.taker = Taker(consumer)
            with self._lock:
                self._consumers.append(consumer)
        return found

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()
        if self._producer is not None:
            self._producer.flush(5)


class Taker:
    """A consumer, and what was given back to it."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.back: list[Any] = []


class KafkaTransaction(Transaction):
    def __init__(self, channel: KafkaChannel) -> None:
        self._channel = channel
        self._put: list[Event] = []
        self._taken: list[Any] = []
        self._failures: list[str] = []

    def put(self, events: Sequence[Event]) -> None:
        self._channel.counters.add("EventPutAttemptCount", len(events))
        self._put += events

    def take(self, most: int) -> list[Event]:
        channel = self._channel
        channel.counters.add("EventTakeAttemptCount")
        taker = channel.consumer()
        found, taker.back = taker.back[:most], taker.back[most:]
        if not found:
            found = consume(taker.consumer, most, channel.options.integer("pollTimeout") / 1000, channel.counters)
        self._taken += found
        return [self._event(message) for message in found]

    def _event(self, message: Any) -> Event:
        place = f"{message.topic()}-{message.partition()}@{message.offset()}"
        body = message.value() or b""
        if not self._channel.options.flag("parseAsFlumeEvent"):
            return Event(body, {}, place)
        try:
            event = Reader(body).event()
        except UsageError:
            self._channel.counters.add("EventsDamagedCount")
            return Event(body, {}, place)
        return event if event.id is not None else Event(event.body, event.headers, place)

    def commit(self) -> None:
        channel = self._channel
        if self._put:
            self._produce(channel.producer())
            channel.counters.add("EventPutSuccessCount", len(self._put))
            channel.count(len(self._put))
            self._put = []
        if self._taken:
            self._commit_offsets(channel.consumer().consumer)
            channel.counters.add("EventTakeSuccessCount", len(self._taken))
            channel.count(-len(self._taken))
            self._taken = []

    def _produce(self, producer: Any) -> None:
        from confluent_kafka import KafkaException

        plain = not self._channel.options.flag("parseAsFlumeEvent")
        self._failures = []
        for event in self._put:
            body = event.body if plain else write_event(event)
            while True:
                try:
                    producer.produce(self._channel.topic, body, on_delivery=self._delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
                except KafkaException as error:
                    raise AgentError(f"channel `{self._channel.name}`: {error.args[0].str()}") from None
        left = producer.flush(DELIVERY_S + 5)
        if left or self._failures:
            reason = self._failures[0] if self._failures else "no answer"
            raise AgentError(f"channel `{self._channel.name}`: Kafka did not take the events: {reason}")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(error.str())

    def _commit_offsets(self, consumer: Any) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        ends: dict[int, int] = {}
        for message in self._taken:
            ends[message.partition()] = max(ends.get(message.partition(), 0), message.offset() + 1)
        offsets = [TopicPartition(self._channel.topic, partition, end) for partition, end in ends.items()]
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # Delivered, but not remembered: it comes again, under the same ids.
            self._channel.counters.failed("KafkaCommitFail", error)

    def rollback(self) -> None:
        if self._taken:
            taker = self._channel.consumer()
            taker.back = self._taken + taker.back
        self._put, self._taken = [], []


KIND = ComponentKind(
    "channel",
    ("kafka", "org.apache.flume.channel.kafka.KafkaChannel"),
    "Events wait in a Kafka topic.",
    lambda context: _make(context),
    (
        Option(
            "kafka.bootstrap.servers",
            "text",
            None,
            "Some brokers, `host:port` each.",
            required=True,
            also=("brokerList",),
        ),
        Option("kafka.topic", "text", "flume-channel", "The topic.", also=("topic",)),
        Option("groupId", "text", "flume", "The consumer group, if `kafka.consumer.group.id` does not say."),
        Option("parseAsFlumeEvent", "flag", True, "Records are Flume events in Avro's form; otherwise bodies."),
        Option("pollTimeout", "integer", 500, "Milliseconds that a take waits.", least=1),
        Option("kafka.producer.*", "text", None, "Kafka's own producer properties."),
        Option("kafka.consumer.*", "text", None, "Kafka's own consumer properties."),
        Option("zookeeperConnect", "text", "", "Accepted; Kafka needs no ZooKeeper any more."),
    ),
)


def _make(context: Context) -> KafkaChannel:
    return KafkaChannel(context.name, context.options, context.counters)
