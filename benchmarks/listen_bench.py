"""Listeners and pullers: lines a second, through real processes, into the durable log.

Beside each: a process that only reads the same from a socket or a file, and, for syslog over TCP, rsyslog itself
writing what it receives to a file. Lines are counted when they are in the log (of rsyslog, when they are in its file).
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import Measure, percentile
from headrace.clock import SystemClock
from headrace.config import LogSettings, load_project
from headrace.coordinate.catalog import create_internal_topics
from headrace.log.base import TopicSpec
from headrace.log.local import LocalLog
from headrace.types import DOUBLE, TIMESTAMP, VARCHAR, Column, Map
from scripts.setup import find_daemon
from tests.support import free_port, wait_for

LOGS = TopicSpec(
    "logs",
    key=(Column("HOST", VARCHAR),),
    value=(
        *(Column(name, VARCHAR) for name in ("FACILITY", "SEVERITY", "APP", "PROCID", "MSGID", "MESSAGE")),
        Column("TIME", TIMESTAMP),
        Column("STRUCTURED_DATA", VARCHAR),
    ),
)
METRICS = TopicSpec(
    "metrics",
    key=(Column("METRIC", VARCHAR),),
    value=(Column("KIND", VARCHAR), Column("VALUE", DOUBLE), Column("TAGS", Map(VARCHAR, VARCHAR))),
)
WARM = 20_000
QUIET_S = 3.0
ONE_BY_ONE = 500
LINES = TopicSpec("lines", value=(Column("MESSAGE", VARCHAR),))


def message(number: int) -> bytes:
    """130 bytes, as a web server's."""
    return (
        b"<134>1 2026-11-16T12:%02d:%02d.%06dZ web-%d nginx %d access - GET /products/%08d 200 5120 ms=%03d agent=curl"
        % (number // 60 % 60, number % 60, number % 1_000_000, number % 8, 1000 + number % 8, number, number % 1000)
    )


def run(quick: bool = False) -> list[Measure]:
    scale = 1 if quick else 10
    return [
        *_syslog_tcp(60_000 * scale),
        *_udp("syslog over UDP", "logs", "syslog", 10_000 * scale, message),
        *_udp(
            "statsd", "metrics", "statsd", 10_000 * scale, lambda n: b"page.views:%d|c|#route:home,shop:eu" % (n % 10)
        ),
        *_file(100_000 * scale),
    ]


# Syslog over TCP


def _syslog_tcp(count: int) -> list[Measure]:
    payload = b"".join(message(number) + b"\n" for number in range(count))
    bare = _bare_tcp(payload, count)
    with _listeners(LOGS, "syslog", "tcp") as (log, port):
        # Whatever is loaded with the first message is loaded.
        first = b"".join(message(number) + b"\n" for number in range(WARM))
        _timed(lambda: _send_tcp(port, first), lambda: _records(log, "logs"), WARM)
        ours = _timed(lambda: _send_tcp(port, payload), lambda: _records(log, "logs") - WARM, count)
        delays = _delays(log, port)
    detail = f"RFC 5424; one by one p50 {percentile(delays, 0.5):.1f} ms, p99 {percentile(delays, 0.99):.1f} ms"
    found = [Measure("syslog over TCP", ours, "lines/s", bare, "reading the socket only", aim="≥ 200 k", detail=detail)]
    daemon = find_daemon("rsyslogd")
    if daemon is not None:
        theirs = _rsyslog(daemon, payload, count)
        found.append(Measure("syslog over TCP", ours, "lines/s", theirs, "rsyslog, imtcp to omfile"))
    return found


def _delays(log: LocalLog, port: int) -> list[float]:
    """Milliseconds until one message is durable, each sent when the one before it is."""
    found = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for number in range(ONE_BY_ONE):
            before, started = _records(log, "logs"), time.perf_counter()
            connection.sendall(message(number) + b"\n")
            while _records(log, "logs") == before:
                threading.Event().wait(0.0002)
            found.append((time.perf_counter() - started) * 1000)
    return found


def _send_tcp(port: int, payload: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(payload)


def _read_tcp(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    while connection.recv(256 * 1024):
        pass
    connection.sendall(b".")


def _bare_tcp(payload: bytes, count: int) -> float:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        reader = multiprocessing.get_context("fork").Process(target=_read_tcp, args=(listening,))
        reader.start()
        started = time.perf_counter()
        with socket.create_connection(listening.getsockname()) as connection:
            connection.sendall(payload)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
        took = time.perf_counter() - started
        reader.join()
    return count / took


def _rsyslog(daemon: str, payload: bytes, count: int) -> float:
    port = free_port()
    with _rsyslogd(daemon, f'module(load="imtcp")\ninput(type="imtcp" port="{port}" address="127.0.0.1")') as output:
        wait_for(lambda: _is_open(port), 10, "rsyslogd")
        return _timed(lambda: _send_tcp(port, payload), lambda: _lines(output), count)


def _rsyslog_file(daemon: str, file: Path, count: int) -> float:
    """It begins with the file at once, so what it has written when it is first looked at does not count."""
    with _rsyslogd(daemon, f'module(load="imfile")\ninput(type="imfile" file="{file}" tag="app:")') as output:
        wait_for(lambda: _lines(output) > 0, 20, "rsyslogd")
        first, started = _lines(output), time.perf_counter()
        wait_for(lambda: _lines(output) >= count, 120, "all of its lines")
        return (count - first) / (time.perf_counter() - started)


@contextmanager
def _rsyslogd(daemon: str, reading: str) -> Iterator[Path]:
    """What it writes to."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder, output = Path(name), Path(name) / "out"
        action = f'action(type="omfile" file="{output}" template="RSYSLOG_SyslogProtocol23Format")'
        (folder / "conf").write_text(f'global(workDirectory="{folder}")\n{reading}\n{action}\n')
        command = [daemon, "-n", "-f", str(folder / "conf"), "-i", str(folder / "pid")]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            yield output
        finally:
            process.terminate()
            process.wait(30)


def _lines(file: Path) -> int:
    """Counted by the size, as all lines are about as long: counting them would take longer than writing them."""
    if not file.exists():
        return 0
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(1 << 16)
    lines = head.count(b"\n")
    return round(size / ((head.rfind(b"\n") + 1) / lines) * 1.001) if lines else 0


# UDP


def _udp(name: str, topic: str, kind: str, count: int, make: Callable[[int], bytes]) -> list[Measure]:
    datagrams = [make(number) for number in range(count)]
    spec = LOGS if topic == "logs" else METRICS
    bare = _bare_udp(datagrams)
    with _listeners(spec, kind, "udp") as (log, port):
        _send_udp(port, datagrams[:100])
        wait_for(lambda: _records(log, topic) >= 100, 20, "the first datagrams")
        started = last = time.perf_counter()
        _send_udp(port, datagrams)
        known = 0
        # What the kernel dropped never comes: until nothing does any more.
        while known < count and time.perf_counter() - last < QUIET_S:
            now = _records(log, topic) - 100
            if now != known:
                known, last = now, time.perf_counter()
            threading.Event().wait(0.005)
    detail = f"{known} of {count} datagrams arrived, sent as fast as one process can"
    return [Measure(name, known / (last - started), "lines/s", bare, "reading the socket only", detail=detail)]


def _send_udp(port: int, datagrams: list[bytes]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        for datagram in datagrams:
            sender.send(datagram)


def _read_udp(receiver: socket.socket, found: Any) -> None:
    receiver.settimeout(0.5)
    count = 0
    try:
        while True:
            receiver.recv(65_535)
            count += 1
    except TimeoutError:
        found.value = count


def _bare_udp(datagrams: list[bytes]) -> float:
    context = multiprocessing.get_context("fork")
    found = context.Value("q", 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        reader = context.Process(target=_read_udp, args=(receiver, found))
        reader.start()
        started = time.perf_counter()
        _send_udp(receiver.getsockname()[1], datagrams)
        reader.join()
        took = time.perf_counter() - started - 0.5
    return float(found.value) / took


# Files


def _file(count: int) -> list[Measure]:
    payload = b"".join(message(number) + b"\n" for number in range(count))
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        file = Path(name) / "app.log"
        file.write_bytes(payload)
        started = time.perf_counter()
        with file.open("rb") as stream:
            assert sum(1 for _ in stream) == count
        bare = count / (time.perf_counter() - started)
        with _listeners(LINES, "file", "", f'path = "{file}"') as (log, _):
            wait_for(lambda: _records(log, "lines") > 0, 20, "the first lines")
            first, started = _records(log, "lines"), time.perf_counter()
            wait_for(lambda: _records(log, "lines") >= count, 60, "all lines")
            ours = (count - first) / (time.perf_counter() - started)
        found = [Measure("following a file", ours, "lines/s", bare, "Python reading its lines only")]
        daemon = find_daemon("rsyslogd")
        if daemon is not None:
            theirs = _rsyslog_file(daemon, file, count)
            found.append(Measure("following a file", ours, "lines/s", theirs, "rsyslog, imfile to omfile"))
    return found


# Processes


@contextmanager
def _listeners(spec: TopicSpec, kind: str, transport: str, more: str = "") -> Iterator[tuple[LocalLog, int]]:
    """The listeners' process with one collector, and the log's owner, in this one."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        (folder / "headrace.toml").write_text("")
        (folder / "collectors").mkdir()
        listen = f'listen = ["{transport}://127.0.0.1:{port}"]' if transport else ""
        (folder / "collectors" / "one.toml").write_text(f'type = "{kind}"\ntopic = "{spec.name}"\n{listen}\n{more}\n')
        log = LocalLog(load_project(folder).log_folder, LogSettings(), SystemClock(), serve=True)
        ready = threading.Event()
        log.register_call("collectors.status", lambda body: _ready(body, ready))
        create_internal_topics(log)
        log.create_topic(spec)
        command = [sys.executable, "-m", "headrace.server.listeners", "--project", name]
        process = subprocess.Popen(command, env=os.environ, stderr=subprocess.DEVNULL)
        try:
            if not more:
                assert ready.wait(60), "the listeners did not start"
            yield log, port
        finally:
            process.terminate()
            process.wait(30)
            log.close()


def _ready(body: object, ready: threading.Event) -> dict[str, object]:
    if '"running"' in str(body).replace("'", '"'):
        ready.set()
    return {}


def _records(log: LocalLog, topic: str) -> int:
    return sum(ends.end for ends in log.snapshot().ends[topic])


def _timed(send: Callable[[], None], known: Callable[[], int], count: int) -> float:
    started = time.perf_counter()
    sending = threading.Thread(target=send)
    sending.start()
    deadline = started + 240
    while known() < count:
        assert time.perf_counter() < deadline, f"only {known()} of {count} arrived"
        threading.Event().wait(0.005)
    took = time.perf_counter() - started
    sending.join()
    return count / took


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
