"""The real thing: `headrace` as a user types it, with server, engine and Spark, and kill -9 in between."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.config import Project, load_project
from headrace.coordinate.child import leftovers
from headrace.coordinate.local import holder, is_held
from headrace.coordinate.supervisor import supervised_mark
from tests.support import free_port, wait_for

pytestmark = pytest.mark.slow

EVENTS = [
    {"userid": "ann", "pageid": "/hello", "viewtime": "2026-11-15T12:00:00Z"},
    {"userid": "bob", "pageid": "/hello", "viewtime": "2026-11-15T12:00:05Z"},
    {"userid": "bob", "pageid": "/pricing", "viewtime": "2026-11-15T12:00:30Z"},
]
# For one command, whatever else the machine does: two that start Spark were not through in 400 s on a very busy one.
PATIENCE_S = 1200
WRONG = "CREATE TABLE wrong AS SELECT usr, COUNT(*) AS n FROM pageviews GROUP BY usr;\n"


class Shop:
    """A project made by `headrace init`, driven by the command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.syslog_port = free_port(), free_port()

    @property
    def project(self) -> Project:
        return load_project(self.folder)

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headrace.cli.main", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)

    def sql(self, text: str) -> list[list[Any]]:
        rows: list[list[Any]] = self.json("sql", "-e", text)["rows"]
        return rows

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.run("up", "--detach", "--port", str(self.port))

    def views(self) -> dict[str, int]:
        return dict(self.sql("SELECT pageid, views FROM views_by_page;"))

    def pid(self, role: str) -> int | None:
        """The child that runs this module for this project."""
        module = {
            "server": "headrace.server.main",
            "engine": "headrace.coordinate.engine",
            "listeners": "headrace.server.listeners",
        }[role]
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                except OSError:
                    continue
                if module in words and str(self.folder) in words:
                    return int(entry.name)
        return None

    def listen(self) -> None:
        file = self.folder / "collectors" / "devices.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'type = "syslog"\ntopic = "devices"\nlisten = ["tcp://127.0.0.1:{self.syslog_port}"]\n')

    def devices(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json("collector", "show", "devices")
        return found

    def send(self, *messages: str) -> None:
        with socket.create_connection(("127.0.0.1", self.syslog_port), 30) as connection:
            connection.sendall("".join(f"<13>1 - here shop - - - {message}\n" for message in messages).encode())

    def ready(self) -> bool:
        """Ready, by the word of the engine that lives, not of one that was killed a moment ago."""
        command = [sys.executable, "-m", "headrace.cli.main", "status", "--json"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True)
        return done.returncode == 0 and json.loads(done.stdout)["overview"]["engine"]["pid"] == self.pid("engine")

    def logs(self) -> str:
        files = sorted((self.folder / ".headrace" / "logs").glob("*.log"))
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in files)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("up")
    subprocess.run([sys.executable, "-m", "headrace.cli.main", "init", "shop"], cwd=folder, check=True)
    shop = Shop(folder / "shop")
    wrong = shop.folder / "pipelines" / "wrong.sql"
    wrong.write_text(WRONG)
    try:
        started = shop.run("up", "--detach", "--port", str(shop.port), code=1)
        assert f"http://127.0.0.1:{shop.port}" in started.stdout
        assert "pipelines/wrong.sql:1:73: column `usr` does not exist" in started.stderr
        assert "waiting for the engine" in started.stderr, "a script sees how far it is"
        status = shop.run("status", code=1).stdout
        assert "not ready: 1 statement of the project's files failed" in status
        assert "pipelines/wrong.sql:1:73" in status
        wrong.unlink()
        assert "nothing to do" in shop.run("deploy").stdout
        yield shop
    finally:
        if is_held(shop.project.data):
            shop.run("down")


def test_events_become_rows(shop: Shop) -> None:
    for event in EVENTS:
        shop.run("topic", "put", "pageviews", json.dumps(event))
    wait_for(lambda: shop.views() == {"/hello": 2, "/pricing": 1}, 30, "the table")
    minutes = "SELECT pageid, views, visitors FROM views_per_minute WHERE pageid = '/hello';"
    wait_for(lambda: shop.sql(minutes) == [["/hello", 2, 2]], 30, "the windowed table")
    assert shop.json("topic", "show", "pageviews")["records"] == len(EVENTS)


