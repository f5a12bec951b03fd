"""`org.apache.flume.source.kafka.KafkaSource`: records of Kafka topics, in a consumer group."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from headrace.collect.agents.avro_event import Reader
from headrace.collect.agents.base import AgentError, Counters, Event, PollingSource
from headrace.collect.agents.interceptors import check_regex
from headrace.collect.agents.kafka_clients import client_conf, consume, make_client
from headrace.collect.agents.options import ComponentKind, Context, Option, Options
from headrace.collect.agents.texts import from_bytes
from headrace.errors import UsageError


class KafkaSource(PollingSource):
    """Offsets are committed when the channels have the records. An event's id is its place in Kafka."""

    def __init__(self, conf: dict[str, Any], topics: list[str], options: Options, counters: Counters) -> None:
        self._conf, self._topics, self._options, self._counters = conf, topics, options, counters
        self._consumer: Any = None
        self._messages: list[Any] = []

    def poll(self) -> list[Event]:
        if self._consumer is None:
            from confluent_kafka import Consumer

            self._consumer = make_client(Consumer, self._conf)
            self._consumer.subscribe(self._topics)
        if not self._messages:
            self._messages = self._consume()
        return [event for message in self._messages if (event := self._event(message)) is not None]

    def _consume(self) -> list[Any]:
        most, patience = self._options.integer("batchSize"), self._options.integer("batchDurationMillis") / 1000
        found: list[Any] = []
        deadline = time.monotonic() + patience
        while len(found) < most and (left := deadline - time.monotonic()) > 0:
            try:
                some = consume(self._consumer, most - len(found), min(left, 0.1 if found else 0.3), self._counters)
            except AgentError as error:
                if not found:
                    raise
                # What was read before it goes on: it is not read again.
                self._counters.failed("KafkaReadFail", error)
                break
            if not some and not found:
                break
            found += some
        return found

    def _event(self, message: Any) -> Event | None:
        body = message.value() or b""
        place = f"{message.topic()}-{message.partition()}@{message.offset()}"
        headers: dict[str, str] = {}
        if self._options.flag("useFlumeEventFormat"):
            try:
                inner = Reader(body).event()
            except UsageError as error:
                self._counters.failed("EventReadFail", error)
            else:
                body, headers = inner.body, dict(inner.headers)
                place = inner.id or place
        headers.setdefault("timestamp", str(message.timestamp()[1]))
        headers.setdefault("partition", str(message.partition()))
        headers.setdefault("offset", str(message.offset()))
        if message.key() is not None:
            headers["key"] = from_bytes(message.key())
        if self._options.flag("setTopicHeader"):
            headers.setdefault(self._options.text("topicHeader"), message.topic())
        return Event(body, headers, place, f"{message.topic()}:{message.partition()}:{message.offset()}")

    def taken(self) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        ends: dict[tuple[str, int], int] = {}
        for message in self._messages:
            place = (message.topic(), message.partition())
            ends[place] = max(ends.get(place, 0), message.offset() + 1)
        self._messages = []
        try:
            self._consumer.commit(
                offsets=[TopicPartition(*place, end) for place, end in ends.items()], asynchronous=False
            )
        except KafkaException as error:
            # The group may have moved on; whoever has the partition now reads them again, under the same ids.
            self._counters.failed("KafkaCommitFail", error)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def _make(context: Context) -> KafkaSource:
    options = context.options
    given = {"auto.offset.reset": "earliest"} | options.below("kafka.consumer.*")
    group = options.below("kafka.consumer.*").get("group.id", options.text("groupId"))
    conf = client_conf(options.text("kafka.bootstrap.servers"), given, group_id=group, enable_auto_commit=False)
    topics = list(options.words("kafka.topics"))
    if options.text("kafka.topics.regex"):
        topics = ["^" + options.text("kafka.topics.regex").removeprefix("^")]
    return KafkaSource(conf, topics, options, context.counters)


def _check(options: Options) -> Iterator[tuple[str, str, str | None]]:
    if not options.words("kafka.topics") and not options.text("kafka.topics.regex"):
        yield "kafka.topics", "`kafka.topics` or `kafka.topics.regex` is needed", "say which topics to read"
    yield from check_regex("kafka.topics.regex")(options)


KIND = ComponentKind(
    "source",
    ("kafka", "org.apache.flume.source.kafka.KafkaSource"),
    "Records of Kafka topics, in a consumer group.",
    _make,
    (
        Option("kafka.bootstrap.servers", "text", None, "Some brokers, `host:port` each.", required=True),
        Option("kafka.topics", "words", None, "Topics to read.", also=("topic",)),
        Option("kafka.topics.regex", "text", "", "Or those whose names match."),
        Option("groupId", "text", "flume", "The consumer group, if `kafka.consumer.group.id` does not say."),
        Option("batchSize", "integer", 1000, "Most records at once.", least=1),
        Option("batchDurationMillis", "integer", 1000, "How long a batch waits for more.", least=1),
        Option("useFlumeEventFormat", "flag", False, "Records are Flume events in Avro's form."),
        Option("setTopicHeader", "flag", True, "A header with the topic."),
        Option("topicHeader", "text", "topic", "Its name."),
        Option("kafka.consumer.*", "text", None, "Kafka's own consumer properties."),
        Option("zookeeperConnect", "text", "", "Accepted; Kafka needs no ZooKeeper any more."),
        Option("migrateZookeeperOffsets", "flag", True, "Accepted."),
    ),
    _check,
)
