"""Hostile requests, messages and bytes against a real server and real listeners: nothing lost, nobody else harmed. Over
every collector there is, plain and with rules, over the WebSocket and Firehose.

What is checked: no answer is a failure of the server's, and no log has a traceback; each collector has accounted for
all it received, and its topic holds exactly what it accepted; a healthy client is served all the while, and every port
answers afterwards; memory stays where it was.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos.clients import Server
from tests.chaos.hostile import talk
from tests.chaos.hostile.cases import AMAZON, AMAZON_KEY, Case, case
from tests.chaos.hostile.collectors import RULED, Port, http_names, listener_names, write
from tests.chaos.hostile.sockets import attack_ports, is_well
from tests.support import wait_for

CLIENTS = 4
GROWTH_MB = 400
"""What a server may have grown by after the first tenth of the cases."""
COLUMNS = "id VARCHAR, total INT, moment TIMESTAMP, price DECIMAL(9, 2), tags ARRAY<VARCHAR>, who STRUCT<n INT>"
ROLE, BUCKET = "arn:aws:iam::000000000000:role/any", "arn:aws:s3:::lake"
SHARE = 10
"""One in so many cases is sent over the WebSocket, and twice as many at the ports of listeners."""
QUIET_S = 1.2
"""Listeners tell every second what they have: after so long without news there are none."""
RAW = (
    b"POST /v1/topics/http/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n[1,",
    b"POST /v1/topics/http/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    b"POST /v1/topics/http/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffff\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\xff\xff",
    b"POST /v1/topics/http/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"GET /" + b"a" * 100_000,
    b"GET /v1/socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n\x81\xff\xff\xff\xff\xff\xff\xff",
    b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(20_000)),
    b"",
)
"""Half of a request, on connections that stay open and silent."""


_ERROR = re.compile(r"^[A-Za-z_][\w.]*:? .*$|^[A-Za-z_][\w.]*$", re.MULTILINE)
"""The last line of a traceback. Other threads' lines may be in between, and begin with the time."""


@dataclass
class Outcome:
    cases: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    healthy: int = 0
    slowest_ms: float = 0.0
    megabytes: tuple[int, int] = (0, 0)
    """Of the server and the listeners together, after a tenth, and at the end."""
    acknowledged: int = 0
    """Events over the WebSocket."""
    delivered: int = 0
    """Records that Firehose has answered for."""
    datagrams: Counter[str] = field(default_factory=Counter)
    """Sent to each collector."""
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.wrong


def prepare(server: Server) -> None:
    for name in [*http_names(), *listener_names(), "healthy", "socket"]:
        if name == "kinesis":
            _amazon(server, "Kinesis_20131202.CreateStream", {"StreamName": name, "ShardCount": 1})
        else:
            columns = "message VARCHAR" if name == "udp" else COLUMNS
            made = server.http.post("/v1/topics", json={"name": name, "columns": columns})
            assert made.is_success, (name, made.text)
    hints = {"SizeInMBs": 64, "IntervalInSeconds": 900}
    target = {"RoleARN": ROLE, "BucketARN": BUCKET, "BufferingHints": hints}
    stream = {"DeliveryStreamName": "firehose", "ExtendedS3DestinationConfiguration": target}
    _amazon(server, "Firehose_20150804.CreateDeliveryStream", stream)


def _amazon(server: Server, target: str, body: dict[str, Any]) -> Any:
    headers = AMAZON | {"Authorization": AMAZON_KEY, "X-Amz-Target": target}
    made = server.http.post("/", json=body, headers=headers)
    assert made.is_success, (target, made.text)
    return made.json() if made.content else {}


def run(folder: Path, cases: int, seed: int) -> Outcome:
    ports = write(folder)
    outcome = Outcome(cases)
    # Both at once: it takes them a while to start.
    with listeners_of(folder) as listeners, server_of(folder) as server:
        prepare(server)
        processes = (server.process, listeners)
        for name in listener_names():
            wait_for(partial(_is_running, server, name), 60, f"`{name}`")
        with healthy_client(server, outcome), half_open(server), beside(server, ports, seed, cases, outcome):
            first = cases // 10
            send(server, seed, range(first), outcome)
            settled = _megabytes(processes)
            send(server, seed, range(first, cases), outcome)
        outcome.wrong += [f"{port}: {wrong}" for port in ports if (wrong := is_well(port))]
        with suppress(TimeoutError):
            wait_for(_Quiet(server), 20, "the listeners to have written everything")
        outcome.megabytes = (settled, _megabytes(processes))
        check(server, outcome)
    for name in ("server.log", "listeners.log"):
        outcome.wrong += [f"{name}: {text}" for text in tracebacks((folder / name).read_text(errors="replace"))]
    return outcome


def tracebacks(log: str) -> Iterator[str]:
    """What went wrong in ways that nobody thought of. That a client goes away is none of them."""
    for text in log.split("Traceback (most recent call last):")[1:]:
        found = _ERROR.search(text)
        if found is None or not found[0].startswith(("BrokenPipeError", "ConnectionResetError")):
            yield text[: found.end() if found else 2000][-2000:]


