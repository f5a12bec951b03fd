"""One event at a time in each pattern, with its p99, beside an endpoint that only reads the same body.

What a pattern costs is what its client waits for: the log's sync, the view, another sync for a ticket, nothing at all.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
from websockets.sync.client import ClientConnection, connect

from benchmarks.http_bench import baseline_server, is_answering, server_process
from benchmarks.measure import Measure, percentile
from tests.support import free_port, wait_for

SQL = """CREATE TABLE balances (account VARCHAR PRIMARY KEY, amount INTEGER)
  WITH (KAFKA_TOPIC='balances', VALUE_FORMAT='JSON', PARTITIONS=1);"""
COLLECTOR = 'type = "http"\ntopic = "balances"\n[enrich]\nvisitor = "visitor"\n'
EVENT = {"account": "ann", "amount": 7}
PATH = "/v1/topics/balances/events"


def run(quick: bool = False) -> Iterator[Measure]:
    times = 50 if quick else 500
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, baseline_server() as plain:
        folder, port = Path(name), free_port()
        (folder / "pipelines").mkdir()
        (folder / "collectors").mkdir()
        (folder / "headrace.toml").write_text("")
        (folder / "pipelines" / "all.sql").write_text(SQL)
        (folder / "collectors" / "web.toml").write_text(COLLECTOR)
        with server_process("headrace.server.main", folder, port):
            wait_for(lambda: is_answering(port, "/healthz"), 60, "the server")
            yield from _measures(plain, port, times)


def _measures(plain: int, port: int, times: int) -> Iterator[Measure]:
    with _client(plain) as bare, _client(port) as http, connect(f"ws://127.0.0.1:{port}/v1/socket") as socket:
        wait_for(lambda: http.get("/v1/topics/balances").status_code == 200, 60, "the topic")
        baseline = _times(lambda: bare.post("/", json=EVENT), times)
        ways: dict[str, Callable[[], object]] = {
            "request/response": lambda: _post(http, PATH),
            "… with a question": lambda: _post(http, f"{PATH}?view=balances&key=ann"),
            "… with a ticket, taken": lambda: _post(http, f"{PATH}?wait=ticket"),
            "… with a ticket, result": lambda: _result(http),
            "request/acknowledge": lambda: http.get("/v1/visit").raise_for_status(),
            "publish, acknowledged": lambda: _publish(socket),
            "one-way, acks=0": lambda: _post(http, f"{PATH}?acks=0"),
        }
        for name, call in ways.items():
            taken = _times(call, times)
            detail = f"p50 {percentile(taken, 0.5) * 1000:.1f} ms, p99 {percentile(taken, 0.99) * 1000:.1f} ms"
            yield Measure(
                name, times / sum(taken), "requests/s", times / sum(baseline), "reading the body only", detail=detail
            )


def _client(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)


def _times(call: Callable[[], object], times: int) -> list[float]:
    call()
    found = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return found


def _post(http: httpx.Client, path: str) -> httpx.Response:
    return http.post(path, json=EVENT).raise_for_status()


def _result(http: httpx.Client) -> None:
    given = _post(http, f"{PATH}?wait=ticket").json()
    assert http.get(given["result"], params={"wait": 30}).json()["state"] == "done"


def _publish(socket: ClientConnection) -> None:
    socket.send(json.dumps({"publish": "1", "topic": "balances", "event": EVENT}))
    while "ack" not in json.loads(socket.recv()):
        pass
