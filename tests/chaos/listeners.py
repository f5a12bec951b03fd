"""Real clients of listeners and pullers, while the server and the collectors' process are killed under them, in turns:
each event once.

    python -m tests.chaos.listeners --rounds 20 --step 1000 --seed 1

rsyslog (TCP, out of its queue on disk), Python's SysLogHandler, `logger`, paho-mqtt over mosquitto with QoS 1 and 2,
and a file that grows and is rotated. What can be asked again is sent while anybody is killed; over plain TCP nothing
can, so that is sent while the server is, and everything has arrived before the collectors are.
"""

from __future__ import annotations

import argparse
import logging
import logging.handlers
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.collect.brokers import Publisher, is_listening, mosquitto, rsyslog
from tests.collect.listeners import Processes, processes
from tests.support import free_port, let_pass, wait_for

SQL = """
CREATE STREAM once (device VARCHAR KEY, n BIGINT) WITH (KAFKA_TOPIC='once', VALUE_FORMAT='JSON');
CREATE STREAM twice (device VARCHAR KEY, n BIGINT) WITH (KAFKA_TOPIC='twice', VALUE_FORMAT='JSON');
CREATE STREAM tailed (message VARCHAR) WITH (KAFKA_TOPIC='tailed', VALUE_FORMAT='JSON');
CREATE STREAM logs (host VARCHAR KEY, facility VARCHAR, severity VARCHAR, time TIMESTAMP, app VARCHAR, procid VARCHAR,
  msgid VARCHAR, structured_data VARCHAR, message VARCHAR) WITH (KAFKA_TOPIC='logs', VALUE_FORMAT='JSON');
"""
TALKERS = ("forwarded", "python", "logger")


class Senders:
    """Everybody sends the same numbers."""

    def __init__(self, folder: Path, broker: int, port: int, door: Path) -> None:
        self._file, self._port, self._door = folder / "app.log", port, door
        self._publisher = Publisher(broker)
        self._handler: logging.handlers.SysLogHandler | None = None
        self._rotated = 0

    def publish(self, numbers: range) -> None:
        """To those who keep what they have until it is taken: the broker, and a file."""
        self._publisher.publish(numbers, 1, "one")
        with self._file.open("a") as file:
            file.writelines(f"{number}\n" for number in numbers)
        self._publisher.publish(numbers, 2, "two")

    def rotate(self) -> None:
        self._rotated += 1
        self._file.rename(self._file.with_suffix(f".log.{self._rotated}"))

    def talk(self, numbers: range) -> None:
        """Over TCP: out of rsyslog's queue, over one connection, and over a new one."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.connect(str(self._door))
            for number in numbers:
                to.send(b"<13>forwarded: %d" % number)
        if self._handler is None:
            address = ("127.0.0.1", self._port)
            self._handler = logging.handlers.SysLogHandler(address, socktype=socket.SOCK_STREAM)
        for number in numbers:
            self._handler.emit(logging.LogRecord("x", logging.INFO, "f", 1, "python: %d", (number,), None))
        found = shutil.which("logger")
        assert found is not None
        command = [found, "--server", "127.0.0.1", "--port", str(self._port), "--tcp", "-t", "logger"]
        text = "".join(f"{number}\n" for number in numbers)
        subprocess.run(command, input=text, text=True, check=True, timeout=240)

    def send(self, numbers: range) -> None:
        self.publish(numbers)
        self.talk(numbers)

    def hang_up(self) -> None:
        if self._handler is not None:
            self._handler.close()
            self._handler = None

    def close(self) -> None:
        self._publisher.close()
        self.hang_up()


def collectors(broker: int, port: int) -> dict[str, str]:
    mqtt = 'type = "mqtt"\nurl = "mqtt://127.0.0.1:{}"\ntopic = "{}"\nqos = {}\ntopics = ["plant/{}/n"]'
    return {
        "once": mqtt.format(broker, "once", 1, "one"),
        "twice": mqtt.format(broker, "twice", 2, "two"),
        "tailed": 'type = "file"\ntopic = "tailed"\npath = "app.log"',
        "logs": f'type = "syslog"\ntopic = "logs"\nlisten = ["tcp://127.0.0.1:{port}"]',
    }


def run(folder: Path, rounds: int, step: int, seed: int) -> dict[str, int]:
    """The server is killed in the first round, the collectors in the second, then who comes. How many messages of each
    sender there are in the end."""
    chance, port = random.Random(seed), free_port()
    with (
        mosquitto(folder) as (broker, _),
        rsyslog(folder, port) as (door, _),
        processes(folder, SQL, collectors(broker, port)) as running,
    ):
        for name in ("once", "twice", "tailed", "logs"):
            running.wait_until(name)
        senders = Senders(folder, broker, port, door)
        for number in range(rounds):
            numbers = range(number * step, (number + 1) * step)
            victim = ("server", "listeners")[number] if number < 2 else chance.choice(("server", "listeners"))
            pause = chance.uniform(0.0, 1.0)
            if victim == "server":
                _while(partial(senders.send, numbers), partial(_kill_server, running, pause))
            else:
                senders.hang_up()
                _while(partial(senders.publish, numbers), partial(_kill_listeners, running, pause, port))
                senders.talk(numbers)
            check(running, range((number + 1) * step))
            senders.rotate()
        senders.close()
        return {name: len(values()) for name, values in _kept(running).items()}


def _while(send: Callable[[], object], kill: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def sending() -> None:
        try:
            send()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=sending)
    thread.start()
    kill()
    thread.join(600)
    if failures:
        raise failures[0]


def _kill_server(running: Processes, pause: float) -> None:
    let_pass(pause)
    running.kill("server")
    let_pass(pause)
    running.start_server()


def _kill_listeners(running: Processes, pause: float, port: int) -> None:
    let_pass(pause)
    running.kill("listeners")
    let_pass(pause)
    running.start_listeners()
    wait_for(lambda: is_listening(port), 60, "the listeners")


def check(running: Processes, numbers: range) -> None:
    """Exactly these are there, of everybody."""
    for name, values in _kept(running).items():
        wait_for(lambda values=values: _has(values(), numbers), 60, f"what {name} sent")  # type: ignore[misc]


def _kept(running: Processes) -> dict[str, Callable[[], Sequence[object]]]:
    """By sender: what of it is in the log."""
    topics = {"once": "N", "twice": "N", "tailed": "MESSAGE"}
    found: dict[str, Callable[[], Sequence[object]]] = {
        topic: partial(running.column, topic, column) for topic, column in topics.items()
    }
    return found | {app: partial(_said, running, app) for app in TALKERS}


def _said(running: Processes, app: str) -> list[str]:
    return [row["MESSAGE"] for row in running.rows("logs", ["APP", "MESSAGE"]) if row["APP"] == app]


def _has(values: Sequence[object], numbers: range) -> bool:
    found = sorted(int(str(value)) for value in values)
    assert len(found) == len(set(found)), "some are there twice"
    assert len(found) <= len(numbers)
    return found == list(numbers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--step", type=int, default=1000, help="messages of each sender in a round")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as folder:
        run(Path(folder), options.rounds, options.step, options.seed)
    print(f"{options.rounds} kills, {options.rounds * options.step} messages of each sender: each once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
