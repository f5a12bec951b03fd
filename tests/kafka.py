"""A real Kafka broker for the tests: one for all processes of a run, started when the first test asks for it."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import SystemClock
from headrace.config import KafkaSettings, LogSettings
from headrace.log.kafka import KafkaLog
from scripts.kafka import Cluster, make_nodes, quick_cluster
from tests.support import wait_for

ROOT = Path(__file__).parent.parent


def small_cluster(folder: Path, brokers: int = 1, **settings: str) -> Cluster:
    """Return a cluster of the test's own, with more settings (`_` stands for `.`)."""
    more = {name.replace("_", "."): value for name, value in settings.items()}
    return quick_cluster(folder, make_nodes(brokers), more)


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
def kafka(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of the broker that all processes of this run share. Never skipped: `make setup-tests` fetches
    it. An idle broker takes a tenth of a core, so there is only one; it ends with the run, however that ends."""
    worker = "PYTEST_XDIST_WORKER" in os.environ
    base, run = tmp_path_factory.getbasetemp(), os.getppid() if worker else os.getpid()
    folder = (base.parent if worker else base) / "kafka-of-this-run"
    folder.mkdir(exist_ok=True)
    said = folder / "said.log"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            command = [sys.executable, "-m", "scripts.kafka", "--quick", "--port", "0", "--data", str(folder)]
            with said.open("wb") as out:
                subprocess.Popen(
                    [*command, "--until-pid", str(run)], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out
                )
        wait_for(lambda: b"ready" in said.read_bytes() or "✗".encode() in said.read_bytes(), 60, "the Kafka broker")
    found = re.search(r"bootstrap = (\S+)", said.read_text())
    assert found is not None, said.read_text()
    return found.group(1)


def kafka_settings(bootstrap: str, prefix: str | None = None, **changes: Any) -> LogSettings:
    """A log of its own on the shared broker: every name gets its own prefix."""
    own = f"t{uuid.uuid4().hex[:10]}." if prefix is None else prefix
    given: dict[str, Any] = {"bootstrap": bootstrap, "prefix": own, "request_seconds": 20.0}
    kafka = KafkaSettings(**(given | changes))
    return LogSettings(backend="kafka", linger_ms=0.0, kafka=kafka)
