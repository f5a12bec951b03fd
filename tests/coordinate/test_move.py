"""A running pipeline is moved to Kafka and back, and loses and repeats nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.coordinate.local import is_held
from tests.cli.test_up import Shop
from tests.coordinate.test_kafka_project import NOON, PAGES, Feed, start
from tests.kafka import kafka_settings
from tests.support import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    subprocess.run([sys.executable, "-m", "headrace.cli.main", "init", "shop"], cwd=tmp_path, check=True)
    shop = Shop(tmp_path / "shop")
    try:
        yield shop
    finally:
        if is_held(shop.project.data):
            shop.run("down")


EVER = "CREATE TABLE ever AS SELECT pageid, COUNT(*) AS views FROM pageviews GROUP BY pageid REFRESH EVERY 1 DAY;"


def settings(kafka: str, prefix: str, backend: str) -> str:
    return f'[log]\nbackend = "{backend}"\n\n[log.kafka]\nbootstrap = "{kafka}"\nprefix = "{prefix}"\n'


def test_a_pipeline_moves_there_and_back_and_goes_on(kafka: str, shop: Shop) -> None:
    prefix, file = kafka_settings(kafka).kafka.prefix, shop.folder / "headrace.toml"
    file.write_text(settings(kafka, prefix, "local"))
    (shop.folder / "pipelines" / "ever.sql").write_text(EVER)
    sent: Counter[str] = Counter()
    per_minute = "SELECT pageid, views FROM views_per_minute;"

    def post(http: httpx.Client, first: int, count: int) -> None:
        numbers = range(first, first + count)
        events = [{"userid": f"u{n % 7}", "pageid": PAGES[n % 3], "viewtime": NOON + n} for n in numbers]
        if first == 0:
            # One comes by way of the dead letters.
            events[0]["userid"] = 7
        accepted = http.post("/v1/topics/pageviews/events", json=events).json()["accepted"]
        assert accepted + redriven(http) == count
        sent.update(PAGES[n % 3] for n in numbers)

    def both_layers_have_it(refresh: bool = False) -> None:
        """The Lambda view shows what was sent, before and after its batch layer is computed again here."""
        wait_for(lambda: dict(shop.sql("SELECT pageid, views FROM ever;")) == sent, 60, "the Lambda view")
        if refresh:
            shop.run("view", "refresh", "ever")
            both_layers_have_it()

    def redriven(http: httpx.Client) -> int:
        order = {"set": {"userid": "userid"}}
        accepted: int = http.post("/v1/topics/pageviews/dead-letters/redrive", json=order).json()["accepted"]
        return accepted

    start(shop)
    with httpx.Client(base_url=f"http://127.0.0.1:{shop.port}", timeout=90) as http:
        feed = Feed(http)
        post(http, 0, 300)
        feed.read_until(sent)
        both_layers_have_it(refresh=True)
        # Copied ahead, while it runs.
        shop.run("log", "copy", "--to", "kafka")
        post(http, 300, 150)
        feed.read_until(sent)
        wait_for(lambda: sum(row[1] for row in shop.sql(per_minute)) == 450, 60, "the windowed table")
    shop.run("down")
    moved = shop.json("log", "copy", "--to", "kafka")
    assert moved["records"] > 0
    assert moved["queries"] >= 3, "and those of versions that are kept for a while"
    file.write_text(settings(kafka, prefix, "kafka"))
    start(shop)
    assert "is filled again" not in shop.logs()
    with httpx.Client(base_url=f"http://127.0.0.1:{shop.port}", timeout=90) as http:
        assert shop.views() == sent
        both_layers_have_it()
        feed.move(http)
        post(http, 450, 120)
        feed.read_until(sent)
        assert shop.views() == sent
        both_layers_have_it(refresh=True)
        # The counts went on from where they were: each change adds to the one before, none came twice.
        for page in PAGES:
            views = [c["value"]["views"] for c in feed.changes if c["key"]["pageid"] == page]
            assert views == sorted(set(views))
        wait_for(lambda: sum(row[1] for row in shop.sql(per_minute)) == 570, 60, "the windowed table")
        page = http.get("/v1/topics/pageviews/events", params={"limit": 1000, "from": "oldest"}).json()["events"]
        assert len({event["value"]["viewtime"] for event in page}) == len(page) == 570
        # And back, into a new local log; what had been read ahead is not read again.
        (shop.project.data / "log").rename(shop.project.data / "log-before")
        assert shop.json("log", "copy", "--to", "local")["records"] > 570
        post(http, 570, 60)
        feed.read_until(sent)
        wait_for(lambda: sum(row[1] for row in shop.sql(per_minute)) == 630, 60, "the windowed table")
    shop.run("down")
    moved = shop.json("log", "copy", "--to", "local")
    assert moved["records"] > 0
    assert moved["behind"] == []
    file.write_text(settings(kafka, prefix, "local"))
    start(shop)
    # Where a batch layer ends has no number there: that part of a Lambda view is read again.
    assert set(re.findall(r"view `(.+?)` v\d+ is filled again", shop.logs())) <= {"EVER batch"}
    with httpx.Client(base_url=f"http://127.0.0.1:{shop.port}", timeout=90) as http:
        assert shop.views() == sent
        both_layers_have_it()
        feed.move(http)
        post(http, 630, 90)
        feed.read_until(sent)
        assert shop.views() == sent
        both_layers_have_it(refresh=True)
        for page in PAGES:
            views = [c["value"]["views"] for c in feed.changes if c["key"]["pageid"] == page]
            assert views == sorted(set(views))
        wait_for(lambda: sum(row[1] for row in shop.sql(per_minute)) == 720, 60, "the windowed table")
