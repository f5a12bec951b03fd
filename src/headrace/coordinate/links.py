"""What connects the engine with the log and with the server: the owner's socket, or Kafka and a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.clock import Clock
from headrace.config import Project
from headrace.coordinate.reports import REPORT_FILE, write_report
from headrace.coordinate.status import ENGINE_STATUS
from headrace.errors import NotRunning
from headrace.log.base import Log
from headrace.log.local.open import LocalClient
from headrace.log.open import open_log

if TYPE_CHECKING:
    from headrace.process.kafka.place import KafkaPlace

PROBE_S = 2.0


class Link(ABC):
    name: str
    """What is being waited for, in words."""

    @abstractmethod
    def connect(self) -> Log:
        """An error if it is not there; asked again then. Returns within a few seconds."""

    @abstractmethod
    def report(self, body: Any) -> None:
        """Tell the server."""

    @abstractmethod
    def where(self, log: Log) -> Path | KafkaPlace:
        """The log as Spark finds it."""


class OwnerLink(Link):
    name = "the log"

    def __init__(self, project: Project) -> None:
        self._folder = project.log_folder
        self._client: LocalClient | None = None

    def connect(self) -> Log:
        self._client = LocalClient(self._folder)
        return self._client

    def report(self, body: Any) -> None:
        if self._client is not None:
            self._client.call(ENGINE_STATUS, body)

    def where(self, log: Log) -> Path:
        return self._folder


class KafkaLink(Link):
    def __init__(self, project: Project, clock: Clock) -> None:
        from headrace.process.kafka.jars import require_kafka_jars

        require_kafka_jars()
        self._project, self._clock = project, clock
        self._file = project.data / REPORT_FILE
        self.name = f"Kafka at {project.settings.log.kafka.bootstrap}"

    def connect(self) -> Log:
        if not is_there(self._project):
            raise NotRunning(f"{self.name} does not answer")
        return open_log(self._project, self._clock)

    def report(self, body: Any) -> None:
        write_report(self._file, body)

    def where(self, log: Log) -> KafkaPlace:
        from headrace.log.kafka import KafkaLog
        from headrace.process.kafka.place import KafkaPlace

        assert isinstance(log, KafkaLog)
        return KafkaPlace(log)


def is_there(project: Project, seconds: float = PROBE_S) -> bool:
    """Does a broker answer? Opening the log would wait for one as long as a request may take."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from headrace.log.kafka.client import Connection

    try:
        connection = Connection(project.settings.log.kafka)
        return bool(AdminClient(connection.conf()).list_topics(timeout=seconds).brokers)
    except KafkaException:
        return False


def link_to(project: Project, clock: Clock) -> Link:
    return KafkaLink(project, clock) if project.settings.log.backend == "kafka" else OwnerLink(project)
