"""`org.apache.flume.sink.kafka.KafkaSink`: to Kafka; or, where nobody listens at the brokers' address, into the log.

Which of the two is decided once, when the sink starts: by `--brokers`, or, left to itself (`auto`), by whether
anything answers at `kafka.bootstrap.servers`. A sink that has ever reached Kafka stays with Kafka, also after a
restart while the brokers are away: events then wait in the channel. So an outage never sends some of them elsewhere.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from headrace.collect.agents.avro_event import write_event
from headrace.collect.agents.base import AgentError, Counters, Event, Sink
from headrace.collect.agents.kafka_clients import answers, client_conf, ensure_topic, make_client, partitions_of
from headrace.collect.agents.options import ComponentKind, Context, Option, Options
from headrace.collect.agents.ports import LogWriter
from headrace.collect.agents.sinks.header_topics import OPTION, HeaderTopics, header_topics, refusal
from headrace.collect.agents.sinks.log import LogSink
from headrace.collect.agents.texts import readable, to_bytes
from headrace.errors import Refused
from headrace.log.schema import is_topic_name

logger = logging.getLogger("headrace.agent.kafka")

Bury: TypeAlias = Callable[[str, Sequence[Event], str], None]
DELIVERY_S = 30.0
ID_HEADER = "headrace-id"


class KafkaSink(Sink):
    """At least once: a batch of which some failed is sent again as a whole."""

    def __init__(
        self, options: Options, counters: Counters, topics: HeaderTopics, reached: Path | None, bury: Bury | None
    ) -> None:
        """`bury` makes dead letters, where there is a log for them."""
        self._options, self._counters, self._reached = options, counters, reached
        self._header_topics, self._bury = topics, bury
        self.batch_size = options.integer("flumeBatchSize")
        self._topic = options.text("kafka.topic")
        self._producer: Any = None
        self._conf: dict[str, Any] = {}
        self._topics: dict[str, int] = {}
        """Those it has written to, and how many partitions they had."""
        self._failures: list[str] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        self._open()

    def _open(self) -> Any:
        if self._producer is None:
            from confluent_kafka import Producer

            given = {"delivery.timeout.ms": str(int(DELIVERY_S * 1000)), "acks": self._options.text("requiredAcks")}
            given |= self._options.below("kafka.producer.*")
            conf = client_conf(self._options.text("kafka.bootstrap.servers"), given)
            if str(conf["acks"]) in ("all", "-1"):
                conf.setdefault("enable.idempotence", True)
            self._conf, self._producer = conf, make_client(Producer, conf)
            self._counters.add("ConnectionCreatedCount")
        return self._producer

    def deliver(self, events: Sequence[Event]) -> None:
        producer = self._open()
        self._failures = []
        for event in events:
            self._produce(producer, event)
        left = producer.flush(DELIVERY_S + 5)
        if left:
            # They must not arrive behind our back while the channel has them again.
            producer.purge()
            producer.flush(1)
        if left or self._failures:
            reason = self._failures[0] if self._failures else "no answer"
            raise AgentError(f"Kafka did not take {left or len(self._failures)} of {len(events)} events: {reason}")
        if self._reached is not None:
            self._reached.parent.mkdir(parents=True, exist_ok=True)
            self._reached.write_text(self._options.text("kafka.bootstrap.servers"), encoding="utf-8")
            self._reached = None

    def _produce(self, producer: Any, event: Event) -> None:
        options = self._options
        from confluent_kafka import KafkaException

        topic, key = self._topic_of(producer, event), event.headers.get("key")
        more: dict[str, Any] = {}
        partition = self._partition(producer, topic, event)
        if partition is not None:
            more["partition"] = partition
        if key is not None:
            more["key"] = to_bytes(key)
        if event.id is not None:
            more["headers"] = [(ID_HEADER, event.id.encode())]
        body = write_event(event) if options.flag("useFlumeEventFormat") else event.body
        while True:
            try:
                producer.produce(topic, body, on_delivery=self._delivered, **more)
                return
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                self._refuse(event, error.args[0])
                return

    def _refuse(self, event: Event, why: Any) -> None:
        """One that is larger than a record may be would be so the next time, too."""
        from confluent_kafka import KafkaError

        if why.code() != KafkaError.MSG_SIZE_TOO_LARGE or self._bury is None:
            hint = "raise `kafka.producer.max.request.size`" if why.code() == KafkaError.MSG_SIZE_TOO_LARGE else None
            raise AgentError(f"Kafka's client refuses an event of {len(event.body)} bytes: {why.str()}", hint=hint)
        reason = f"the event is {len(event.body)} bytes, more than a record of Kafka may have"
        self._bury(self._topic, [event], reason)
        self._counters.failed("EventDeadLetterCount", AgentError(reason))

    # A header is a sender's word, and must not stop what others send. An event that asks for what cannot be goes where
    # it would have gone without that header, and is counted.

    def _topic_of(self, producer: Any, event: Event) -> str:
        topic = self._topic
        if self._options.flag("allowTopicOverride"):
            topic = event.headers.get(self._options.text("topicHeader"), topic)
        if topic != self._topic and topic not in self._topics:
            why = self._why_not(producer, topic)
            if why is not None:
                problem = refusal(self._options.text("topicHeader"), topic, why)
                self._counters.failed("EventTopicRefusedCount", AgentError(problem))
                topic = self._topic
        if topic not in self._topics:
            ensure_topic(producer, self._conf, topic)
            self._topics[topic] = partitions_of(producer, topic)
        return topic

    def _why_not(self, producer: Any, topic: str) -> str | None:
        if not is_topic_name(topic):
            return "that is not a topic name"
        if topic.startswith("_"):
            return "names that begin so are Kafka's own, and Headrace's"
        if partitions_of(producer, topic):
            return None
        try:
            self._header_topics.check_room()
        except Refused as error:
            return error.message
        ensure_topic(producer, self._conf, topic)
        self._header_topics.add(topic)
        return None

    def _partition(self, producer: Any, topic: str, event: Event) -> int | None:
        name = self._options.text("partitionIdHeader")
        given = event.headers.get(name) if name else None
        if given is not None:
            number = int(given) if given.isascii() and given.isdecimal() and len(given) < 10 else -1
            if number >= self._topics[topic]:
                # It may have more by now.
                self._topics[topic] = partitions_of(producer, topic)
            if 0 <= number < self._topics[topic]:
                return number
            problem = f"header `{name}` is no partition of `{topic}`: `{readable(given)[:40]}`"
            self._counters.failed("EventPartitionRefusedCount", AgentError(problem))
        default = self._options["defaultPartitionId"]
        return None if default is None else int(default)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            with self._lock:
                self._failures.append(error.str())

    def close(self) -> None:
        if self._producer is not None:
            self._producer.flush(5)
            self._producer = None
            self._counters.add("ConnectionClosedCount")


class KafkaOrLogSink(Sink):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._reached = context.ports.home(context.agent) / f"kafka-{context.agent}-{context.name}.reached"
        self._chosen: Sink | None = None
        self._letters: LogWriter | None = None
        self.batch_size = context.options.integer("flumeBatchSize")

    def start(self) -> None:
        if self._chosen is None:
            self._chosen = self._choose()
        self._chosen.start()

    def _choose(self) -> Sink:
        context, options = self._context, self._context.options
        bootstrap = options.text("kafka.bootstrap.servers")
        if self._to_kafka(bootstrap):
            bury = None if context.ports.open_log is None else self._bury
            return KafkaSink(options, context.counters, header_topics(context), self._reached, bury)
        why = f"nobody answers at `{bootstrap}`" if bootstrap else "no brokers are named"
        logger.warning(
            "sink `%s`: %s; events go to topic `%s` of Headrace's log", context.name, why, options.text("kafka.topic")
        )
        header = options.text("topicHeader") if options.flag("allowTopicOverride") else ""
        topic, topics = options.text("kafka.topic"), header_topics(context)
        return LogSink(topic, self.batch_size, context.ports, context.counters, header, topics)

    def _bury(self, topic: str, events: Sequence[Event], reason: str) -> None:
        """The log is opened only when it is needed: a command that does so owns it."""
        open_log = self._context.ports.open_log
        assert open_log is not None
        if self._letters is None:
            self._letters = open_log()
        self._letters.bury(topic, events, reason)

    def _to_kafka(self, bootstrap: str) -> bool:
        ports = self._context.ports
        if ports.brokers != "auto":
            return ports.brokers == "kafka"
        if ports.open_log is None:
            return True
        return bool(bootstrap) and (self._has_reached(bootstrap) or answers(bootstrap))

    def _has_reached(self, bootstrap: str) -> bool:
        """These brokers: others are another decision."""
        try:
            return self._reached.read_text(encoding="utf-8") == bootstrap
        except FileNotFoundError:
            return False

    def deliver(self, events: Sequence[Event]) -> None:
        assert self._chosen is not None
        self._chosen.deliver(events)

    def close(self) -> None:
        if self._chosen is not None:
            self._chosen.close()
        if self._letters is not None:
            self._letters.close()
            self._letters = None


def _check(options: Options) -> Iterator[tuple[str, str, str | None]]:
    if options.text("requiredAcks") not in ("0", "1", "-1", "all"):
        yield "requiredAcks", "`requiredAcks` must be 0, 1 or -1", "-1 waits for all in-sync replicas"


KIND = ComponentKind(
    "sink",
    ("kafka", "org.apache.flume.sink.kafka.KafkaSink"),
    "To a topic of Kafka; of the log, where no broker answers.",
    KafkaOrLogSink,
    (
        Option("kafka.bootstrap.servers", "text", "", "Some brokers, `host:port` each.", also=("brokerList",)),
        Option("kafka.topic", "text", "default-flume-topic", "The topic.", also=("topic",)),
        Option(
            "flumeBatchSize",
            "integer",
            100,
            "Most events at once.",
            least=1,
            also=("batchSize", "kafka.flumeBatchSize"),
        ),
        Option("requiredAcks", "text", "1", "As Kafka's `acks`, if `kafka.producer.acks` does not say."),
        Option("useFlumeEventFormat", "flag", False, "Write events with their headers, in Avro's form."),
        Option("allowTopicOverride", "flag", True, "An event's own header may name another topic."),
        Option("topicHeader", "text", "topic", "That header."),
        OPTION,
        Option("defaultPartitionId", "integer", None, "Partition of all events; by key or at random without it."),
        Option("partitionIdHeader", "text", "", "A header with the event's partition."),
        Option("kafka.producer.*", "text", None, "Kafka's own producer properties."),
        Option("serializer.class", "text", "", "Accepted; bodies are bytes."),
    ),
    _check,
)
