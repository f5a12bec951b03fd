"""Collectors over the API: listed with their counts, tried with an event, read again when a file changes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.collect.reset import RESETS_FILE
from headrace.collect.status import Kept
from headrace.server.counts import COUNTS_FILE
from headrace.server.models.collect import CollectorDetail, TrialAnswer
from tests.server.running import Running, running_server
from tests.support import wait_for

WEB = 'type = "http"\ntopic = "pageviews"\n'


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Running]]:
    folder: Path = tmp_path_factory.mktemp("project")
    (folder / "collectors").mkdir()
    (folder / "collectors" / "web.toml").write_text(WEB)
    with running_server(folder) as running:
        yield folder, running


def listed(server: Running) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in server.http.get("/v1/collectors").json()["collectors"]}


def test_events_of_the_plain_endpoint_pass_the_collector_of_their_topic(project: tuple[Path, Running]) -> None:
    _, server = project
    before = listed(server)["web"]
    assert server.send("pageviews", [{"userid": "a"}, {"viewtime": "never"}]).json()["accepted"] == 1
    after = listed(server)["web"]
    assert after["accepted"] - before["accepted"] == 1
    assert after["rejected"] - before["rejected"] == 1
    assert after["bytes"] > before["bytes"]
    assert server.dead_letters("pageviews")[0]["source"] == "http web 127.0.0.1"
    metrics = server.http.get("/metrics").text
    assert 'headrace_collector_events_total{collector="web",outcome="accepted"}' in metrics
    assert 'headrace_collector_up{collector="web"} 1.0' in metrics


def test_every_door_of_a_topic_keeps_its_collectors_rules(project: tuple[Path, Running]) -> None:
    folder, server = project
    (folder / "collectors" / "web.toml").write_text(WEB + '[validate]\nunknown = "refuse"\n')
    server.services.gates.reload()
    event, why = {"userid": "a", "hush": 1}, "the topic has no column for"
    rows = '{"target": "pageviews"}\n{"userid": "a", "hush": 1}'
    answers = [
        server.send("pageviews", event),
        server.http.post("/v1/topics/pageviews/records", json={"records": [{"value": event}]}),
        server.http.post("/v1/requests/pageviews?timeout=1", json={"value": event}),
        server.http.post("/inserts-stream", content=rows),
    ]
    assert [why in answer.text for answer in answers] == [True] * 4, [answer.text for answer in answers]
    (folder / "collectors" / "web.toml").write_text(WEB)
    server.services.gates.reload()


def test_a_test_event_goes_the_way_of_all_events(project: tuple[Path, Running]) -> None:
    _, server = project
    answer = server.http.post("/v1/collectors/web/test", json={})
    assert answer.status_code == 200, answer.text
    msgspec.json.decode(answer.content, type=TrialAnswer)
    found = answer.json()
    assert (found["outcome"], found["topic"]) == ("accepted", "pageviews")
    stored = [one for one in server.events("pageviews") if one["id"] == found["event"]["$id"]]
    assert [one["headers"] for one in stored] == [{"headrace-test": "web"}]
    wrong = server.http.post("/v1/collectors/web/test", json={"event": {"viewtime": "never"}}).json()
    assert (wrong["outcome"], wrong["rejected"][0]["index"]) == ("rejected", 0)


def test_a_flume_agent_is_listed_too_and_says_itself_where_it_writes(project: tuple[Path, Running]) -> None:
    folder, server = project
    file = folder / "collectors" / "a1.properties"
    file.write_text(
        "a1.sources = s\na1.channels = c\na1.sinks = k\na1.sources.s.type = seq\na1.sources.s.channels = c\n"
        "a1.channels.c.type = memory\na1.sinks.k.type = null\na1.sinks.k.channel = c\n"
    )
    server.services.gates.reload()
    assert (listed(server)["a1"]["type"], listed(server)["a1"]["problem"]) == ("agent", None)
    assert server.http.get("/v1/collectors/a1").status_code == 200
    assert server.http.post("/v1/collectors/a1/test", json={}).status_code == 400
    file.unlink()
    server.services.gates.reload()


def test_one_collector_is_shown_with_what_to_send(project: tuple[Path, Running]) -> None:
    _, server = project
    answer = server.http.get("/v1/collectors/web")
    msgspec.json.decode(answer.content, type=CollectorDetail)
    found = answer.json()
    assert found["example"].startswith("curl -d '{")
    assert "/v1/topics/pageviews/events" in found["example"]
    assert found["settings"] == {"type": "http", "topic": "pageviews"}
    missing = server.http.get("/v1/collectors/nobody")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")


def test_files_are_read_again_when_they_change(project: tuple[Path, Running]) -> None:
    folder, server = project
    new = folder / "collectors" / "people.toml"
    new.write_text('type = "http"\ntopic = "users"\n')
    # Who asks sees the files as they are: nobody has to wait until the server looks by itself.
    assert server.http.get("/v1/collectors/people").status_code == 200
    new.write_text('type = "http"\ntopics = "users"\n')
    found = listed(server)["people"]
    assert found["state"] == "running"
    assert found["problem"].startswith("collectors/people.toml:2: there is no setting `topics`")
    new.write_text('type = "http"\ntopic = "users"\nenabled = false\n')
    assert listed(server)["people"]["state"] == "disabled"
    assert server.http.post("/v1/collectors/people/test", json={}).status_code == 409
    new.unlink()
    # It looks by itself, too.
    wait_for(lambda: "people" not in {gate.name for gate in server.services.gates.all()}, 30, "the collector to go")


def test_collectors_are_drawn_in_the_overview(project: tuple[Path, Running]) -> None:
    _, server = project
    drawn = server.http.get("/v1/overview").json()
    assert {"gate:web"} <= {node["id"] for node in drawn["nodes"]}
    assert ("gate:web", "topic:pageviews") in {(edge["from"], edge["to"]) for edge in drawn["edges"]}


def test_a_mended_letter_must_pass_its_collectors_rules_too(project: tuple[Path, Running]) -> None:
    folder, server = project
    file = folder / "collectors" / "people.toml"
    file.write_text(
        'type = "http"\ntopic = "users"\n[validate]\nrequired = ["secret"]\n'
        '[validate.fields.age]\nmax = 150\n[validate.fields.name]\npattern = "^you$"\n'
        '[privacy]\ndrop = ["secret"]\nhash = ["name"]\nkey = "k"\n'
    )
    server.services.gates.reload()
    assert server.send("users", {"id": "1", "age": 200, "name": "you", "secret": 1}).json()["accepted"] == 0

    def redrive(**values: str) -> dict[str, Any]:
        found: dict[str, Any] = server.http.post("/v1/topics/users/dead-letters/redrive", json={"set": values}).json()
        return found

    refused = redrive()
    assert (refused["rejected"], refused["samples"][0]["reason"]) == (1, "`age` must be at most 150, got 200")
    # What was dropped and hashed cannot be asked for again.
    assert redrive(age="CAST(age AS INTEGER) / 10")["accepted"] == 1
    file.unlink()
    server.services.gates.reload()


def test_what_cannot_work_with_the_topic_is_said_before_an_event_comes(project: tuple[Path, Running]) -> None:
    folder, server = project
    file = folder / "collectors" / "people.toml"
    file.write_text('type = "http"\ntopic = "users"\n[privacy]\nhash = ["Age"]\nkey = "k"\n')
    (folder / "collectors" / "web.toml").write_text(WEB + '[validate]\ncoerce = ["VIEWTIME", "n"]\n')
    (folder / "collectors" / "early.toml").write_text('type = "http"\ntopic = "not-yet"\n')
    server.services.gates.reload()
    found = listed(server)
    assert found["people"]["problem"] == (
        "collectors/people.toml: `Age` is hashed, but its column is INTEGER: every event would be rejected; "
        "it needs VARCHAR"
    )
    assert found["web"]["problem"].startswith("collectors/web.toml: `n` is to be converted, but no column")
    assert found["early"]["state"] == "waiting"
    assert found["early"]["detail"].startswith("waiting for topic `not-yet`")
    for name in ("people", "early"):
        (folder / "collectors" / f"{name}.toml").unlink()
    (folder / "collectors" / "web.toml").write_text(WEB)
    server.services.gates.reload()


def test_counts_go_on_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "collectors").mkdir()
    (tmp_path / "collectors" / "web.toml").write_text(WEB)
    for total in (2, 4):
        with running_server(tmp_path) as server:
            server.send("pageviews", [{"userid": "a"}, {"userid": "b"}])
            assert listed(server)["web"]["accepted"] == total
    with running_server(tmp_path) as server:
        server.send("pageviews", {"userid": "c"})
        # As after kill -9: only what is in the file.
        wait_for(lambda: counted(tmp_path) == 5, 30, "the file")
    (tmp_path / ".headrace" / COUNTS_FILE).write_text("torn")
    with running_server(tmp_path) as server:
        assert listed(server)["web"]["accepted"] == 0


def counted(folder: Path) -> int:
    kept = msgspec.json.decode((folder / ".headrace" / COUNTS_FILE).read_bytes(), type=Kept)
    return sum(one.accepted for one in (*kept.gone, *(one for report in kept.reports for one in report.collectors)))


def test_a_collectors_page_names_the_ways_past_what_it_hides(project: tuple[Path, Running]) -> None:
    folder, server = project
    file = folder / "collectors" / "app.toml"
    file.write_text('type = "segment"\ntopic = "pageviews"\nkeys = ["hush-hush"]\n[privacy]\ndrop = ["userid"]\n')
    server.services.gates.reload()
    answer = server.http.get("/v1/collectors/app")
    assert answer.json()["warnings"] == ["collector `web` writes to topic `pageviews`, too, and does not hide `userid`"]
    assert "hush-hush" not in answer.text
    file.unlink()
    server.services.gates.reload()


def test_collectors_that_are_reset_at_once_are_all_told(tmp_path: Path) -> None:
    """The process that runs them hears of it through one file."""
    names = [f"app{number}" for number in range(8)]
    (tmp_path / "collectors").mkdir()
    for name in names:
        text = f'type = "file"\ntopic = "pageviews"\npath = "logs/{name}.log"\n'
        (tmp_path / "collectors" / f"{name}.toml").write_text(text)
    with running_server(tmp_path) as server, ThreadPoolExecutor(len(names)) as pool:
        file = server.services.project.data / RESETS_FILE
        for _ in range(5):
            file.unlink(missing_ok=True)
            paths = [f"/v1/collectors/{name}/reset" for name in names]
            answers = list(pool.map(lambda path: server.http.post(path, json={"to": "beginning"}), paths))
            assert [answer.status_code for answer in answers] == [200] * len(names)
            assert sorted(msgspec.json.decode(file.read_bytes())) == names
