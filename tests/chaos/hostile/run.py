"""Hostile requests against a real server, over every collector there is: nothing lost, nobody else harmed.

What is checked: no answer is a failure of the server's; each collector has accounted for all it received, and its
topic holds exactly what it accepted; a healthy client is served all the while; memory stays where it was.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.collect.definitions import read_definition
from headrace.collect.kinds import KINDS
from headrace.toml_files import Problem
from tests.chaos.clients import Server
from tests.chaos.hostile.cases import AMAZON, AMAZON_KEY, Case, case

CLIENTS = 4
GROWTH_MB = 400
"""What a server may have grown by after the first tenth of the cases."""
COLUMNS = "id VARCHAR, total INT, moment TIMESTAMP, price DECIMAL(9, 2), tags ARRAY<VARCHAR>, who STRUCT<n INT>"
EXTRA = {"webhook": 'signature = "token"\nsecrets = ["s"]'}
RAW = (
    b"POST /v1/topics/http/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n[1,",
    b"POST /v1/topics/http/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    b"POST /v1/topics/http/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffff\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\xff\xff",
    b"POST /v1/topics/http/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"GET /" + b"a" * 100_000,
    b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(20_000)),
    b"",
)
"""Half of a request, on connections that stay open and silent."""


@dataclass
class Outcome:
    cases: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    healthy: int = 0
    slowest_ms: float = 0.0
    megabytes: tuple[int, int] = (0, 0)
    """Of the server after a tenth, and at the end."""
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.wrong


def kinds() -> list[str]:
    return [kind.name for kind in KINDS.values() if kind.where == "http"]


def write(folder: Path) -> None:
    (folder / "collectors").mkdir()
    (folder / "pipelines").mkdir()
    (folder / "headrace.toml").write_text("[server]\nbody_seconds = 2.0\n[log]\nmin_free_bytes = 0\n")
    for kind in kinds():
        text = f'type = "{kind}"\ntopic = "{kind}"\n{EXTRA.get(kind, "")}\n'
        read = read_definition(folder / f"{kind}.toml", text)
        assert not isinstance(read, Problem), f"say in EXTRA what a collector of type {kind} needs: {read}"
        (folder / "collectors" / f"{kind}.toml").write_text(text)


def prepare(server: Server) -> None:
    for kind in [*kinds(), "healthy"]:
        if kind == "kinesis":
            body, headers = {"StreamName": kind, "ShardCount": 1}, AMAZON | {"Authorization": AMAZON_KEY}
            made = server.http.post("/", json=body, headers=headers | {"X-Amz-Target": "Kinesis_20131202.CreateStream"})
        else:
            made = server.http.post("/v1/topics", json={"name": kind, "columns": COLUMNS})
        assert made.is_success, (kind, made.text)


def run(folder: Path, cases: int, seed: int) -> Outcome:
    write(folder)
    outcome = Outcome(cases)
    with server_of(folder) as server:
        prepare(server)
        with healthy_client(server, outcome), half_open(server):
            first = cases // 10
            send(server, seed, range(first), outcome)
            settled = _megabytes(server)
            send(server, seed, range(first, cases), outcome)
        outcome.megabytes = (settled, _megabytes(server))
        check(server, outcome)
    return outcome


@contextmanager
def server_of(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        server.close()


def send(server: Server, seed: int, numbers: range, outcome: Outcome) -> None:
    names, lock = kinds(), threading.Lock()
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
            status = _send(connection, made)
            with lock:
                outcome.statuses[status] += 1
                if status >= 500 or status < 0:
                    outcome.wrong.append(f"case {number} ({made.kind}, {made.attack}): {status}")

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _send(connection: http.client.HTTPConnection, made: Case) -> int:
    """The status; 0 for a connection that the server closed, which it may, -1 for one that it left hanging."""
    try:
        connection.request(made.method, made.path, made.body, made.headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except TimeoutError:
        connection.close()
        return -1
    except (OSError, http.client.HTTPException, ValueError):
        # ValueError: what our own library refuses to send.
        connection.close()
        return 0


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
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), 10))
            connection.sendall(text)
        yield


def check(server: Server, outcome: Outcome) -> None:
    collectors = server.http.get("/v1/collectors").json()["collectors"]
    found: dict[str, Any] = {one["name"]: one for one in collectors}
    for kind in kinds():
        topic = server.http.get(f"/v1/topics/{kind}").json()
        counted = found[kind]
        whole = sum(counted[name] for name in ("accepted", "duplicates", "rejected", "shed", "refused"))
        if counted["received"] != whole:
            outcome.wrong.append(f"{kind}: received {counted['received']}, accounted for {whole}: {counted}")
        if topic["records"] != counted["accepted"]:
            outcome.wrong.append(f"{kind}: accepted {counted['accepted']}, stored {topic['records']}")
        if topic["dead_letters"] > counted["rejected"] or bool(topic["dead_letters"]) != bool(counted["rejected"]):
            outcome.wrong.append(f"{kind}: rejected {counted['rejected']}, letters {topic['dead_letters']}")
        if not counted["accepted"]:
            outcome.wrong.append(f"{kind}: nothing was accepted, so its cases show nothing")
    if server.stored("healthy") != outcome.healthy:
        outcome.wrong.append(f"healthy: {outcome.healthy} sent, {server.stored('healthy')} stored")
    before, after = outcome.megabytes
    if after > before + GROWTH_MB:
        outcome.wrong.append(f"memory grew from {before} to {after} MB")


def _megabytes(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) // 1024
