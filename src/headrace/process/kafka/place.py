"""Where a log on Kafka is, for Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headrace.config import KafkaSettings
from headrace.log.base import TopicSpec
from headrace.log.kafka import KafkaLog
from headrace.process.kafka.decode import Decoding
from headrace.process.kafka.schemas import worker_schemas

SOURCE = "headrace-kafka"
MAX_ROWS = 500_000
"""Most records of a batch: what a batch gives passes through the driver's memory."""
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """`log` is how the driver writes and looks; Spark itself reads as `options` say."""

    log: KafkaLog

    @property
    def settings(self) -> KafkaSettings:
        return self.log.settings.kafka

    def options(self, topic: str) -> dict[str, str]:
        """Of Spark's source, for one topic."""
        found = self.log.topic(topic)
        fork = {
            "forkOf": self.log.kafka_name(found.fork_of),
            "forkAt": json.dumps({str(number): at for number, at in enumerate(found.fork_at)}),
        }
        return (
            (fork if found.fork_of else {})
            | {
                "subscribe": self.log.kafka_name(topic),
                "includeHeaders": "true",
                # Only what is committed, as everybody else reads it.
                "kafka.isolation.level": "read_committed",
                # A topic that lost records is an error that says so, not a result that is quietly smaller.
                "failOnDataLoss": "true",
            }
            | {f"kafka.{name}": value for name, value in java_properties(self.settings, self.password()).items()}
        )

    def decoding(self, topic: TopicSpec, box: Any = None) -> Decoding:
        """`box` is the query's, for what cannot be decoded."""
        return Decoding(worker_schemas(self.log, self.password(), topic), box)

    def password(self) -> str:
        conf: dict[str, Any] = self.log.connection.conf()
        return str(conf.get("sasl.password", ""))


def java_properties(settings: KafkaSettings, password: str) -> dict[str, str]:
    """What `[log.kafka]` says, in the words of Kafka's Java clients, which differ from librdkafka's."""
    found = {"bootstrap.servers": settings.bootstrap}
    transport = "SSL" if settings.tls else "PLAINTEXT"
    if settings.tls or settings.sasl:
        found["security.protocol"] = f"SASL_{transport}" if settings.sasl else transport
    if settings.tls_ca:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": settings.tls_ca}
    if settings.tls_cert and settings.tls_key:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _text(settings.tls_cert),
            "ssl.keystore.key": _text(settings.tls_key),
        }
    if settings.sasl:
        module = _LOGIN.get(settings.sasl.upper(), _LOGIN["PLAIN"])
        login = f'{module} required username="{_quoted(settings.user)}" password="{_quoted(password)}";'
        found |= {"sasl.mechanism": settings.sasl.upper(), "sasl.jaas.config": login}
    return found


def _text(file: str) -> str:
    with open(file, encoding="utf-8") as stream:
        return stream.read()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
