"""Kafka's Java properties, as Flume passes them on, in librdkafka's words."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import Any

from headrace.collect.agents.base import AgentError, Counters

logger = logging.getLogger("headrace.agent.kafka")

# What Java's client has and librdkafka needs not, or does by itself.
_LEFT_OUT = {
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
    "buffer.memory",
    "max.block.ms",
    "partitioner.class",
    "interceptor.classes",
    "metric.reporters",
    "max.poll.records",
    "fetch.max.wait.ms",
    "enable.auto.commit",
    "auto.commit.interval.ms",
}
_RENAMED = {
    "max.request.size": "message.max.bytes",
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.truststore.location": "ssl.ca.location",
}
PROBE_S = 3.0
REQUEST_S = 10.0


def client_conf(bootstrap: str, given: Mapping[str, str], **ours: Any) -> dict[str, Any]:
    conf: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 2, "logger": logger}
    for name, value in given.items():
        if name not in _LEFT_OUT:
            conf[_RENAMED.get(name, name)] = value
    return conf | {name.replace("_", "."): value for name, value in ours.items()}


def make_client(kind: Any, conf: Mapping[str, Any]) -> Any:
    from confluent_kafka import KafkaException

    try:
        return kind(dict(conf))
    except KafkaException as error:
        raise AgentError(f"Kafka's client refuses its settings: {error.args[0].str()}", hint="see `kafka.*`") from None


def answers(bootstrap: str) -> bool:
    """Whether anybody listens at one of the addresses."""
    for address in bootstrap.replace(" ", "").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), PROBE_S).close()
            return True
        except (OSError, ValueError):
            continue
    return False


def consume(consumer: Any, most: int, seconds: float, counters: Counters) -> list[Any]:
    """Up to so many records. The consumer has moved on behind whatever it gives, so an error that comes along with
    records is counted and said; `AgentError` only for one that comes alone."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        messages = consumer.consume(most, seconds)
    except KafkaException as error:
        raise AgentError(f"Kafka: {error.args[0].str()}") from error
    errors = [wrong for message in messages if (wrong := message.error()) is not None]
    # Whoever asks for them (`enable.partition.eof`) is told where partitions end: that is none.
    errors = [wrong for wrong in errors if wrong.code() != KafkaError._PARTITION_EOF]
    records = [message for message in messages if message.error() is None]
    if errors:
        problem = AgentError(f"Kafka: {errors[-1].str()}")
        if not records:
            raise problem
        counters.failed("KafkaReadFail", problem)
    return records


def partitions_of(client: Any, topic: str) -> int:
    """How many it has; none if it is not there. `AgentError` if nobody says."""
    from confluent_kafka import KafkaException

    try:
        # All of them: to ask for one by its name makes it, where brokers are told to.
        found = client.list_topics(timeout=REQUEST_S).topics.get(topic)
    except KafkaException as error:
        raise AgentError(f"topic `{topic}` of Kafka: {error.args[0].str()}") from None
    return 0 if found is None or found.error is not None else len(found.partitions)


def ensure_topic(client: Any, conf: Mapping[str, Any], topic: str) -> None:
    """Make it if it is not there, as brokers do that are told to. `AgentError` if it is not to be had."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    try:
        found = client.list_topics(topic, timeout=REQUEST_S).topics.get(topic)
        if found is not None and found.error is None:
            return
        names = ("bootstrap.servers", "security.protocol", "sasl.", "ssl.")
        admin = AdminClient({name: value for name, value in conf.items() if name.startswith(names)})
        # With as many partitions and copies as the brokers give by themselves.
        [made] = admin.create_topics([NewTopic(topic, num_partitions=-1, replication_factor=-1)]).values()
        made.result(REQUEST_S)
        client.list_topics(topic, timeout=REQUEST_S)
        logger.info("made topic `%s`", topic)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise AgentError(f"topic `{topic}` of Kafka: {error.args[0].str()}") from None
