"""The demo's website: realistic enough to show every room of the console, and careful with what it sends."""

from __future__ import annotations

import http.server
import itertools
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import wait_for

FILE = Path(__file__).parents[2] / "examples" / "pageviews" / "generator.py"
GENERATOR = runpy.run_path(str(FILE))
START_S = 1_790_000_000.0


def views(seconds: int, seed: int = 1, rate: float = 300) -> list[list[dict[str, Any]]]:
    """One batch per tenth of a second, without waiting."""
    traffic = GENERATOR["Traffic"](GENERATOR["Website"](random.Random(seed)), rate, random.Random(seed + 1))
    moments = [START_S + tick / 10 for tick in range(seconds * 10 + 1)]
    return [traffic.batch(now, before) for before, now in itertools.pairwise(moments)]


def test_the_same_seed_is_the_same_website() -> None:
    assert views(5) == views(5)
    assert views(5) != views(5, seed=2)


def test_pages_follow_zipf_and_visitors_have_sessions() -> None:
    sent = [view for batch in views(120) for view in batch]
    pages = Counter(view["pageid"] for view in sent)
    assert pages["/"] > pages["/pricing"] > pages["/login"] > pages["/legal/terms"] > 0
    sessions = Counter(view["sessionid"] for view in sent)
    assert 2 < len(sent) / len(sessions) < 12
    assert {view["device"] for view in sent} == {"phone", "desktop", "tablet"}
    assert any(view["referrer"] and "shop.example" in view["referrer"] for view in sent)
    assert any(view["referrer"] is None for view in sent)


@pytest.mark.slow
def test_the_rate_is_about_right_and_there_are_bursts() -> None:
    counts = [len(batch) for batch in views(600)]
    expected = 300 * GENERATOR["rhythm"](START_S + 300)
    assert 0.9 * expected < sum(counts) / 600 < 1.6 * expected
    seconds = [sum(counts[i : i + 10]) for i in range(0, len(counts), 10)]
    assert max(seconds) > 2.5 * sorted(seconds)[len(seconds) // 2]


def test_some_are_out_of_order_and_a_few_are_late() -> None:
    behind = []
    newest = 0
    for batch in views(300):
        for view in batch:
            newest = max(newest, view["viewtime"])
            behind.append(newest - view["viewtime"])
    out_of_order = sum(lag > 500 for lag in behind) / len(behind)
    late = sum(lag > 70_000 for lag in behind) / len(behind)
    assert 0.01 < out_of_order < 0.06
    assert 0.0003 < late < 0.005


class Flaky(http.server.BaseHTTPRequestHandler):
    """Takes every batch at the second try: first busy, then broken, then well."""

    tries: Counter[str]
    taken: dict[str, int]

    def do_POST(self) -> None:
        key = self.headers["Idempotency-Key"]
        count = len(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.tries[key] += 1
        if self.tries[key] == 1 and len(self.tries) % 3 == 0:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status = 429 if self.tries[key] == 1 and len(self.tries) % 5 == 1 else 200
        if status == 200:
            self.taken[key] = count
        body = json.dumps({"accepted": count, "duplicates": 0} if status == 200 else {"error": {"message": "busy"}})
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def flaky() -> Iterator[tuple[str, type[Flaky]]]:
    handler = type("Handler", (Flaky,), {"tries": Counter(), "taken": {}, "protocol_version": "HTTP/1.1"})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", handler
    server.shutdown()
    server.server_close()


def test_it_tries_again_with_the_same_key_until_each_batch_is_taken(flaky: tuple[str, type[Flaky]]) -> None:
    url, handler = flaky
    command = [sys.executable, str(FILE), "--url", url, "--count", "300", "--rate", "500", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "generator: 300 page views sent (seed 7)" in done.stderr
    assert sum(handler.taken.values()) == 300
    assert max(handler.tries.values()) == 2
    assert set(handler.tries) == set(handler.taken)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_cleanly_even_when_nobody_answers(number: signal.Signals) -> None:
    command = [sys.executable, str(FILE), "--url", "http://127.0.0.1:9", "--rate", "500"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "does not answer" in process.stderr.readline()
    os.kill(process.pid, number)
    wait_for(lambda: process.poll() is not None, 10, "the generator to stop")
    assert process.returncode == 0
    assert "0 page views sent" in process.stderr.read()
