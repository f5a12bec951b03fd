"""A real server in a thread of the test: the log, the views and granian, all but Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from headrace.clock import Clock, SystemClock
from headrace.config import load_project
from headrace.server.assemble import open_services
from headrace.server.main import serve
from headrace.server.services import Services
from tests.support import free_port, wait_for

PAGEVIEWS = """
CREATE STREAM pageviews (userid VARCHAR KEY, pageid VARCHAR, viewtime TIMESTAMP)
  WITH (KAFKA_TOPIC='pageviews', VALUE_FORMAT='JSON', TIMESTAMP='viewtime', PARTITIONS=2);
CREATE TABLE users (id VARCHAR PRIMARY KEY, name VARCHAR, age INTEGER)
  WITH (KAFKA_TOPIC='users', VALUE_FORMAT='JSON', PARTITIONS=2);
"""


@dataclass(frozen=True, slots=True)
class Running:
    port: int
    services: Services
    http: httpx.Client

    def send(self, topic: str, body: Any, **options: Any) -> httpx.Response:
        """Send events; bytes go as they are, everything else as JSON."""
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        return self.http.post(f"/v1/topics/{topic}/events", **content, **options)

    def events(self, topic: str) -> list[dict[str, Any]]:
        """All records of a topic, oldest first."""
        found = self.http.get(f"/v1/topics/{topic}/events", params={"from": "oldest", "limit": 1000})
        assert found.status_code == 200, found.text
        events: list[dict[str, Any]] = found.json()["events"]
        return events

    def dead_letters(self, topic: str) -> list[dict[str, Any]]:
        """Newest first."""
        letters: list[dict[str, Any]] = self.http.get(f"/v1/topics/{topic}/dead-letters").json()["dead_letters"]
        return letters


def write_project(folder: Path, toml: str = "", sql: str = PAGEVIEWS) -> Path:
    (folder / "pipelines").mkdir(parents=True, exist_ok=True)
    (folder / "headrace.toml").write_text(toml)
    (folder / "pipelines" / "all.sql").write_text(sql)
    return folder


@contextmanager
def running_server(
    folder: Path, toml: str = "", sql: str = PAGEVIEWS, key: str | None = None, clock: Clock | None = None
) -> Iterator[Running]:
    project = load_project(write_project(folder, toml, sql))
    port = free_port()
    started, loops, failures = threading.Event(), [], []

    async def work() -> None:
        stop = asyncio.Event()
        with open_services(project, clock or SystemClock()) as services:
            loops.append((asyncio.get_running_loop(), stop, services))
            started.set()
            await serve(services, port, stop)

    def thread() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            failures.append(error)
            started.set()

    worker = threading.Thread(target=thread, name="server-under-test")
    worker.start()
    try:
        assert started.wait(120)
        if failures:
            raise failures[0]
        services = loops[0][2]
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as http:
            wait_for(lambda: http.get("/healthz").status_code == 200 and not services.applying, 30, "the server")
            yield Running(port, services, http)
    finally:
        if loops:
            loops[0][0].call_soon_threadsafe(loops[0][1].set)
        worker.join(120)
        assert not worker.is_alive()
