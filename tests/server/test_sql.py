"""Statements, queries, views and topics over HTTP, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.running import Running, running_server
from tests.support import wait_for


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Three people in the view `users`."""
    with running_server(tmp_path_factory.mktemp("people")) as server:
        rows = [("u1", "Ann", 41), ("u2", "Bob", 7), ("u3", "Cy", None)]
        server.send("users", [{"id": id_, "name": name, "age": age} for id_, name, age in rows])
        wait_for(lambda: server.http.get("/v1/views/users").json()["lag"] == 0, 10, "the view")
        yield server


def ask(server: Running, sql: str, **more: Any) -> dict[str, Any]:
    answer = server.http.post("/v1/query", json={"sql": sql, **more})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_a_pull_query_has_an_address(people: Running) -> None:
    answer = ask(people, "SELECT id, age FROM users WHERE id = 'u1';")
    assert answer["columns"] == [{"name": "id", "type": "VARCHAR"}, {"name": "age", "type": "INTEGER"}]
    assert answer["rows"] == [["u1", 41]]
    assert (answer["view"], answer["version"], answer["truncated"]) == ("users", 1, False)
    assert sum(answer["through"]["offsets"].values()) == 3


def test_limits_say_that_there_is_more(people: Running) -> None:
    assert ask(people, "SELECT id FROM users;", limit=2)["truncated"]
    assert not ask(people, "SELECT id FROM users LIMIT 2;")["truncated"]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("id=u2", ["u2"]),
        ("NAME=Ann&age=41", ["u1"]),
        ("age=7.0", ["u2"]),
        ("order=-id&limit=2", ["u3", "u2"]),
        ("order=age", ["u3", "u2", "u1"]),
        ("name=O'Neil", []),
        ("name='; DROP TABLE users; --", []),
    ],
)
def test_rows_by_address(people: Running, query: str, ids: list[str]) -> None:
    answer = people.http.get(f"/v1/views/users/rows?{query}")
    assert answer.status_code == 200, answer.text
    assert [row[0] for row in answer.json()["rows"]] == ids


def test_statements_stop_at_the_first_error(people: Running) -> None:
    sql = "CREATE STREAM one (a INT) WITH (KAFKA_TOPIC='one', PARTITIONS=1); DROP STREAM two; DROP STREAM one;"
    answer = people.http.post("/v1/statements", json={"sql": sql})
    assert answer.status_code == 400
    body = answer.json()
    assert [result["kind"] for result in body["results"]] == ["created"]
    assert (body["error"]["statement"], body["error"]["code"]) == (1, "sql")
    assert [topic["name"] for topic in people.http.get("/v1/topics").json()["topics"]] == ["one", "pageviews", "users"]


def test_a_plan_can_be_drawn(people: Running) -> None:
    sql = "EXPLAIN SELECT name, COUNT(*) AS n FROM users GROUP BY name EMIT CHANGES;"
    [result] = people.http.post("/v1/statements", json={"sql": sql}).json()["results"]
    steps = [result["plan"]]
    while steps[-1]["inputs"]:
        steps += steps[-1]["inputs"]
    assert [step["title"].split()[0] for step in steps] == ["PUSH", "PROJECT", "AGGREGATE", "SCAN"]
    assert ["by", "NAME"] in steps[2]["details"]
    assert all(step["title"] in result["text"] for step in steps)


def test_variables_are_put_in(people: Running) -> None:
    body = {"sql": "DESCRIBE ${name};", "variables": {"name": "users"}}
    answer = people.http.post("/v1/statements", json=body)
    assert answer.status_code == 200, answer.text


def test_validation_plans_without_doing(people: Running) -> None:
    sql = "CREATE STREAM draft (a INT) WITH (KAFKA_TOPIC='d', PARTITIONS=1); SELECT a FROM draft;"
    good = people.http.post("/v1/validate", json={"sql": sql}).json()
    assert good["ok"]
    first, second = good["statements"]
    assert (first["kind"], second["kind"]) == ("CreateSource", "SelectStatement")
    assert sql[second["start"] : second["end"]] == "SELECT a FROM draft;"
    bad = people.http.post("/v1/validate", json={"sql": "SELECT nome\nFROM userz;"}).json()
    assert (bad["ok"], bad["error"]["line"], bad["error"]["column"], bad["error"]["length"]) == (False, 2, 6, 5)
    assert "draft" not in {source["name"] for source in people.http.get("/v1/sources").json()["sources"]}


def test_completions(people: Running) -> None:
    found = people.http.get("/v1/completions").json()
    assert {"SELECT", "TUMBLING", "EMIT"} <= set(found["keywords"])
    assert any(function["name"] == "COUNT" for function in found["functions"])
    [users] = [source for source in found["sources"] if source["name"] == "users"]
    assert [column["name"] for column in users["columns"]] == ["id", "name", "age"]


