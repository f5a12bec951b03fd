"""What the tests of listeners and pullers share: they run in this process, or as real ones beside a real server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from headrace.clock import SystemClock
from headrace.collect.status import CollectorStatus
from headrace.config import load_project
from headrace.errors import NotRunning
from headrace.log.base import Log, TopicSpec
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC, create_dead_letters
from headrace.log.local.client import LocalClient
from headrace.server.listeners import Listeners
from headrace.types import TIMESTAMP, VARCHAR, Column
from tests.log.support import open_owner, rows
from tests.server.running import write_project
from tests.server.test_process import process
from tests.support import free_port, wait_for

SYSLOG = TopicSpec(
    "logs",
    key=(Column("HOST", VARCHAR),),
    value=(
        *tuple(Column(name, VARCHAR) for name in ("FACILITY", "SEVERITY", "APP", "PROCID", "MSGID", "MESSAGE")),
        Column("TIME", TIMESTAMP),
        Column("STRUCTURED_DATA", VARCHAR),
    ),
)
MESSAGES = TopicSpec("messages", value=(Column("MESSAGE", VARCHAR),))


class Listening:
    """Collectors that run in a thread of the test, on a log of the test's."""

    def __init__(self, folder: Path, log: Log, listeners: Listeners) -> None:
        self.folder, self.log, self._listeners = folder, log, listeners

    def write(self, name: str, text: str) -> None:
        file = self.folder / "collectors" / f"{name}.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def status(self, name: str) -> CollectorStatus:
        return {status.name: status for status in self._listeners.statuses()}[name]

    def wait_until(self, name: str, state: str = "running") -> CollectorStatus:
        wait_for(lambda: self.status(name).state == state, 30, f"`{name}` to be {state}")
        return self.status(name)

    def wait_rows(self, topic: str, count: int) -> list[dict[str, Any]]:
        try:
            wait_for(lambda: len(rows(self.log, topic)) >= count, 30, f"{count} rows of `{topic}`")
        except TimeoutError as error:
            raise AssertionError(f"{error}: {self._listeners.statuses()} {self.letters()}") from error
        return rows(self.log, topic)

    def letters(self) -> list[dict[str, Any]]:
        return rows(self.log, DEAD_LETTERS_TOPIC)


@contextmanager
def listening(folder: Path, collectors: Mapping[str, str], topics: Sequence[TopicSpec]) -> Iterator[Listening]:
    (folder / "headrace.toml").write_text("")
    log = open_owner(folder / "log")
    create_dead_letters(log)
    for topic in topics:
        log.create_topic(topic)
    project = load_project(folder)
    (folder / "collectors").mkdir(exist_ok=True)
    for name, text in collectors.items():
        (folder / "collectors" / f"{name}.toml").write_text(text)
    project.data.mkdir(exist_ok=True)
    try:
        with listeners_of(folder, log) as listeners:
            yield Listening(folder, log, listeners)
    finally:
        log.close()


@contextmanager
def listeners_of(folder: Path, log: Log) -> Iterator[Listeners]:
    """A project's listeners, in a thread of the test."""
    listeners = Listeners(load_project(folder), log, SystemClock())
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(listeners.run(stop)), name="listeners-under-test")
    thread.start()
    try:
        yield listeners
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(120)
        assert not thread.is_alive()
        loop.close()


class Processes:
    """A real server and real listeners, each of which can be killed and started again."""

    def __init__(self, folder: Path, sql: str, collectors: Mapping[str, str]) -> None:
        self.folder, self.port = write_project(folder, sql=sql), free_port()
        (folder / "collectors").mkdir()
        for name, text in collectors.items():
            (folder / "collectors" / f"{name}.toml").write_text(text)
        self._server = contextlib.ExitStack()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self.start_server()
        self.start_listeners()

    def start_server(self) -> None:
        self._server.close()
        self._children["server"] = self._server.enter_context(process(self.folder, self.port))

    def start_listeners(self) -> None:
        command = [sys.executable, "-m", "headrace.server.listeners", "--project", str(self.folder)]
        with (self.folder / "listeners.log").open("ab") as log:
            self._children["listeners"] = subprocess.Popen(command, stderr=log)

    def kill(self, name: str) -> None:
        child = self._children[name]
        os.kill(child.pid, signal.SIGKILL)
        child.wait()

    def wait_until(self, name: str, state: str = "running") -> None:
        """A collector says so of itself."""
        url = f"http://127.0.0.1:{self.port}/v1/collectors/{name}"
        wait_for(lambda: httpx.get(url, trust_env=False).json()["state"] == state, 60, f"`{name}` to be {state}")

    def column(self, topic: str, column: str) -> list[Any]:
        """All values of a column."""
        return [row[column] for row in self.rows(topic, [column])]

    def rows(self, topic: str, columns: list[str]) -> list[dict[str, Any]]:
        """Read from the log's files; nothing while the server is away."""
        try:
            log = LocalClient(load_project(self.folder).log_folder)
        except NotRunning:
            return []
        try:
            return rows(log, topic, columns)
        finally:
            log.close()

    def close(self) -> None:
        self._children["listeners"].terminate()
        try:
            self._children["listeners"].wait(120)
        except subprocess.TimeoutExpired:
            self.kill("listeners")
        self._server.close()


@contextmanager
def processes(folder: Path, sql: str, collectors: Mapping[str, str]) -> Iterator[Processes]:
    running = Processes(folder, sql, collectors)
    try:
        yield running
    finally:
        running.close()
