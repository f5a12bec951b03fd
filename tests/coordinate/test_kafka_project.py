"""The demo pipeline on Kafka: a real broker, server, engine and Spark, and kill -9 in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.coordinate.local import is_held
from tests.cli.test_up import Shop
from tests.kafka import kafka_settings
from tests.support import wait_for

pytestmark = pytest.mark.slow

NOON = 1_700_000_000_000
PAGES = ("/hello", "/pricing", "/docs")


@pytest.fixture
def shop(kafka: str, tmp_path: Path) -> Iterator[Shop]:
    subprocess.run([sys.executable, "-m", "headrace.cli.main", "init", "shop"], cwd=tmp_path, check=True)
    shop = Shop(tmp_path / "shop")
    prefix = kafka_settings(kafka).kafka.prefix
    settings = f'[log]\nbackend = "kafka"\n\n[log.kafka]\nbootstrap = "{kafka}"\nprefix = "{prefix}"\n'
    (shop.folder / "headrace.toml").write_text(settings)
    try:
        yield shop
    finally:
        if is_held(shop.project.data):
            shop.run("down")


class Feed:
    """A client that reads a view's feed over HTTP, lets go, and continues where it was."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.last_id: str | None = None
        self.changes: list[dict[str, Any]] = []

    def move(self, http: httpx.Client) -> None:
        self._http = http

    def read_until(self, views: Counter[str]) -> None:
        """Until the changes add up to these views."""
        headers = {"Last-Event-ID": self.last_id} if self.last_id else {}
        path = "/v1/views/views_by_page/feed?from=beginning"
        event: dict[str, str] = {}
        with self._http.stream("GET", path, headers=headers, timeout=120) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    event[name] = value
                    continue
                self._take(event)
                event = {}
                if self.counts() == views:
                    return

    def _take(self, event: dict[str, str]) -> None:
        if event.get("event") == "change":
            self.changes.append(json.loads(event["data"]))
        assert event.get("event") != "cut", event
        self.last_id = event.get("id", self.last_id)

    def counts(self) -> dict[str, int]:
        return {change["key"]["pageid"]: change["value"]["views"] for change in self.changes}


def start(shop: Shop) -> None:
    """However long it takes: the brokers share the machine."""
    command = [sys.executable, "-m", "headrace.cli.main", "up", "--detach", "--port", str(shop.port)]
    subprocess.run(command, cwd=shop.folder, capture_output=True, timeout=180, check=False)
    wait_for(shop.ready, 180, "the project to be up")


def test_counted_once_whoever_is_killed(shop: Shop) -> None:
    start(shop)
    sent: Counter[str] = Counter()
    with httpx.Client(base_url=f"http://127.0.0.1:{shop.port}", timeout=90) as http:

        def post(first: int, count: int) -> None:
            numbers = range(first, first + count)
            events = [
                {"userid": f"u{n % 7}", "pageid": PAGES[n % 3], "viewtime": 1_700_000_000_000 + n} for n in numbers
            ]
            answer = http.post("/v1/topics/pageviews/events", json=events)
            assert answer.status_code == 200, answer.text
            assert answer.json()["accepted"] == count
            sent.update(PAGES[n % 3] for n in numbers)

        feed = Feed(http)
        for number in range(5):
            post(100 * number, 100)
        feed.read_until(sent)
        # The engine dies in the middle of things; what it had not committed it does again.
        for number in range(5, 10):
            post(100 * number, 100)
        engine = shop.pid("engine")
        assert engine is not None
        os.kill(engine, signal.SIGKILL)
        post(1000, 100)
        feed.read_until(sent)
        assert feed.counts() == sent
        # Every change of a page adds to it: a feed that repeated or missed one would not.
        for page in PAGES:
            views = [c["value"]["views"] for c in feed.changes if c["key"]["pageid"] == page]
            assert views == sorted(set(views))
        assert shop.views() == sent
        # The server too; the feed continues with the next one.
        server = shop.pid("server")
        assert server is not None
        os.kill(server, signal.SIGKILL)
        wait_for(shop.ready, 180, "the project to be up again")
        post(1100, 100)
        feed.read_until(sent)
        assert shop.views() == sent
        events = http.get("/v1/topics/pageviews/events", params={"limit": 10, "from": "newest"}).json()["events"]
        assert len(events) == 10
        assert all(event["arrival"] is None for event in events)
        assert {query["state"] for query in http.get("/v1/queries").json()["queries"]} == {"running"}
        # Whoever was killed when, the number is what the log says.
        said = shop.run("view", "why", "views_by_page", PAGES[0]).stdout
        assert "through pageviews 0:" in said
        assert "the same ✓" in said
