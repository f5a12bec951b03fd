"""A puller that is to begin elsewhere, while it runs or waits: from the command line, in another process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.collect.definitions import load_definitions
from headrace.collect.kinds import load
from headrace.collect.pull.files import FileSettings
from headrace.collect.pull.headrace import HeadraceSettings
from headrace.collect.pull.kafka import KafkaSettings
from headrace.collect.pull.sse import SseSettings
from headrace.collect.reset import reset_collector
from headrace.config import load_project
from headrace.errors import UsageError
from tests.collect.listeners import listening, processes
from tests.log.support import PLAIN
from tests.server.running import running_server
from tests.support import free_port, wait_for

SQL = "CREATE STREAM lines (message VARCHAR) WITH (KAFKA_TOPIC='lines', VALUE_FORMAT='JSON', PARTITIONS=1);"


FILE = FileSettings(type="file", path="x")
KAFKA = KafkaSettings(type="kafka", bootstrap="b:1", source="t")
OTHER = HeadraceSettings(type="headrace", url="http://o", source="t")
EVENTS = SseSettings(type="sse", url="http://o")


@pytest.mark.parametrize(
    ("settings", "to", "cursor"),
    [
        (FILE, "beginning", {"files": []}),
        (FILE, "end", {"start": "latest"}),
        (FILE, "0:1", None),
        (
            KafkaSettings(type="x", bootstrap="b:1", source="t"),
            "beginning",
            {"of": "b:1/t", "at": None, "start": "earliest"},
        ),
        (KAFKA, "end", {"of": "b:1/t", "at": None, "start": "latest"}),
        (KAFKA, "0:5,2:7", {"of": "b:1/t", "at": {"0": 5, "2": 7}}),
        (KAFKA, "yesterday", None),
        (
            HeadraceSettings(type="x", url="http://o", source="t"),
            "0:5",
            {"of": "http://o/v1/topics/t/records", "at": "0:5"},
        ),
        (EVENTS, "beginning", {"of": "http://o", "at": None}),
        (EVENTS, "cursor:a7", {"of": "http://o", "at": "a7"}),
        (EVENTS, "cursor:17", {"of": "http://o", "at": 17}),
        (EVENTS, "end", None),
    ],
)
def test_places(settings: Any, to: str, cursor: Any) -> None:
    place = load(f"{type(settings).__module__}:place")
    if cursor is None:
        with pytest.raises(UsageError, match="is no place to begin at"):
            place(settings, to)
    else:
        assert place(settings, to) == cursor


@pytest.mark.slow
def test_a_file_is_read_again_or_left_out_while_its_collector_runs(tmp_path: Path) -> None:
    text = 'type = "file"\ntopic = "lines"\npath = "logs/*.log"\nevery_seconds = 0.05'
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("one\ntwo\n")
    with processes(
        tmp_path,
        SQL,
        {"app": text, "web": f'type = "udp"\ntopic = "lines"\nlisten = ["udp://127.0.0.1:{free_port()}"]'},
    ) as running:

        def reset(*words: str, answer: str = "") -> Any:
            where = ["--url", f"http://127.0.0.1:{running.port}", "--json"]
            return CliRunner().invoke(app, ["collector", "reset", *words, *where], input=answer)

        def wait_lines(*wanted: str) -> None:
            wait_for(lambda: running.column("lines", "MESSAGE") == list(wanted), 20, f"{wanted}")

        wait_lines("one", "two")
        # Without a yes nothing happens.
        assert reset("app", answer="n\n").exit_code == 1
        done = reset("app", "--yes")
        assert json.loads(done.stdout) == {"name": "app", "to": "beginning", "cursor": {"files": []}}
        wait_lines("one", "two", "one", "two")
        with (tmp_path / "logs" / "a.log").open("a") as file:
            file.write("three\n")
        wait_lines("one", "two", "one", "two", "three")
        running.wait_until("app")
        wrong = reset("web", "--yes")
        assert wrong.exit_code != 0
        assert "no place to begin at" in str(wrong.output) + str(wrong.exception)


@pytest.mark.slow
def test_a_source_that_deleted_what_comes_next_is_waited_for_until_somebody_says_so(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    sql = "CREATE STREAM plain (n BIGINT) WITH (KAFKA_TOPIC='origin', VALUE_FORMAT='JSON', PARTITIONS=1);"
    with running_server(there, sql=sql) as other:
        text = f'type = "headrace"\ntopic = "plain"\nurl = "http://127.0.0.1:{other.port}"\nsource = "origin"'
        other.send("origin", [{"n": 0}])
        with listening(here, {"pull": text}, [PLAIN]) as running:
            running.wait_rows("plain", 1)
        other.send("origin", [{"n": n} for n in range(1, 5)])
        other.services.log.delete_records("origin", 0, 3)
        with listening(here, {"pull": text}, [PLAIN]) as running:
            wait_for(lambda: "is no longer there" in running.status("pull").detail, 10, "a reason")
            assert "`headrace collector reset pull --to beginning` goes on" in running.status("pull").detail
            [definition], _ = load_definitions(load_project(here))
            reset_collector(running.log, definition, "beginning")
        with listening(here, {"pull": text}, [PLAIN]) as running:
            assert [row["N"] for row in running.wait_rows("plain", 3)] == [0, 3, 4]


@pytest.mark.slow
def test_partitions_that_come_there_later_are_followed_too(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    sql = "CREATE STREAM plain (n BIGINT) WITH (KAFKA_TOPIC='origin', VALUE_FORMAT='JSON', PARTITIONS=1);"
    with running_server(there, sql=sql) as other:
        text = f'type = "headrace"\ntopic = "plain"\nurl = "http://127.0.0.1:{other.port}"\nsource = "origin"'
        other.send("origin", [{"n": 0}])
        with listening(here, {"pull": text}, [PLAIN]) as running:
            running.wait_rows("plain", 1)
        other.services.log.split_partition("origin", 0)
        other.send("origin", [{"n": n} for n in range(1, 10)])
        with listening(here, {"pull": text}, [PLAIN]) as running:
            assert sorted(row["N"] for row in running.wait_rows("plain", 10)) == list(range(10))


@pytest.mark.slow
def test_a_topic_that_was_made_anew_there_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    sql = "CREATE STREAM plain (n BIGINT) WITH (KAFKA_TOPIC='origin', VALUE_FORMAT='JSON', PARTITIONS=1);"
    with running_server(there, sql=sql) as other:
        text = f'type = "headrace"\ntopic = "plain"\nurl = "http://127.0.0.1:{other.port}"\nsource = "origin"'
        other.send("origin", [{"n": 0}])
        with listening(here, {"pull": text}, [PLAIN]) as running:
            running.wait_rows("plain", 1)
            [definition], _ = load_definitions(load_project(here))
            # As if the old one had held more.
            reset_collector(running.log, definition, "0:1000")
        with listening(here, {"pull": text}, [PLAIN]) as running:
            wait_for(lambda: "made anew" in running.status("pull").detail, 10, "a reason")
            assert [row["N"] for row in running.wait_rows("plain", 1)] == [0], "nothing of it was taken"