def test_every_looking_command_finds_something(shop: Shop) -> None:
    rejected = shop.run("topic", "put", "pageviews", '{"userid": 7}', code=1)
    assert "`userid` must be a string, got 7" in rejected.stderr
    assert "must be a string" in shop.run("dlq", "list").stdout
    assert next(topic["name"] for topic in shop.json("topic", "list")["topics"]) == "pageviews"
    assert shop.json("topic", "show", "pageviews")["records"] == 3
    assert "userid=bob" in shop.run("topic", "tail", "pageviews", "--no-follow").stdout
    queries = {query["sink"]: query for query in shop.json("query", "list")["queries"]}
    assert {query["state"] for query in queries.values()} == {"running"}
    assert "└─ AGGREGATE" in shop.run("query", "show", queries["views_by_page"]["id"]).stdout
    assert {view["name"] for view in shop.json("view", "list")["views"]} == {"views_by_page", "views_per_minute"}
    assert shop.json("view", "get", "views_by_page", "pageid=/hello")["rows"] == [["/hello", 2]]
    assert "views=2" in shop.run("view", "watch", "views_by_page", "--snapshot", "--limit", "2").stdout
    assert "state         ready" in shop.run("status").stdout
    assert shop.run("doctor").returncode == 0
    assert "engine" in shop.run("logs", "-n", "1").stdout


def test_sql_from_files_pipes_and_wrong_ones(shop: Shop) -> None:
    (shop.folder / "ask.sql").write_text("SHOW TABLES;\nSELECT views FROM views_by_page\n  WHERE pagid = '/hello';\n")
    failed = shop.run("sql", "-f", "ask.sql", code=1)
    assert "views_by_page" in failed.stdout
    assert failed.stderr.startswith(
        "  WHERE pagid = '/hello';\n        ^^^^^\nline 3, column 9: column `pagid` does not exist"
    )
    push = shop.run("sql", "-e", "SELECT pageid FROM pageviews EMIT CHANGES LIMIT 0;", code=0)
    assert push.stdout.splitlines()[:1] == ["pageid"]


def test_a_query_is_stopped_and_goes_on_where_it_was(shop: Shop) -> None:
    [query] = [query["id"] for query in shop.json("query", "list")["queries"] if query["sink"] == "views_by_page"]

    def state() -> str:
        found: str = shop.json("query", "show", query)["state"]
        return found

    shop.run("query", "stop", query)
    wait_for(lambda: state() == "stopped", 30, "the query to stop")
    assert shop.ready()
    shop.run("topic", "put", "pageviews", json.dumps(EVENTS[0]))
    shop.run("query", "start", query)
    wait_for(lambda: shop.views() == {"/hello": 3, "/pricing": 1}, 30, "the query to go on")


def test_an_event_sent_with_a_question_is_answered_with_the_row_it_made(shop: Shop) -> None:
    before = shop.views()["/hello"]
    answer = httpx.post(
        f"http://127.0.0.1:{shop.port}/v1/topics/pageviews/events",
        params={"view": "views_by_page", "key": "/hello", "timeout": 60},
        json=EVENTS[0],
        timeout=120,
    ).json()
    assert answer["view"]["included"], answer
    [row], columns = answer["view"]["rows"]["rows"], answer["view"]["rows"]["columns"]
    assert dict(zip((column["name"].lower() for column in columns), row, strict=True))["views"] == before + 1


def test_a_dropped_table_leaves_nothing_behind(shop: Shop) -> None:
    shop.run("sql", "-e", "CREATE TABLE by_user AS SELECT userid, COUNT(*) AS n FROM pageviews GROUP BY userid;")
    wait_for(lambda: dict(shop.sql("SELECT userid, n FROM by_user;")).items() >= {("bob", 2)}, 30, "the new table")
    checkpoints, views = shop.project.checkpoints_folder, shop.project.views_folder
    before = {folder.name for folder in checkpoints.iterdir()}
    shop.run("sql", "-e", "DROP TABLE by_user DELETE TOPIC;")
    wait_for(lambda: len({f.name for f in checkpoints.iterdir()}) == len(before) - 1, 30, "the checkpoint to go")
    wait_for(lambda: not list(views.glob("BY_USER/*")), 10, "the rows to go")
    assert shop.run("view", "get", "by_user", code=1)


def test_a_listener_waits_for_its_topic(shop: Shop) -> None:
    shop.listen()
    wait_for(lambda: "waiting for topic `devices`" in shop.devices()["detail"], 60, "the listener to wait")
    shop.run("topic", "create", "devices", "--columns", "host VARCHAR KEY, message VARCHAR")
    wait_for(lambda: shop.devices()["state"] == "running", 60, "the listener")
    shop.send("one", "two")
    wait_for(lambda: shop.devices()["accepted"] == 2, 60, "what was sent")
    assert [shop.devices()[name] for name in ("received", "rejected", "errors")] == [2, 0, 0]


