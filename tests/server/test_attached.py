"""Functions on topics: called with records, tried again, halved, and written once whatever is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.coordinate.functions import deploy_functions
from tests.server.running import Running, running_server
from tests.support import wait_for

pytestmark = pytest.mark.slow

FUNCTIONS = '''
import os
from headrace import on_topic

@on_topic("users", to="adults", batch=10, retries=1, start="earliest")
def adults(records):
    """Those who may vote."""
    assert len(records) <= 10
    return [
        {"id": record.key, "name": record.value["name"].upper(), "age": record.value["age"]}
        for record in records
        if record.value["age"] >= 18
    ]

@on_topic("users", batch=4, retries=0, start="earliest", seconds=1)
def ends_its_process(records):
    if any(record.key == "u7" for record in records):
        os._exit(3)

@on_topic("nowhere", to="adults")
def waits(records):
    return []
'''
TOPICS = """
CREATE TABLE users (id VARCHAR PRIMARY KEY, name VARCHAR, age INTEGER)
  WITH (KAFKA_TOPIC='users', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE STREAM adults (id VARCHAR KEY, name VARCHAR, age INTEGER)
  WITH (KAFKA_TOPIC='adults', VALUE_FORMAT='JSON', PARTITIONS=1);
"""


def write_functions(folder: Path) -> None:
    (folder / "functions").mkdir(exist_ok=True)
    (folder / "functions" / "people.py").write_text(FUNCTIONS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("attached")
    write_functions(folder)
    with running_server(folder, sql=TOPICS) as running:
        yield running


def statuses(server: Running) -> dict[str, dict[str, Any]]:
    found = server.http.get("/v1/functions").json()["functions"]
    return {one["status"]["name"]: one["status"] | {"lag": one["lag"]} for one in found}


def test_a_function_is_called_with_a_topics_records_and_what_it_makes_is_written(server: Running) -> None:
    users = [{"id": f"u{n}", "name": f"name {n}", "age": 10 + n} for n in range(20)]
    # `name` is missing: the function fails for this one alone.
    server.send("users", [*users, {"id": "u99", "age": 50}])
    wait_for(lambda: statuses(server)["adults"]["records"] >= 21, 30, "the function")
    found = {event["value"]["name"] for event in server.events("adults")}
    assert found == {f"NAME {n}" for n in range(8, 20)}
    assert len(server.events("adults")) == 12
    [letter] = [one for one in server.dead_letters("users") if one["source"].startswith("function adults ")]
    assert "AttributeError" in letter["reason"]
    assert "functions/people.py line 1" in letter["reason"]
    now = statuses(server)["adults"]
    assert (now["state"], now["written"], now["rejected"], now["lag"]) == ("running", 12, 1, 0)
    assert now["tried_again"] >= 1
    assert "headrace_function_records" in server.http.get("/metrics").text


def test_a_function_that_ends_its_process_hurts_nobody_but_the_record(server: Running) -> None:
    wait_for(lambda: statuses(server)["ends_its_process"]["records"] >= 21, 30, "the function")
    letters = [one for one in server.dead_letters("users") if one["source"].startswith("function ends_its_process ")]
    assert len(letters) == 1
    assert "ended the process" in letters[0]["reason"]


def test_a_function_waits_for_its_topic(server: Running) -> None:
    wait_for(lambda: statuses(server)["waits"]["state"] == "waiting", 30, "the state")
    assert "nowhere" in statuses(server)["waits"]["error"]


def test_a_function_is_tried_with_some_records_and_nothing_is_written(server: Running) -> None:
    before = len(server.events("adults"))
    tried = server.http.post("/v1/functions/adults/try", json={"limit": 50, "oldest": True}).json()
    assert len(tried["made"]) == 12
    assert [one["error"].partition(":")[0] for one in tried["failed"]] == ["AttributeError"]
    assert len(server.events("adults")) == before
    assert server.http.post("/v1/functions/none/try", json={}).status_code == 404


def test_a_function_goes_on_where_it_was(tmp_path: Path) -> None:
    write_functions(tmp_path)
    with running_server(tmp_path, sql=TOPICS) as server:
        server.send("users", [{"id": "a", "name": "a", "age": 30}])
        wait_for(lambda: statuses(server)["adults"]["written"] == 1, 30, "the function")
    with running_server(tmp_path, sql=TOPICS) as server:
        server.send("users", [{"id": "b", "name": "b", "age": 30}])
        wait_for(lambda: statuses(server)["adults"]["written"] == 1, 30, "the function")
        assert [event["value"]["name"] for event in server.events("adults")] == ["A", "B"]


def test_a_changed_function_takes_over_when_it_is_deployed(tmp_path: Path) -> None:
    write_functions(tmp_path)
    with running_server(tmp_path, sql=TOPICS) as server:
        server.send("users", [{"id": "a", "name": "a", "age": 30}])
        wait_for(lambda: statuses(server)["adults"]["written"] == 1, 30, "the function")
        text = FUNCTIONS.replace(".upper()", ".title() + '!'")
        (tmp_path / "functions" / "people.py").write_text(text)
        project = server.services.project
        files = {"functions/people.py": text, "pipelines/all.sql": TOPICS}
        plan = server.http.post("/v1/plan", json={"files": files}).json()
        assert {(one["name"], one["verdict"]) for one in plan["functions"]} >= {("adults", "changed")}
        deploy_functions(project.folder, server.services.catalog, server.services.statements.describe)
        wait_for(lambda: statuses(server)["adults"]["written"] == 0, 30, "the new function")
        server.send("users", [{"id": "b", "name": "b", "age": 30}])
        wait_for(lambda: len(server.events("adults")) == 2, 30, "its output")
        assert [event["value"]["name"] for event in server.events("adults")] == ["A", "B!"]


SLOW = """
import pathlib, time
from headrace import on_topic

@on_topic("users", batch=1, start="earliest", seconds=300)
def slow(records):
    here = pathlib.Path("{folder}")
    (here / "begun").touch()
    while not (here / "go").exists():
        time.sleep(0.05)
"""


def test_nobody_waits_for_a_slow_call_of_a_function_that_is_replaced(tmp_path: Path) -> None:
    """What asks how the functions are, the metrics among them, does not take as long as their calls."""
    text = SLOW.replace("{folder}", str(tmp_path))
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "people.py").write_text(text)
    with running_server(tmp_path, sql=TOPICS) as server:
        services = server.services
        server.send("users", [{"id": "a", "name": "a", "age": 30}])
        wait_for((tmp_path / "begun").exists, 30, "a call")
        [old] = services.attached._workers.values()
        (tmp_path / "functions" / "people.py").write_text(text + "# another text\n")
        deploy_functions(services.project.folder, services.catalog, services.statements.describe)
        wait_for(old.stop.is_set, 30, "the end of the old one to be asked for")
        try:
            assert server.http.get("/metrics", timeout=20).status_code == 200
            assert statuses(server)["slow"]["calls"] == 1, "and it is there until it has ended"
        finally:
            (tmp_path / "go").touch()
        wait_for(lambda: services.attached._workers["slow"] is not old, 30, "the new one")


def test_letters_go_through_a_function_that_was_mended(tmp_path: Path) -> None:
    """Over HTTP, as the console and `headrace dlq redrive` ask for it."""
    write_functions(tmp_path)
    with running_server(tmp_path, sql=TOPICS) as server:
        server.send("users", [{"id": "a", "name": None, "age": 30}])
        wait_for(lambda: statuses(server)["adults"]["rejected"] == 1, 30, "the letter")
        path, order = "/v1/topics/users/dead-letters/redrive", {"where": "source LIKE 'function adults %'"}
        [sample] = server.http.post(path, json=order | {"preview": True}).json()["samples"]
        assert (sample["outcome"], "AttributeError" in sample["reason"]) == ("rejected", True)
        text = FUNCTIONS.replace('record.value["name"].upper()', '(record.value["name"] or "?").upper()')
        (tmp_path / "functions" / "people.py").write_text(text)
        services = server.services
        deploy_functions(services.project.folder, services.catalog, services.statements.describe)
        done = server.http.post(path, json=order).json()
        assert (done["accepted"], done["rejected"]) == (1, 0)
        assert [event["value"]["name"] for event in server.events("adults")] == ["?"]
        assert server.http.post(path, json=order).json()["matched"] == 0
