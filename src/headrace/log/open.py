"""The way to a project's log, wherever it is."""

from __future__ import annotations

from headrace.clock import Clock
from headrace.config import Project
from headrace.errors import ConfigError
from headrace.log.base import Log
from headrace.log.local import open_log as open_local_log
from headrace.log.registry.schemas import RegistrySchemas


def open_log(project: Project, clock: Clock) -> Log:
    """As `[log] backend` says. The local one is owned if nobody does, else its owner is talked to."""
    settings = project.settings.log
    match settings.backend:
        case "local":
            log: Log = open_local_log(project.log_folder, settings, clock)
        case "kafka":
            log = open_kafka_log(project, clock)
        case other:
            raise ConfigError(f"there is no log `{other}`", hint='`[log] backend` is "local" or "kafka"')
    log.schemas = RegistrySchemas.of_log(log)
    return log


def open_kafka_log(project: Project, clock: Clock) -> Log:
    try:
        # Only here, so that a project on the local log needs no Kafka client.
        from headrace.log.kafka import KafkaLog
    except ImportError as error:
        raise ConfigError("the Kafka client is not installed", hint="pip install 'headrace[kafka]'") from error
    return KafkaLog(project.settings.log, clock, ids=project.data / "ids")