def test_a_second_up_is_refused_with_the_holder_s_pid(shop: Shop) -> None:
    held = holder(shop.project.data)
    assert held is not None
    refused = shop.run("up", code=1)
    assert f"already up (pid {held.pid}, http://127.0.0.1:{shop.port})" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_port_in_use_names_the_project_that_has_it(shop: Shop, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "headrace.cli.main", "init", "other"], cwd=tmp_path, check=True)
    other = Shop(tmp_path / "other")
    refused = other.run("up", "--port", str(shop.port), code=1)
    assert refused.stderr.startswith(f"port {shop.port} is in use by pid {shop.pid('server')} (headrace, ")
    assert f"headrace down --project {shop.folder}" in refused.stderr


@pytest.mark.parametrize("role", ["engine", "server"])
def test_what_is_killed_is_started_again(shop: Shop, role: str) -> None:
    before, count = shop.pid(role), shop.views()["/hello"]
    assert before is not None
    listeners, taken = shop.pid("listeners"), shop.devices()["accepted"]
    os.kill(before, signal.SIGKILL)
    # The listeners go on meanwhile, and what they count is counted on.
    shop.send("another")
    wait_for(lambda: shop.pid(role) not in (None, before), 30, f"another {role}")
    wait_for(shop.ready, 90, "it to be ready again")
    wait_for(lambda: shop.devices()["accepted"] == taken + 1, 60, "what was sent meanwhile")
    assert shop.pid("listeners") == listeners
    assert shop.json("topic", "show", "devices")["records"] == taken + 1
    shop.run("topic", "put", "pageviews", json.dumps(EVENTS[0]))
    wait_for(lambda: shop.views()["/hello"] == count + 1, 60, "the event to be counted, once")


def test_a_killed_supervisor_takes_its_children_with_it(shop: Shop) -> None:
    held, mark = holder(shop.project.data), supervised_mark(shop.project)
    views = shop.views()
    assert held is not None
    os.kill(held.pid, signal.SIGKILL)
    wait_for(lambda: shop.pid("server") is None and shop.pid("engine") is None, 10, "the children to die")
    assert shop.run("status", code=3)
    shop.up()
    assert shop.views() == views
    assert shop.pid("server") in set(leftovers(mark))


def test_down_stops_everything_and_events_can_still_be_put(shop: Shop) -> None:
    mark = supervised_mark(shop.project)
    views = shop.views()
    # It fails by itself if that takes longer than a minute.
    shop.run("down")
    assert list(leftovers(mark)) == []
    shop.run("down", code=3)
    shop.run("topic", "put", "pageviews", json.dumps(EVENTS[0]))
    assert shop.json("topic", "show", "pageviews")["records"] == sum(views.values()) + 1
    again = json.loads(shop.run("up", "--detach", "--json", "--port", str(shop.port)).stdout)
    assert again["url"] == f"http://127.0.0.1:{shop.port}"
    wait_for(lambda: shop.views() == views | {"/hello": views["/hello"] + 1}, 60, "what was put meanwhile")


def test_the_project_that_init_makes_passes_its_own_tests_and_a_failing_one_says_what_differs(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "headrace.cli.main", "init", "shop"], cwd=tmp_path, check=True)
    shop = Shop(tmp_path / "shop")
    file = shop.folder / "tests" / "pageviews.toml"
    first = file.read_text().partition("# A function")[0]
    wrong = first.replace("views = 2", "views = 3").replace("views are counted", "views are miscounted")
    file.with_name("wrong.toml").write_text(wrong)
    body = json.loads(shop.run("test", "--json", code=1).stdout)
    assert (body["passed"], body["failed"]) == (2, 1)
    [failed] = [test for test in body["tests"] if test["differences"]]
    differences = [" ".join(line.split()) for line in failed["differences"]]
    assert differences == ["views_by_page: 1 of 2 rows differs", "pageid views", "- /hello 3", "+ /hello 2"]


def test_a_server_that_cannot_start_shows_its_last_words(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "headrace.cli.main", "init", "ill"], cwd=tmp_path, check=True)
    ill = Shop(tmp_path / "ill")
    (ill.folder / ".headrace" / "log").mkdir(parents=True)
    (ill.folder / ".headrace" / "log" / "format").write_text("headrace-log 99\n")
    done = ill.run("up", "--port", str(ill.port), code=1)
    assert "the server does not start" in done.stderr
    assert "99" in done.stderr
    assert "Traceback" not in done.stdout
