"""What came too late is kept, and put right on request; what is not right is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cli.conftest import Headrace, headrace  # noqa: F401
from tests.collect.receiver import Receiver, signature_is_right
from tests.server.running import Running, running_server
from tests.server.streams import follow
from tests.support import wait_for
from tests.views.trusted import MINUTE, Trusted, trusted

pytestmark = pytest.mark.spark

SALES = """
CREATE STREAM sales (shop VARCHAR KEY, amount INTEGER, sold BIGINT)
  WITH (KAFKA_TOPIC='sales', TIMESTAMP='sold', PARTITIONS=2);
CREATE TABLE per_minute AS SELECT shop, COUNT(*) AS n, SUM(amount) AS total
  FROM sales WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY shop;
CREATE TABLE shortly AS SELECT shop, COUNT(*) AS n
  FROM sales WINDOW TUMBLING (SIZE 1 MINUTE, RETENTION 2 MINUTES, GRACE PERIOD 10 SECONDS) GROUP BY shop;
CREATE TABLE visits AS SELECT shop, COUNT(*) AS n, COLLECT_LIST(amount) AS amounts
  FROM sales WINDOW SESSION (20 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY shop;
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;
"""
FIRST = {"start_ms": 0, "end_ms": MINUTE}


def sale(shop: str, amount: int, sold: int) -> dict[str, Any]:
    return {"shop": shop, "amount": amount, "sold": sold}


def rows(project: Trusted, view: str, **where: Any) -> list[list[Any]]:
    project.caught_up()
    answer = project.server.http.get(f"/v1/views/{view}/rows", params={**where, "order": "windowstart"})
    found: list[list[Any]] = answer.json()["rows"]
    return found


def repair(project: Trusted, view: str, **body: Any) -> dict[str, Any]:
    answer = project.server.http.post(f"/v1/views/{view}/repair", json=body)
    assert answer.status_code == 200, answer.text
    project.caught_up()
    done: dict[str, Any] = answer.json()
    return done


def test_late_records_are_counted_by_a_repair_and_it_is_said(
    tmp_path: Path,
    spark: SparkSession,
    headrace: Headrace,  # noqa: F811
) -> None:
    with trusted(tmp_path / "project", spark, SALES) as project:
        project.send("sales", sale("a", 1, 1000), sale("b", 2, 2000), sale("a", 4, 5 * MINUTE), sale("a", 8, 3000))
        project.send("sales", sale("c", 16, 4000))
        project.compute()
        before = rows(project, "per_minute", windowstart=0)
        assert sorted(before) == [["a", 0, MINUTE, 1, 1], ["b", 0, MINUTE, 1, 2]]

        tried = repair(project, "per_minute", dry_run=True)
        assert (tried["revised"], tried["late"], rows(project, "per_minute", windowstart=0)) == (2, 2, before)

        with follow(project.server.http, "/v1/views/per_minute/feed") as feed:
            done = repair(project, "per_minute")
            changes = {event.data["key"]["shop"]: event.data for event in feed.take(2)}
        assert changes["a"]["value"] == {"n": 2, "total": 9}
        assert changes["a"]["revised"] == {"old": {"n": 1, "total": 1}}, "a subscriber is told that it is a revision"
        assert (changes["c"]["value"], changes["c"]["revised"]) == ({"n": 1, "total": 16}, {"old": None})
        assert {one["key"]["shop"]: (one["old"], one["new"]) for one in done["revisions"]} == {
            "a": ({"n": 1, "total": 1}, {"n": 2, "total": 9}),
            "c": (None, {"n": 1, "total": 16}),
        }
        revised = rows(project, "per_minute", windowstart=0)
        assert sorted(revised) == [["a", 0, MINUTE, 2, 9], ["b", 0, MINUTE, 1, 2], ["c", 0, MINUTE, 1, 16]]
        # A window that its view no longer keeps is neither missed nor put right.
        assert rows(project, "shortly") == [["a", 5 * MINUTE, 6 * MINUTE, 1]]
        assert repair(project, "shortly")["revised"] == 0
        expired = project.why("shortly", shop="a", window=0)
        assert (expired["row"], expired["recomputed"], expired["expired"]) == (None, {"n": 1}, True)
        assert expired["verdict"] == "equal"

        assert repair(project, "per_minute")["late"] == 0, "again is nothing"

        why = project.why("per_minute", shop="a", window=0)
        assert (why["verdict"], why["records"], why["late"]) == ("equal", 2, [])
        assert why["revision"]["old"] == {"n": 1, "total": 1}

        project.send("sales", sale("a", 32, 5000))
        project.compute()
        assert sorted(rows(project, "per_minute", windowstart=0)) == sorted(revised), "the query leaves it alone"
        assert [late["row"]["amount"] for late in project.why("per_minute", shop="a", window=0)["late"]] == [32]
        assert repair(project, "per_minute", dry_run=True)["late"] == 1, "the others are counted already"
        url = f"http://127.0.0.1:{project.server.port}"
        said = headrace("view", "repair", "per_minute", "--url", url)
        assert "n = 2   total = 9  →  n = 3   total = 41" in said.out
        assert "1 row revised" in said.out
        listed = project.server.http.get("/v1/views/per_minute/revisions").json()
        assert (listed["total"], listed["revisions"][0]["new"]) == (3, {"n": 3, "total": 41})
        assert project.server.http.post("/v1/views/by_shop/repair", json={}).status_code == 400

        # A store that is thrown away ends with the revised rows.
        final = sorted(rows(project, "per_minute", windowstart=0))
        project.server.services.followers.view("PER_MINUTE").damaged = True
        project.send("sales", sale("a", 1, 6 * MINUTE))
        project.compute()
        assert sorted(rows(project, "per_minute", windowstart=0)) == final


def test_a_late_visit_joins_its_session_once_that_is_closed(tmp_path: Path, spark: SparkSession) -> None:
    with trusted(tmp_path, spark, SALES) as project:
        project.send("sales", sale("a", 1, 10_000), sale("a", 2, 45_000), sale("b", 3, 5 * MINUTE))
        project.send("sales", sale("a", 4, 28_000))  # between both, but they are closed
        project.compute()
        assert rows(project, "visits", shop="a") == [["a", 10_000, 10_000, 1, [1]], ["a", 45_000, 45_000, 1, [2]]]
        done = repair(project, "visits")
        assert (done["revised"], done["late"]) == (3, 1), "one comes, and the two it is made of go"
        assert rows(project, "visits", shop="a") == [["a", 10_000, 45_000, 3, [1, 2, 4]]]
        assert project.why("visits", shop="a", window=10_000)["verdict"] == "equal"
        assert repair(project, "visits")["revised"] == 0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def test_a_planted_error_is_found_told_and_so_is_its_end(
    tmp_path: Path,
    spark: SparkSession,
    headrace: Headrace,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    receiver: Receiver,
) -> None:
    monkeypatch.setenv("HEADRACE_CALLBACK_SECRET", "between us")
    with trusted(tmp_path / "project", spark, SALES) as project:
        write_alert(project, receiver)
        project.send("sales", *(sale("abc"[n % 3], n, n * 2000) for n in range(60)), sale("a", 1, 9 * MINUTE))
        project.compute()
        check = project.server.http.post
        for view in ("per_minute", "by_shop", "visits"):
            for _ in range(2):
                body = check(f"/v1/views/{view}/check").json()
            assert (body["drifted"], body["skipped"]) == (0, 0), body
            assert body["rows"] > 0

        wrong = {"SHOP": "b", "N": 7, "TOTAL": 1, "$time": 5, "$tombstone": False}
        project.plant("PER_MINUTE", wrong | {"$window_start": MINUTE, "$window_end": 2 * MINUTE})
        project.plant("BY_SHOP", {"SHOP": "c", "N": 1, "$time": 5, "$tombstone": False})
        gone = {"SHOP": "a", "$time": 5, "$tombstone": True, "$window_start": MINUTE, "$window_end": 2 * MINUTE}
        project.plant("PER_MINUTE", gone)
        for _ in range(2):
            body = check("/v1/views/per_minute/check").json()
        found = {one["key"]["shop"]: (one["served"], one["recomputed"]) for one in body["drift"]}
        assert found["b"][0] == {"n": 7, "total": 1}
        assert found["b"][1]["n"] == 10
        assert found["a"][0] is None, "a row that is missing is drift too"
        body = check("/v1/views/by_shop/check").json()
        assert [one["served"] for one in body["drift"]] == [{"n": 1}]
        metrics = project.server.http.get("/metrics").text
        assert 'headrace_view_drift_rows{view="PER_MINUTE"} 2.0' in metrics
        assert len(project.server.events("_drift")) == 3
        told = wait_for_notices(receiver, 2)
        assert {(one["subject"], one["state"]) for one in told} == {("per_minute", "firing"), ("by_shop", "firing")}
        assert all(signature_is_right(b"between us", *got) for got in receiver.got)
        url = f"http://127.0.0.1:{project.server.port}"
        said = headrace("view", "check", "by_shop", "--url", url)
        assert said.code == 1
        assert "c   served n = 1   the log says n = 20" in said.out

        project.plant("BY_SHOP", {"SHOP": "c", "N": 20, "$time": 5, "$tombstone": False})
        assert check("/v1/views/by_shop/check").json()["drifted"] == 0
        assert headrace("view", "check", "by_shop", "--url", url).code == 0
        over = wait_for_notices(receiver, 3)[2]
        assert (over["alert"], over["subject"], over["state"]) == ("drift", "by_shop", "resolved")
        assert "drift  firing" in headrace("alert", "list", "--url", url).out
    # The next server knows what differed, and tells nobody again.
    with running_server(tmp_path / "project", sql=SALES) as server:
        wait_for(lambda: drift_now(server) == {"per_minute": 2.0, "by_shop": 0.0}, 30, "a look")
        assert server.http.get("/v1/views/per_minute/check").json()["drifted"] == 2
        assert server.http.get("/v1/alerts/drift").json()["state"] == "firing"
        assert len(receiver.got) == 3


def drift_now(server: Running) -> dict[str, float | None]:
    return {one["subject"]: one["value"] for one in server.http.get("/v1/alerts/drift").json()["subjects"]}


def write_alert(project: Trusted, receiver: Receiver) -> None:
    (project.folder / "alerts").mkdir()
    text = f'watch = "drift"\n[[to]]\nwebhook = "{receiver.url}"\n'
    (project.folder / "alerts" / "drift.toml").write_text(text)


def wait_for_notices(receiver: Receiver, count: int) -> list[dict[str, Any]]:
    wait_for(lambda: len(receiver.got) >= count, 30, f"{count} notices")
    return [json.loads(body) for body, _ in receiver.got]