def test_a_topic_in_full(people: Running) -> None:
    people.send("users", {"id": 7})
    topic = people.http.get("/v1/topics/users").json()
    assert topic["columns"] == [
        {"name": "id", "type": "VARCHAR", "key": True},
        {"name": "name", "type": "VARCHAR", "key": False},
        {"name": "age", "type": "INTEGER", "key": False},
    ]
    assert (topic["records"], topic["dead_letters"], topic["sources"], topic["role"]) == (3, 1, ["users"], "events")
    assert sum(partition["end"] for partition in topic["partitions"]) == 3
    assert topic["bytes"] > 0


def test_events_from_somewhere(people: Running) -> None:
    times = [1000, 2000, 3000]
    people.send("pageviews", [{"userid": "same", "viewtime": time} for time in times])
    everything = people.events("pageviews")
    partition = everything[0]["partition"]

    def read(**query: Any) -> list[int]:
        answer = people.http.get("/v1/topics/pageviews/events", params=query)
        assert answer.status_code == 200, answer.text
        return [event["time_ms"] for event in answer.json()["events"]]

    assert read() == [3000, 2000, 1000]
    assert read(limit=2) == [3000, 2000]
    assert read(**{"from": "oldest", "limit": 2}) == [1000, 2000]
    assert read(**{"from": 1, "partition": partition}) == [2000, 3000]
    assert read(**{"from": "2026-01-01T00:00:00Z"}) == []
    assert 3000 in read(**{"from": "1970-01-01T00:00:02+00:00"})
    assert read(partition=1 - partition) == []


def test_overview_metrics_and_readiness(people: Running) -> None:
    overview = people.http.get("/v1/overview").json()
    nodes = {node["id"]: node for node in overview["nodes"]}
    assert {"collector:http", "topic:pageviews", "topic:users", "view:users"} <= set(nodes)
    edges = {(edge["from"], edge["to"]) for edge in overview["edges"]}
    assert {("collector:http", "topic:users"), ("topic:users", "view:users")} <= edges
    assert overview["totals"]["dead_letters"] == people.http.get("/v1/topics/users").json()["dead_letters"]
    assert overview["engine"]["state"] == "gone"
    ready = people.http.get("/readyz")
    assert (ready.status_code, ready.json()) == (503, {"waiting_for": ["the engine"], "problems": [], "failed": []})
    metrics = people.http.get("/metrics").text
    assert 'headrace_events_total{outcome="accepted",topic="users"} 3.0' in metrics
    assert 'headrace_topic_records_total{topic="users"} 3.0' in metrics
    assert 'headrace_view_lag_records{view="USERS"} 0.0' in metrics


@pytest.mark.slow
def test_rates_rise_and_fall(people: Running) -> None:
    def rate() -> float:
        found: float = people.http.get("/v1/topics/pageviews").json()["rate"]
        return found

    def risen() -> bool:
        # Again and again: of what came once a busy machine may hear when it is over.
        people.send("pageviews", [{"userid": "r"}] * 1000)
        return rate() > 50

    wait_for(risen, 15, "the rate to rise")
    wait_for(lambda: rate() == 0, 15, "the rate to fall")
    assert people.http.get("/v1/topics/pageviews").json()["records"] >= 1000


def test_a_query_that_never_ends_is_cancelled_and_the_server_answers_meanwhile(tmp_path: Path) -> None:
    """One row whose evaluation takes minutes: nothing looks at the clock before it is done."""
    with running_server(tmp_path, "[server]\nquery_seconds = 0.5\n") as server:
        server.send("users", [{"id": "u1", "name": "Ann", "age": 41}])
        wait_for(lambda: server.http.get("/v1/views/users").json()["lag"] == 0, 10, "the view")
        inner = "REDUCE(GENERATE_SERIES(1, 1000000), 0, (a, x) => a + x)"
        sql = f"SELECT TRANSFORM(GENERATE_SERIES(1, 1000), y => y + {inner}) FROM users;"
        answers: list[Any] = []
        asking = threading.Thread(
            target=lambda: answers.append(server.http.post("/v1/query", json={"sql": sql}, timeout=120))
        )
        asking.start()
        healthy = 0
        while asking.is_alive():
            healthy += server.http.get("/healthz", timeout=60).status_code == 200
        asking.join()
        [answer] = answers
        assert answer.status_code == 408, answer.text
        assert answer.json()["error"]["code"] == "deadline"
        assert healthy > 0
        assert "headrace_queries_cancelled_total 1.0" in server.http.get("/metrics").text
        assert ask(server, "SELECT id FROM users;")["rows"] == [["u1"]]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)+$"])
def test_no_pattern_stops_the_server(people: Running, pattern: str) -> None:
    text = "a" * 60 + "!"
    assert ask(people, f"SELECT REGEXP_EXTRACT('{pattern}', '{text}') FROM users LIMIT 1;")["rows"] == [[None]]
    found = people.http.get(
        "/v1/topics/users/records", params={"where": f"REGEXP_EXTRACT('{pattern}', '{text}') = 'a'"}
    )
    assert found.json()["records"] == []


def test_a_pattern_that_re2_does_not_have_is_refused(people: Running) -> None:
    answer = people.http.post("/v1/query", json={"sql": "SELECT REGEXP_EXTRACT('a(?=b)', name) FROM users;"})
    assert answer.status_code == 400
    assert "uses lookaround, which RE2 does not have" in answer.json()["error"]["message"]
