"""A real Kafka broker for the tests: one for the whole run, started when the first test asks for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import SystemClock
from headrace.config import KafkaSettings, LogSettings
from headrace.log.kafka import KafkaLog
from scripts.kafka import QUICK, Cluster, make_nodes

SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")


def small_cluster(folder: Path, brokers: int = 1, **settings: str) -> Cluster:
    """For tests: small heaps, and nothing that lets one wait."""
    more = {name.replace("_", "."): value for name, value in settings.items()}
    return Cluster(folder, make_nodes(brokers), heap_mb=320, settings=QUICK | more, java_options=SMALL_JVM)


@contextmanager
def open_kafka(
    bootstrap: str, prefix: str | None = None, ids: Path | None = None, **changes: Any
) -> Iterator[KafkaLog]:
    log = KafkaLog(kafka_settings(bootstrap, prefix, **changes), SystemClock(), ids=ids)
    try:
        yield log
    finally:
        log.close()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the broker is. Never skipped: `make setup-tests` fetches it."""
    cluster = small_cluster(tmp_path_factory.mktemp("kafka"))
    cluster.start()
    yield cluster.bootstrap
    cluster.stop(kill=True)


def kafka_settings(bootstrap: str, prefix: str | None = None, **changes: Any) -> LogSettings:
    """A log of its own on the shared broker: every name gets its own prefix."""
    own = f"t{uuid.uuid4().hex[:10]}." if prefix is None else prefix
    given: dict[str, Any] = {"bootstrap": bootstrap, "prefix": own, "request_seconds": 20.0}
    kafka = KafkaSettings(**(given | changes))
    return LogSettings(backend="kafka", linger_ms=0.0, kafka=kafka)
