"""The log on a Kafka cluster."""

from headrace.log.kafka.log import KafkaLog

__all__ = ["KafkaLog"]
