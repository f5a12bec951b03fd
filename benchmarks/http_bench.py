"""Events over HTTP in batches of 1, 100 and 1,000 over a few keep-alive connections.

The server under test is the real one, in a process of its own, durable (`acks=all`); the baseline is Starlette on
granian, embedded the same way, that only reads the body and says how long it was.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Measure, percentile
from tests.support import free_port, wait_for

CONNECTIONS = 4
SQL = """
CREATE STREAM pageviews (userid VARCHAR KEY, pageid VARCHAR, referrer VARCHAR, sessionid VARCHAR, viewtime TIMESTAMP)
  WITH (KAFKA_TOPIC='pageviews', VALUE_FORMAT='JSON', TIMESTAMP='viewtime', PARTITIONS=2);
"""
REQUESTS = {1: 4000, 100: 1500, 1000: 400}


def run(quick: bool = False) -> list[Measure]:
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory() as folder, baseline_server() as plain, _headrace(Path(folder)) as ours:
        for batch, requests in REQUESTS.items():
            count = max(CONNECTIONS, requests // 10) if quick else requests
            request = _request(batch)
            baseline, _ = _flood(plain, request, count)
            reached, latencies = _flood(ours, request, count)
            measures.append(
                Measure(
                    f"HTTP events, batches of {batch:,}",
                    reached * batch,
                    "events/s",
                    baseline * batch,
                    "reading the body only",
                    "≥ 150 k/s" if batch == 1000 else "",
                    f"{CONNECTIONS} connections, p50 {percentile(latencies, 0.5) * 1000:.1f} ms, "
                    f"p99 {percentile(latencies, 0.99) * 1000:.1f} ms",
                )
            )
    return measures


def _request(batch: int) -> bytes:
    now = int(time.time() * 1000)
    events = [
        {
            "userid": f"user_{random.randrange(1000)}",
            "pageid": f"/page/{random.randrange(50)}",
            "referrer": "https://example.com/",
            "sessionid": f"s{random.randrange(10_000)}",
            "viewtime": now + number,
        }
        for number in range(batch)
    ]
    body = json.dumps(events if batch > 1 else events[0], separators=(",", ":")).encode()
    head = (
        "POST /v1/topics/pageviews/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _flood(port: int, request: bytes, count: int) -> tuple[float, list[float]]:
    """Requests per second, and how long each took. A few of them first, to warm up."""
    send_each(port, itertools.repeat(request, 20), [])
    each = count // CONNECTIONS
    return flood([(port, itertools.repeat(request, each)) for _ in range(CONNECTIONS)], each * CONNECTIONS)


def flood(jobs: Sequence[tuple[int, Iterable[bytes]]], count: int) -> tuple[float, list[float]]:
    """Requests per second and how long each took, over a connection per job: its port and what to send there."""
    latencies: list[list[float]] = [[] for _ in jobs]
    threads = [
        threading.Thread(target=send_each, args=(port, requests, latencies[number]))
        for number, (port, requests) in enumerate(jobs)
    ]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [each for one in latencies for each in one]
    assert len(taken) == count, "a connection failed"
    return len(taken) / (time.perf_counter() - started), taken


def send_each(port: int, requests: Iterable[bytes], latencies: list[float]) -> None:
    """One after the other over one connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in requests:
            started = time.perf_counter()
            connection.sendall(request)
            _read_answer(connection)
            latencies.append(time.perf_counter() - started)


def _read_answer(connection: socket.socket) -> None:
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionError("the server closed the connection")
        answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 204 ")):
        raise AssertionError(answer.decode(errors="replace"))
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    while len(body) < length:
        body += connection.recv(65536)


@contextmanager
def _headrace(folder: Path) -> Iterator[int]:
    (folder / "headrace.toml").write_text("")
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "pageviews.sql").write_text(SQL)
    port = free_port()
    with server_process("headrace.server.main", folder, port):
        wait_for(lambda: is_answering(port, "/v1/topics/pageviews"), 30, "the server")
        yield port


@contextmanager
def server_process(module: str, folder: Path, port: int) -> Iterator[None]:
    """One of Headrace's processes for a project."""
    log = folder / f"{module}.log"
    with _process([module, "--project", str(folder), "--port", str(port)], log):
        yield


@contextmanager
def baseline_server() -> Iterator[int]:
    port = free_port()
    command = ["benchmarks.http_bench", str(port)]
    with tempfile.TemporaryDirectory() as folder, _process(command, Path(folder) / "baseline.log"):
        wait_for(lambda: is_answering(port, "/"), 30, "the baseline")
        yield port


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        child = subprocess.Popen([sys.executable, "-m", *command], stdout=output, stderr=output)
    try:
        yield
    finally:
        child.terminate()
        try:
            child.wait(15)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def is_answering(port: int, path: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            return connection.recv(1024).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def _serve_baseline(port: int) -> None:
    from granian.constants import Interfaces
    from granian.server.embed import Server
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def length(request: Request) -> Response:
        return Response(str(len(await request.body())))

    app = Starlette(routes=[Route("/{path:path}", length, methods=["GET", "POST"])])
    server = Server(app, address="127.0.0.1", port=port, interface=Interfaces.ASGINL, log_enabled=False)
    asyncio.run(server.serve())


if __name__ == "__main__":
    _serve_baseline(int(sys.argv[1]))