@contextmanager
def beside(server: Server, ports: list[Port], seed: int, cases: int, outcome: Outcome) -> Iterator[None]:
    """The WebSocket and the listeners, attacked at the same time."""

    with ThreadPoolExecutor(2) as pool:
        over_socket = pool.submit(talk.talk, server.port, seed, cases // SHARE, outcome.wrong)
        at_ports = pool.submit(attack_ports, ports, seed, 2 * cases // SHARE, outcome.wrong)
        yield
        outcome.acknowledged, outcome.datagrams = over_socket.result(), at_ports.result()


@contextmanager
def listeners_of(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """They wait for the server."""
    command = [sys.executable, "-m", "headrace.server.listeners", "--project", str(folder)]
    with (folder / "listeners.log").open("ab") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        yield process
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def _is_running(server: Server, name: str) -> bool:
    return bool(_collectors(server)[name]["state"] == "running")


def _collectors(server: Server) -> dict[str, Any]:
    return {one["name"]: one for one in server.http.get("/v1/collectors").json()["collectors"]}


class _Quiet:
    """Whether nothing has come for a while, and all that came is where it belongs."""

    def __init__(self, server: Server) -> None:
        self._server, self._since = server, time.monotonic()
        self._last: dict[str, int] = {}

    def __call__(self) -> bool:
        now = {name: one["received"] for name, one in _collectors(self._server).items()}
        if now != self._last:
            self._last, self._since = now, time.monotonic()
        return time.monotonic() - self._since > QUIET_S and not any(
            True for name in listener_names() for _ in mistakes(self._server, name)
        )


@contextmanager
def server_of(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        server.close()


def send(server: Server, seed: int, numbers: range, outcome: Outcome) -> None:
    names, lock = [*http_names(), "firehose"], threading.Lock()
    waiting = iter(numbers)

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        while True:
            with lock:
                number = next(waiting, None)
            if number is None:
                connection.close()
                return
            made = case(names, seed * 1_000_003 + number)
            status, answer = _send(connection, made)
            with lock:
                outcome.statuses[status] += 1
                if made.kind == "firehose" and status == 200:
                    outcome.delivered += sum("RecordId" in one for one in json.loads(answer)["RequestResponses"])
                if status >= 500 or status < 0:
                    outcome.wrong.append(f"case {number} ({made.kind}, {made.attack}): {status}")

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _send(connection: http.client.HTTPConnection, made: Case) -> tuple[int, bytes]:
    """The answer; 0 for a connection that the server closed, which it may, -1 for one that it left hanging."""
    try:
        connection.request(made.method, made.path, made.body, made.headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except TimeoutError:
        connection.close()
        return -1, b""
    except (OSError, http.client.HTTPException, ValueError):
        # ValueError: what our own library refuses to send.
        connection.close()
        return 0, b""


@contextmanager
def healthy_client(server: Server, outcome: Outcome) -> Iterator[None]:
    stop = threading.Event()

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        while not stop.wait(0.02):
            body = json.dumps({"id": str(outcome.healthy), "total": outcome.healthy})
            started = time.monotonic()
            connection.request("POST", "/v1/topics/healthy/events", body)
            answer = connection.getresponse()
            text = answer.read()
            outcome.slowest_ms = max(outcome.slowest_ms, (time.monotonic() - started) * 1000)
            if answer.status != 200:
                outcome.wrong.append(f"a healthy client got {answer.status}: {text[:200]!r}")
                return
            outcome.healthy += 1
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def half_open(server: Server) -> Iterator[None]:
    with ExitStack() as opened:
        for text in RAW * 10:
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), 60))
            connection.sendall(text)
        yield


def check(server: Server, outcome: Outcome) -> None:
    found = _collectors(server)
    for name in [*http_names(), *listener_names()]:
        # On a busy machine listeners are silent for longer than they are believed to run.
        with suppress(TimeoutError):
            wait_for(lambda: not any(mistakes(server, name)), 5, "the last reports")  # noqa: B023
        outcome.wrong += [f"{name}: {wrong}" for wrong in mistakes(server, name)]
    for what in ("shed", "refused", "rejected"):
        if not sum(found[name][what] for name in found if name.endswith(RULED)):
            outcome.wrong.append(f"no collector with rules has {what} anything, so its cases show nothing")
    got, sent, error = found["udp"]["received"], outcome.datagrams["udp"], found["udp"]["last_error"] or ""
    if got != sent and "dropped" not in error:
        outcome.wrong.append(f"udp: {sent} datagrams were sent, {got} received")
    topics = {"healthy": outcome.healthy, "socket": outcome.acknowledged, "_firehose.firehose": outcome.delivered}
    for name, count in topics.items():
        if server.stored(name) != count:
            outcome.wrong.append(f"{name}: {count} acknowledged, {server.stored(name)} stored")
    before, after = outcome.megabytes
    if after > before + GROWTH_MB:
        outcome.wrong.append(f"memory grew from {before} to {after} MB")


def mistakes(server: Server, name: str) -> Iterator[str]:
    """In what a collector says of itself."""
    counted = server.http.get(f"/v1/collectors/{name}").json()
    topic = server.http.get(f"/v1/topics/{name}").json()
    whole = sum(counted[name] for name in ("accepted", "duplicates", "rejected", "shed", "refused"))
    if counted["received"] != whole:
        yield f"received {counted['received']}, accounted for {whole}: {counted}"
    if topic["records"] != counted["accepted"]:
        yield f"accepted {counted['accepted']}, stored {topic['records']}"
    if topic["dead_letters"] > counted["rejected"] or bool(topic["dead_letters"]) != bool(counted["rejected"]):
        yield f"rejected {counted['rejected']}, letters {topic['dead_letters']}"
    if not counted["accepted"]:
        yield "nothing was accepted, so its cases show nothing"
    if counted["state"] != "running":
        yield f"{counted['state']}: {counted['detail']}"


def _megabytes(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Of all together."""
    found = 0
    for process in processes:
        status = Path(f"/proc/{process.pid}/status").read_text()
        found += int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) // 1024
    return found
