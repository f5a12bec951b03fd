"""Real daemons for the tests: mosquitto and rsyslog, each with a configuration and files of its own."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from scripts.setup import find_daemon
from tests.support import free_port, wait_for


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except OSError:
        return False
    return True


class Daemon:
    """A process that can be killed and started again."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def stop(self, kill: bool = False) -> None:
        if self._process is None:
            return
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


@contextmanager
def mosquitto(folder: Path) -> Iterator[tuple[int, Daemon]]:
    """A broker that keeps sessions and messages over its own end."""
    found, port = find_daemon("mosquitto"), free_port()
    assert found is not None, "mosquitto is missing: `make setup-tests` installs it"
    data = folder / "mosquitto"
    data.mkdir()
    (data / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {data}/\n"
        "user root\nmax_queued_messages 0\nautosave_interval 1\n"
    )
    broker = Daemon([found, "-c", str(data / "mosquitto.conf")], data / "log")
    broker.start()
    try:
        wait_for(lambda: is_listening(port), 60, "mosquitto")
        yield port, broker
    finally:
        broker.stop()


class Publisher:
    """paho, as anybody would use it."""

    def __init__(self, port: int) -> None:
        self._client = Client(CallbackAPIVersion.VERSION2, client_id="publisher", clean_session=False)
        self._there: set[int] = set()
        self._client.on_publish = lambda client, data, number, *_: self._there.add(number)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        wait_for(self._client.is_connected, 60, "the publisher")

    def publish(self, numbers: range, qos: int = 1, device: str = "d1", retain: bool = False) -> None:
        """Returns when the broker has them."""
        sent = {
            self._client.publish(f"plant/{device}/n", json.dumps({"n": number}), qos=qos, retain=retain).mid
            for number in numbers
        }
        wait_for(lambda: sent <= self._there, 60, "the broker to have all of it")

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@contextmanager
def rsyslog(folder: Path, target: int) -> Iterator[tuple[Path, Daemon]]:
    """Takes messages on a Unix socket, and forwards them over TCP to a port, out of a queue on disk; the socket."""
    found = find_daemon("rsyslogd")
    assert found is not None, "rsyslogd is missing: `make setup-tests` installs it"
    data = folder / "rsyslog"
    data.mkdir()
    door = data / "in"
    (data / "rsyslog.conf").write_text(
        f"""
global(workDirectory="{data}" maxMessageSize="64k")
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{door}" CreatePath="on" RateLimit.Interval="0" UseSpecialParser="off")
action(type="omfwd" target="127.0.0.1" port="{target}" protocol="tcp" TCP_Framing="octet-counted"
       template="RSYSLOG_SyslogProtocol23Format" action.resumeRetryCount="-1" action.resumeInterval="1"
       queue.type="Disk" queue.fileName="forward" queue.saveOnShutdown="on")
"""
    )
    command = [found, "-n", "-f", str(data / "rsyslog.conf"), "-i", str(data / "pid")]
    daemon = Daemon(command, data / "log")
    daemon.start()
    try:
        wait_for(door.exists, 60, "rsyslogd")
        yield door, daemon
    finally:
        daemon.stop()
