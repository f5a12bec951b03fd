"""A running pipeline is moved to Kafka, its processes are killed there, and it is moved back: it loses and repeats
nothing. A real broker, server, engine and Spark."""

from __future__ import annotations

import json
import os
import re
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
def shop(tmp_path: Path) -> Iterator[Shop]:
    subprocess.run([sys.executable, "-m", "headrace.cli.main", "init", "shop"], cwd=tmp_path, check=True)
    shop = Shop(tmp_path / "shop")
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


EVER = "CREATE TABLE ever AS SELECT pageid, COUNT(*) AS views FROM pageviews GROUP BY pageid REFRESH EVERY 1 DAY;"


def settings(kafka: str, prefix: str, backend: str) -> str:
    return f'[log]\nbackend = "{backend}"\n\n[log.kafka]\nbootstrap = "{kafka}"\nprefix = "{prefix}"\n'


class Traffic:
    """Sends page views, and compares what the project shows with what was sent."""

    def __init__(self, shop: Shop) -> None:
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{shop.port}", timeout=90)
        self.feed = Feed(self.http)
        self.sent: Counter[str] = Counter()

    def post(self, count: int) -> None:
        first = self.sent.total()
        events: list[dict[str, Any]] = [
            {"userid": f"u{n % 7}", "pageid": PAGES[n % 3], "viewtime": NOON + n} for n in range(first, first + count)
        ]
        if first == 0:
            # One comes by way of the dead letters.
            events[0]["userid"] = 7
        answer = self.http.post("/v1/topics/pageviews/events", json=events)
        assert answer.status_code == 200, answer.text
        assert answer.json()["accepted"] + self._redrive() == count
        self.sent.update(event["pageid"] for event in events)

    def _redrive(self) -> int:
        order = {"set": {"userid": "userid"}}
        accepted: int = self.http.post("/v1/topics/pageviews/dead-letters/redrive", json=order).json()["accepted"]
        return accepted

    def follow(self) -> None:
        """Read the feed up to what was sent; each change adds to the one before, none comes twice."""
        self.feed.read_until(self.sent)
        for page in PAGES:
            views = [c["value"]["views"] for c in self.feed.changes if c["key"]["pageid"] == page]
            assert views == sorted(set(views))

    def check_tables(self) -> None:
        self._wait_for_counts("views_by_page")
        self._wait_for_counts("ever")
        minutes = "SELECT pageid, views FROM views_per_minute;"
        wait_for(lambda: sum(row[1] for row in self._rows(minutes)) == self.sent.total(), 60, "the windowed table")

    def wait_for_refreshes(self) -> None:
        """The first refresh of a Lambda view is made by itself, and there is only one at a time."""

        def over() -> bool:
            made = self.http.get("/v1/deployments").json()["deployments"]
            return bool(made) and {one["stage"] for one in made} == {"switched"}

        wait_for(over, 60, "the refreshes to be over")

    def _wait_for_counts(self, view: str) -> None:
        sql = f"SELECT pageid, views FROM {view};"
        wait_for(lambda: dict(self._rows(sql)) == self.sent, 60, f"what was sent in {view}")

    def _rows(self, sql: str) -> list[list[Any]]:
        answer = self.http.post("/v1/query", json={"sql": sql})
        rows: list[list[Any]] = answer.raise_for_status().json()["rows"]
        return rows


def kill(shop: Shop, role: str) -> None:
    pid = shop.pid(role)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def test_a_pipeline_moves_to_kafka_survives_kills_and_moves_back(kafka: str, shop: Shop) -> None:
    prefix, file = kafka_settings(kafka).kafka.prefix, shop.folder / "headrace.toml"
    file.write_text(settings(kafka, prefix, "local"))
    (shop.folder / "pipelines" / "ever.sql").write_text(EVER)
    traffic = Traffic(shop)
    start(shop)
    traffic.post(300)
    traffic.follow()
    traffic.wait_for_refreshes()
    shop.run("view", "refresh", "ever")
    # Copied ahead, while it runs.
    shop.run("log", "copy", "--to", "kafka")
    traffic.post(150)
    traffic.follow()
    traffic.check_tables()
    shop.run("down")
    moved = shop.json("log", "copy", "--to", "kafka")
    assert moved["records"] > 0
    assert moved["queries"] >= 3, "and those of versions that are kept for a while"

    file.write_text(settings(kafka, prefix, "kafka"))
    start(shop)
    assert "is filled again" not in shop.logs()
    traffic.check_tables()
    traffic.post(120)
    traffic.follow()
    traffic.wait_for_refreshes()
    shop.run("view", "refresh", "ever")
    traffic.check_tables()
    page = traffic.http.get("/v1/topics/pageviews/events", params={"limit": 1000, "from": "oldest"}).json()["events"]
    assert len({event["value"]["viewtime"] for event in page}) == len(page) == 570
    assert all(event["arrival"] is None for event in page)
    # The engine dies in the middle of things; what it had not committed it does again.
    for _ in range(5):
        traffic.post(20)
    kill(shop, "engine")
    traffic.post(100)
    traffic.follow()
    # The server too; the feed continues with the next one.
    kill(shop, "server")
    wait_for(shop.ready, 180, "the project to be up again")
    traffic.post(30)
    traffic.follow()
    traffic.check_tables()
    assert {query["state"] for query in traffic.http.get("/v1/queries").json()["queries"]} == {"running"}
    # Whoever was killed when, the number is what the log says.
    said = shop.run("view", "why", "views_by_page", PAGES[0]).stdout
    assert "through pageviews 0:" in said
    assert "the same ✓" in said

    # And back, into a new local log; what had been read ahead is not read again.
    (shop.project.data / "log").rename(shop.project.data / "log-before")
    assert shop.json("log", "copy", "--to", "local")["records"] > 800
    traffic.post(60)
    traffic.follow()
    traffic.check_tables()
    shop.run("down")
    moved = shop.json("log", "copy", "--to", "local")
    assert moved["records"] > 0
    assert moved["behind"] == []
    file.write_text(settings(kafka, prefix, "local"))
    start(shop)
    # Where a batch layer ends has no number there: that part of a Lambda view is read again.
    assert set(re.findall(r"view `(.+?)` v\d+ is filled again", shop.logs())) <= {"EVER batch"}
    traffic.check_tables()
    traffic.post(90)
    traffic.follow()
    traffic.wait_for_refreshes()
    shop.run("view", "refresh", "ever")
    traffic.check_tables()
