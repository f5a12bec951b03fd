"""`org.apache.flume.sink.kafka.KafkaSink`: to Kafka; or, where nobody listens at the brokers' address, into the log.

Which of the two is decided once, when the sink starts: by `--brokers`, or, left to itself (`auto`), by whether
anything answers at `kafka.bootstrap.servers`. A sink that has ever reached Kafka stays with Kafka, also after a
restart while the brokers are away: events then wait in the channel. So an outage never sends some of them elsewhere.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headrace.collect.agents.avro_event import write_event
from headrace.collect.agents.base import AgentError, Counters, Event, Sink
from headrace.collect.agents.kafka_clients import answers, client_conf, ensure_topic, make_client
from headrace.collect.agents.options import ComponentKind, Context, Option, Options
from headrace.collect.agents.sinks.log import LogSink
from headrace.collect.agents.texts import to_bytes

logger = logging.getLogger("headrace.agent.kafka")

DELIVERY_S = 30.0
ID_HEADER = "headrace-id"


class KafkaSink(Sink):
    """At least once: a batch of which some failed is sent again as a whole."""

    def __init__(self, options: Options, counters: Counters, reached: Path | None = None) -> None:
        self._options, self._counters, self._reached = options, counters, reached
        self.batch_size = options.integer("flumeBatchSize")
        self._topic = options.text("kafka.topic")
        self._producer: Any = None
        self._conf: dict[str, Any] = {}
        self._topics: set[str] = set()
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
        topic, key = self._topic, event.headers.get("key")
        if options.flag("allowTopicOverride"):
            topic = event.headers.get(options.text("topicHeader"), topic)
        if topic not in self._topics:
            ensure_topic(producer, self._conf, topic)
            self._topics.add(topic)
        more: dict[str, Any] = {}
        partition = self._partition(event)
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

    def _partition(self, event: Event) -> int | None:
        name = self._options.text("partitionIdHeader")
        given = event.headers.get(name) if name else None
        if given is not None:
            try:
                return int(given)
            except ValueError:
                raise AgentError(f"header `{name}` is no partition: `{given[:40]}`") from None
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
        self.batch_size = context.options.integer("flumeBatchSize")

    def start(self) -> None:
        if self._chosen is None:
            self._chosen = self._choose()
        self._chosen.start()

    def _choose(self) -> Sink:
        context, options = self._context, self._context.options
        bootstrap = options.text("kafka.bootstrap.servers")
        if self._to_kafka(bootstrap):
            return KafkaSink(options, context.counters, self._reached)
        why = f"nobody answers at `{bootstrap}`" if bootstrap else "no brokers are named"
        logger.warning(
            "sink `%s`: %s; events go to topic `%s` of Headrace's log", context.name, why, options.text("kafka.topic")
        )
        header = options.text("topicHeader") if options.flag("allowTopicOverride") else ""
        return LogSink(options.text("kafka.topic"), self.batch_size, context.ports, context.counters, header)

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
        Option("defaultPartitionId", "integer", None, "Partition of all events; by key or at random without it."),
        Option("partitionIdHeader", "text", "", "A header with the event's partition."),
        Option("kafka.producer.*", "text", None, "Kafka's own producer properties."),
        Option("serializer.class", "text", "", "Accepted; bodies are bytes."),
    ),
    _check,
)
