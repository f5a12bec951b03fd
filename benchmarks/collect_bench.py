"""Events over HTTP into the server itself, and through collector processes.

What ends first when more cores decode is the owner, so the measure is what the owner's process can take per second of
its own processor time: it does not depend on how many cores there are, nor on who else uses them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec

from benchmarks.measure import Measure
from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.base import TopicSpec
from headrace.log.local import LocalLog
from headrace.types import BIGINT, VARCHAR, Column
from tests.support import free_port, wait_for

VIEWS = TopicSpec("views", key=(Column("USERID", VARCHAR),), value=(Column("PAGEID", VARCHAR), Column("N", BIGINT)))
SENDERS = 8
TICKS = os.sysconf("SC_CLK_TCK")


def run(quick: bool = False) -> list[Measure]:
    found = []
    for name, size, requests in (("1,000 events a request", 1000, 60), ("1 event a request", 1, 2000)):
        requests = requests if quick else requests * 5
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, _server(Path(folder)) as (pid, ports):
            plain, through = (_owner_seconds(pid, port, size, requests) for port in ports)
        events = size * requests
        detail = f"{events / through[1]:.0f} events/s in this run"
        found.append(
            Measure(
                f"collectors, {name}",
                events / through[0],
                "events per second of the owner's processor time",
                events / plain[0],
                "in the server",
                detail=detail,
            )
        )
    return found


@contextmanager
def _server(folder: Path) -> Iterator[tuple[int, tuple[int, int]]]:
    """A server and one collector, without an engine."""
    (folder / "headrace.toml").write_text("[server]\nworkers = 2\n")
    log = LocalLog(folder / ".headrace" / "log", LogSettings(), SystemClock(), serve=False)
    log.create_topic(VIEWS)
    log.close()
    ports = free_port(), free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", f"headrace.server.{name}", "--project", str(folder), "--port", str(port)],
            stderr=subprocess.DEVNULL,
        )
        for name, port in zip(("main", "collector"), ports, strict=True)
    ]
    try:
        for port in ports:
            wait_for(lambda port=port: _is_up(port), 120, f"port {port}")  # type: ignore[misc]
        yield processes[0].pid, ports
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def _is_up(port: int) -> bool:
    return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=2).status_code == 200


def _owner_seconds(pid: int, port: int, size: int, requests: int) -> tuple[float, float]:
    """Processor and wall seconds for so many requests."""
    lines = [msgspec.json.encode({"USERID": f"u{n % 100}", "PAGEID": f"/page/{n % 50}", "N": n}) for n in range(size)]
    body, headers = b"\n".join(lines), {"Content-Type": "application/x-ndjson"}

    def send(count: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            for _ in range(count):
                client.post("/v1/topics/views/events", content=body, headers=headers).raise_for_status()

    send(5)
    before, started = _processor_seconds(pid), time.perf_counter()
    with ThreadPoolExecutor(SENDERS) as senders:
        list(senders.map(send, [requests // SENDERS] * SENDERS))
    return _processor_seconds(pid) - before, time.perf_counter() - started


def _processor_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS
