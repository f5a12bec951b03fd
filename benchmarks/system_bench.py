"""The whole thing, started as a user starts it: time to ready, event to feed, pull over HTTP, memory when idle."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.measure import Measure, percentile
from tests.support import free_port, wait_for

ROOT = Path(__file__).parent.parent
WARM_UP = 20.0  # seconds of load before the first probe: the JVM compiles what it runs often
ONE_QUERY = """
CREATE STREAM pageviews (userid VARCHAR KEY, pageid VARCHAR, viewtime TIMESTAMP)
  WITH (KAFKA_TOPIC='pageviews', VALUE_FORMAT='JSON', TIMESTAMP='viewtime', PARTITIONS=2);
CREATE TABLE views_by_page AS SELECT pageid, COUNT(*) AS views FROM pageviews GROUP BY pageid;
"""


def run(quick: bool = False) -> list[Measure]:
    demo = (ROOT / "examples" / "pageviews" / "pipelines" / "pageviews.sql").read_text()
    seconds = 10.0 if quick else 30.0
    return [
        *measure_project("one query", ONE_QUERY, seconds, "≤ 300 ms p50"),
        *measure_project("the demo's three", demo, seconds, "≤ 700 ms p50"),
    ]


def measure_project(label: str, pipeline: str, seconds: float, aim: str) -> list[Measure]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        project = Path(name) / "project"
        (project / "pipelines").mkdir(parents=True)
        (project / "pipelines" / "bench.sql").write_text(pipeline)
        port = free_port()
        (project / "headrace.toml").write_text(f"[server]\nport = {port}\n")
        url = f"http://127.0.0.1:{port}"
        started = time.monotonic()
        with running(project, url) as pid:
            ready = time.monotonic() - started
            idle = memory_of(pid)
            delays = event_to_feed(url, seconds)
            pulls = pull_latencies(url, seconds / 3)
        shutil.rmtree(project, ignore_errors=True)
    return [
        Measure(f"ready after `up`, {label}", ready, "s", aim="≤ 15 s"),
        Measure(f"memory idle, {label}", idle / 1e6, "MB"),
        Measure(f"event to feed p50, {label}", percentile(delays, 0.5) * 1000, "ms", aim=aim, detail="500 events/s"),
        Measure(f"event to feed p99, {label}", percentile(delays, 0.99) * 1000, "ms", detail=f"{len(delays)} events"),
        Measure(f"pull by key over HTTP p50, {label}", percentile(pulls, 0.5) * 1000, "ms"),
        Measure(
            f"pull by key over HTTP p99, {label}", percentile(pulls, 0.99) * 1000, "ms", detail=f"{len(pulls)} pulls"
        ),
    ]


@contextmanager
def running(project: Path, url: str) -> Iterator[int]:
    """The project, once it is ready; the supervisor's process."""
    up = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "up", "--project", str(project)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(lambda: httpx.get(f"{url}/readyz", timeout=5).status_code == 200, 120, "ready")
        yield up.pid
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(60)


def event_to_feed(url: str, seconds: float, warm_up: float = WARM_UP) -> list[float]:
    """Probe events have a page of their own, so that each is a change of its own in the feed; the rest is load."""
    sent: dict[str, float] = {}
    delays: list[float] = []
    done = threading.Event()
    listening = threading.Event()

    def listen() -> None:
        with httpx.stream("GET", f"{url}/v1/views/views_by_page/feed", timeout=None) as answer:
            listening.set()
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    now = time.monotonic()
                    page = (json.loads(line[5:]).get("key") or {}).get("pageid", "")
                    if page in sent:
                        delays.append(now - sent.pop(page))
                if done.is_set():
                    return

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    listening.wait(10)
    with httpx.Client(timeout=10) as http:
        number = 0
        began = time.monotonic()
        while time.monotonic() - began < warm_up + seconds:
            number += 1
            if time.monotonic() - began > warm_up:
                sent[f"/probe/{number}"] = time.monotonic()
            post(http, url, [view(f"/probe/{number}", number)] + [view(f"/p{i}", number) for i in range(24)])
            next_at = began + number * 0.05
            done.wait(max(0.0, next_at - time.monotonic()))
        wait_for(lambda: not sent, 30, "the last probes")
        done.set()
        post(http, url, [view("/end", number)])
    return delays


def view(page: str, number: int) -> dict[str, Any]:
    return {"userid": f"u{number % 500}", "pageid": page, "viewtime": int(time.time() * 1000), "country": "CH"}


def post(http: httpx.Client, url: str, events: list[dict[str, Any]]) -> None:
    http.post(f"{url}/v1/topics/pageviews/events", json=events).raise_for_status()


def pull_latencies(url: str, seconds: float) -> list[float]:
    taken: list[float] = []
    with httpx.Client(timeout=10) as http:
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            body = {"sql": f"SELECT views FROM views_by_page WHERE pageid = '/p{len(taken) % 24}';"}
            at = time.monotonic()
            http.post(f"{url}/v1/query", json=body).raise_for_status()
            taken.append(time.monotonic() - at)
    return taken


def memory_of(pid: int) -> int:
    """Resident bytes of a process and all below it, shared pages counted once per process (so an upper bound)."""
    children: dict[int, list[int]] = {}
    resident: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                resident[int(entry.name)] = int((entry / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))

    def total(of: int) -> int:
        return resident.get(of, 0) + sum(total(child) for child in children.get(of, []))

    return total(pid)
