"""Repairs, checks and explanations as jobs: progress, what was done when one ended early, going on after a restart."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import DeadlineExceeded
from headrace.log.base import Append, BatchIdentity
from headrace.log.schema import arrow_type
from headrace.types import BIGINT
from headrace.views import repair
from headrace.views.subject import Served, served_rows
from tests.cli.conftest import Headrace, headrace
from tests.server.running import Running, running_server
from tests.support import wait_for

__all__ = ["headrace"]

SQL = """
CREATE STREAM sales (shop VARCHAR KEY, amount BIGINT, ts BIGINT)
  WITH (KAFKA_TOPIC='sales', VALUE_FORMAT='JSON', TIMESTAMP='ts', PARTITIONS=1);
CREATE TABLE per_minute AS SELECT shop, SUM(amount) AS total
  FROM sales WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS) GROUP BY shop;
"""
MINUTE = 60_000
WINDOWS = 10
TOML = "[views]\ncheck_every_seconds = 0\n"


def append(server: Running, topic: str, rows: list[dict[str, Any]]) -> None:
    log = server.services.log
    spec = log.topic(topic).spec
    types = {c.name: c.type for c in spec.key + spec.value}
    types |= dict.fromkeys(("$time", "$window_start", "$window_end"), BIGINT)
    columns = {name: pa.array([row[name] for row in rows], arrow_type(types[name])) for name in rows[0]}
    log.append([Append(topic, pa.record_batch(columns))]).result(60)


def sell(server: Running) -> None:
    """Ten windows with one sale each, which the query has counted, and one each that came too late."""
    sales = [{"shop": "a", "amount": 1, "ts": n * MINUTE} for n in range(WINDOWS + 1)]
    late = [{"shop": "a", "amount": 10, "ts": n * MINUTE + 1} for n in range(WINDOWS)]
    assert server.send("sales", sales + late).json()["accepted"] == 2 * WINDOWS + 1
    services = server.services
    [query] = services.catalog.queries()
    bounds = [{"$window_start": n * MINUTE, "$window_end": (n + 1) * MINUTE} for n in range(WINDOWS)]
    append(server, "PER_MINUTE", [{"SHOP": "a", "TOTAL": 1, "$time": one["$window_start"], **one} for one in bounds])
    ledger = [
        {
            "TOPIC": "sales",
            "PARTITION": 0,
            "OFFSET": WINDOWS + 1 + n,
            "STREAM_TIME": WINDOWS * MINUTE,
            "WINDOW_START": n * MINUTE,
            "WINDOW_END": (n + 1) * MINUTE,
            "LATE_BY": (WINDOWS - n - 1) * MINUTE,
            "ROW": "{}",
            "$time": n * MINUTE + 1,
        }
        for n in range(WINDOWS)
    ]
    append(server, f"_late.{query.id}", ledger)
    cut = f'{{"arrival": {services.log.snapshot().arrival}}}'
    services.log.commit("batch", [], BatchIdentity(query.id, query.version, "checkpoint", 0, cut))
    wait_for(lambda: services.followers.lag("PER_MINUTE") == 0, 60, "the view")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Running]:
    with running_server(tmp_path / "shop", TOML, SQL) as server:
        sell(server)
        yield server


@contextmanager
def at_window(number: int, act: Callable[[], None]) -> Iterator[None]:
    """Do something when a repair comes to its n-th window."""
    seen = 0

    def counted(*arguments: Any, **options: Any) -> Served:
        nonlocal seen
        seen += 1
        if seen == number:
            act()
        return served_rows(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair, "served_rows", counted)
        yield


def revised(server: Running) -> int:
    return int(server.http.get("/v1/views/per_minute/revisions").json()["total"])


def start(server: Running, **body: Any) -> dict[str, Any]:
    answer = server.http.post("/v1/views/per_minute/repair", json={"job": True, **body})
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


def wait_until_over(server: Running, job: dict[str, Any]) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found: dict[str, Any] = server.http.get(f"/v1/care/{job['id']}").json()
        return found

    wait_for(lambda: look()["state"] in ("done", "failed", "cancelled"), 60, "the job")
    return look()


def fail() -> None:
    raise DeadlineExceeded("the query took longer than `10` s")


def test_a_repair_that_fails_says_what_it_did_and_the_next_goes_on(shop: Running, headrace: Headrace) -> None:
    command = ("view", "repair", "per_minute", "--url", f"http://127.0.0.1:{shop.port}")
    tried = headrace(*command, "--dry-run")
    assert (tried.code, "10 rows would be revised: 10 late records in 10 windows" in tried.out) == (0, True), tried
    with at_window(7, fail):
        failed = headrace(*command)
    assert failed.code == 1
    assert "6 of 10 windows, 6 rows revised; run again continues" in failed.err
    assert "6 rows revised: 6 late records in 6 windows" in failed.out
    assert revised(shop) == 6
    again = headrace(*command)
    assert (again.code, "4 rows revised: 4 late records" in again.out, revised(shop)) == (0, True, 10)
    # Who waits for the answer, as older clients do, is told, too.
    rows = shop.http.get("/v1/views/per_minute/rows").json()["rows"]
    assert [row[-1] for row in rows] == [11] * WINDOWS


def test_older_clients_are_told_what_was_done(shop: Running) -> None:
    with at_window(3, fail):
        answer = shop.http.post("/v1/views/per_minute/repair", json={})
    assert answer.status_code == 408
    assert answer.json()["error"]["detail"].endswith("2 of 10 windows, 2 rows revised; run again continues")
    assert shop.http.post("/v1/views/per_minute/repair", json={}).json()["revised"] == 8


def test_one_that_runs_is_followed_and_can_be_cancelled(shop: Running, headrace: Headrace) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        reached.set()
        assert go_on.wait(60)

    with at_window(4, pause):
        job = start(shop)
        assert reached.wait(60)
        now = shop.http.get(f"/v1/care/{job['id']}").json()
        assert (now["state"], now["done"], now["all"], now["unit"]) == ("running", 3, 10, "windows")
        assert now["message"] == "3 of 10 windows, 3 rows revised"
        assert start(shop)["id"] == job["id"], "the same again is the same job"
        assert shop.http.post(f"/v1/care/{job['id']}/cancel").status_code == 200
        go_on.set()
        over = wait_until_over(shop, job)
    assert (over["state"], over["repair"]["revised"]) == ("cancelled", 4)
    assert over["message"] == "cancelled: 4 of 10 windows, 4 rows revised; run again continues"
    assert [one["id"] for one in shop.http.get("/v1/care").json()["jobs"]] == [job["id"]]
    said = headrace("view", "repair", "per_minute", "--cancel", "--url", f"http://127.0.0.1:{shop.port}")
    assert said.out == "no repair of per_minute is under way\n"
    assert shop.http.get("/v1/care/99").status_code == 404


def test_a_repair_goes_on_with_the_next_server(tmp_path: Path) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        reached.set()
        assert go_on.wait(60)

    with at_window(4, pause), running_server(tmp_path / "shop", TOML, SQL) as server:
        sell(server)
        start(server)
        assert reached.wait(60)
        # The server stops while it is under way.
        server.services.care_jobs.close()
        go_on.set()
    with running_server(tmp_path / "shop", TOML, SQL) as server:
        wait_for(lambda: revised(server) == WINDOWS, 60, "the rest of the repair")
        [job] = server.http.get("/v1/care").json()["jobs"]
        over = wait_until_over(server, job)
        assert (over["state"], over["repair"]["revised"]) == ("done", WINDOWS - 4)


def test_checks_and_explanations_are_jobs_too(shop: Running, headrace: Headrace) -> None:
    url = ("--url", f"http://127.0.0.1:{shop.port}")
    checked = headrace("view", "check", "per_minute", "--rows", "500", *url)
    assert (checked.code, "10 rows checked so far" in checked.out) == (0, True), checked
    why = headrace("view", "why", "per_minute", "a", "0", *url)
    assert (why.code, "the same ✓" in why.out, "1 record" in why.out) == (0, True, True), why
    kinds = [(job["kind"], job["state"]) for job in shop.http.get("/v1/care").json()["jobs"]]
    assert kinds == [("why", "done"), ("check", "done")]
