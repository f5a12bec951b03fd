"""Real clients of listeners and pullers, with the server killed and started again, then the collectors: each event
once. One pair of processes for all of them."""

from __future__ import annotations

import logging
import logging.handlers
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.collect.brokers import Publisher, is_listening, mosquitto, rsyslog
from tests.collect.listeners import Processes, processes
from tests.support import free_port, wait_for

pytestmark = pytest.mark.slow

SQL = """
CREATE STREAM once (device VARCHAR KEY, n BIGINT) WITH (KAFKA_TOPIC='once', VALUE_FORMAT='JSON');
CREATE STREAM twice (device VARCHAR KEY, n BIGINT) WITH (KAFKA_TOPIC='twice', VALUE_FORMAT='JSON');
CREATE STREAM tailed (message VARCHAR) WITH (KAFKA_TOPIC='tailed', VALUE_FORMAT='JSON');
CREATE STREAM logs (host VARCHAR KEY, facility VARCHAR, severity VARCHAR, time TIMESTAMP, app VARCHAR, procid VARCHAR,
  msgid VARCHAR, structured_data VARCHAR, message VARCHAR) WITH (KAFKA_TOPIC='logs', VALUE_FORMAT='JSON');
"""
STEP = 200
"""Messages of each between two kills."""


class Senders:
    """Everybody sends the same numbers."""

    def __init__(self, folder: Path, broker: int, port: int, door: Path) -> None:
        self._file, self._port, self._door = folder / "app.log", port, door
        self._publisher = Publisher(broker)
        self._handler: logging.handlers.SysLogHandler | None = None

    def queue(self, numbers: range) -> None:
        """To those who keep what they have until it is taken: the broker, rsyslog's queue on disk, a file."""
        self._publisher.publish(numbers, 1, "one")
        self._publisher.publish(numbers, 2, "two")
        with self._file.open("a") as file:
            file.writelines(f"{number}\n" for number in numbers)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.connect(str(self._door))
            for number in numbers:
                to.send(b"<13>forwarded: %d" % number)

    def say(self, numbers: range) -> None:
        """Over connections that stay open while the server is away."""
        if self._handler is None:
            address = ("127.0.0.1", self._port)
            self._handler = logging.handlers.SysLogHandler(address, socktype=socket.SOCK_STREAM)
        for number in numbers:
            self._handler.emit(logging.LogRecord("x", logging.INFO, "f", 1, "python: %d", (number,), None))
        found = shutil.which("logger")
        assert found is not None
        command = [found, "--server", "127.0.0.1", "--port", str(self._port), "--tcp", "-t", "logger"]
        text = "".join(f"{number}\n" for number in numbers)
        subprocess.run(command, input=text, text=True, check=True, timeout=60)

    def close(self) -> None:
        self._publisher.close()
        if self._handler is not None:
            self._handler.close()


def collectors(broker: int, port: int) -> dict[str, str]:
    mqtt = 'type = "mqtt"\nurl = "mqtt://127.0.0.1:{}"\ntopic = "{}"\nqos = {}\ntopics = ["plant/{}/n"]'
    return {
        "once": mqtt.format(broker, "once", 1, "one"),
        "twice": mqtt.format(broker, "twice", 2, "two"),
        "tailed": 'type = "file"\ntopic = "tailed"\npath = "app.log*"',
        "logs": f'type = "syslog"\ntopic = "logs"\nlisten = ["tcp://127.0.0.1:{port}"]',
    }


def has(running: Processes, app: str, numbers: range) -> bool:
    """Whether exactly these are there of one sender."""
    said = [row["MESSAGE"] for row in running.rows("logs", ["APP", "MESSAGE"]) if row["APP"] == app]
    found = sorted(int(message) for message in said)
    assert len(found) == len(set(found)), f"{app}: some are there twice"
    return found == list(numbers)


def test_each_event_is_there_once(tmp_path: Path) -> None:
    port = free_port()
    with (
        mosquitto(tmp_path) as (broker, _),
        rsyslog(tmp_path, port) as (door, _),
        processes(tmp_path, SQL, collectors(broker, port)) as running,
    ):
        for name in ("once", "twice", "tailed", "logs"):
            running.wait_until(name)
        senders = Senders(tmp_path, broker, port, door)
        senders.queue(range(STEP))
        senders.say(range(STEP))
        running.kill("server")
        senders.queue(range(STEP, 2 * STEP))
        senders.say(range(STEP, 2 * STEP))
        running.start_server()
        for app in ("forwarded", "python", "logger"):
            wait_for(lambda app=app: has(running, app, range(2 * STEP)), 30, f"what {app} sent")  # type: ignore[misc]
        # Killed themselves, they lose what a connection has on its way, so only what can be asked again is sent.
        running.kill("listeners")
        senders.queue(range(2 * STEP, 3 * STEP))
        senders.close()
        running.start_listeners()
        wait_for(lambda: is_listening(port), 30, "the listeners")
        wanted = list(range(3 * STEP))
        for topic in ("once", "twice"):
            wait_for(lambda topic=topic: len(running.column(topic, "N")) >= len(wanted), 30, topic)  # type: ignore[misc]
            assert sorted(running.column(topic, "N")) == wanted
        wait_for(lambda: len(running.column("tailed", "MESSAGE")) >= len(wanted), 30, "the file")
        assert [int(line) for line in running.column("tailed", "MESSAGE")] == wanted
        wait_for(lambda: has(running, "forwarded", range(3 * STEP)), 30, "what rsyslog kept")
