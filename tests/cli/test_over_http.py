"""Commands against a real server in this process: everything but Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from headrace.cli.api import Api
from headrace.cli.repl import SqlCompleter, repl
from headrace.cli.sql import SqlSession
from headrace.coordinate.firehose.definition import DeliveryNote
from headrace.errors import Refused
from headrace.log.base import Append
from tests.cli.conftest import Headrace, Said
from tests.server.running import Running, running_server
from tests.support import wait_for

pytestmark = pytest.mark.slow

KEYS = """
[[auth.keys]]
key = "reader-0123456789"
[[auth.keys]]
key = "boss-0123456789ab"
role = "admin"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("http")) as server:
        yield server


@pytest.fixture
def url(server: Running) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture
def run(headrace: Headrace, url: str) -> Headrace:
    def run(*arguments: str) -> Said:
        return headrace(*arguments, "--url", url)

    return run


def test_events_are_put_counted_and_tailed(run: Headrace) -> None:
    first = run("topic", "put", "pageviews", '{"userid":"ann","pageid":"/a","viewtime":"2026-11-15T12:00:00Z"}')
    assert (first.code, first.out) == (0, "1 accepted\n")
    several = run("topic", "put", "pageviews", '{"userid":"ann"}', '{"userid":7}', "nonsense", "--json")
    assert several.code == 1
    body = json.loads(several.out)
    assert (body["accepted"], [rejected["index"] for rejected in body["rejected"]]) == (1, [1, 2])
    once = ("topic", "put", "pageviews", '{"userid":"eve"}', "--idempotency-key", "k")
    assert run(*once).out == "1 accepted\n"
    assert run(*once).out == "0 accepted, 1 were there already\n"
    tail = run("topic", "tail", "pageviews", "--no-follow", "-n", "2")
    assert "userid=eve" in tail.out.splitlines()[-1]
    [newest] = [
        json.loads(line)
        for line in run("topic", "tail", "pageviews", "--no-follow", "-n", "1", "--json").out.splitlines()
    ]
    assert newest["key"] == {"userid": "eve"}
    assert newest["time"].endswith("Z")
    letters = json.loads(run("dlq", "list", "--json").out)
    assert letters["total"] == 2
    assert "nonsense" in run("dlq", "list", "pageviews").out


def test_a_topic_is_made_and_deleted(run: Headrace) -> None:
    made = run("topic", "create", "orders", "--columns", "id VARCHAR KEY, total DOUBLE", "--partitions", "3")
    assert (made.code, made.out) == (0, "topic `orders` has 3 partitions\n")
    shown = run("topic", "show", "orders")
    assert "total" in shown.out
    assert run("topic", "delete", "orders", "--yes").out == "deleted `orders`\n"
    gone = run("topic", "show", "orders")
    assert (gone.code, "topic `orders` does not exist" in gone.err) == (1, True)
    refused = run("topic", "delete", "pageviews", "--yes")
    assert refused.code == 1
    assert "pageviews" in refused.err


def test_values_are_shown_to_the_last_digit_whatever_view_and_columns_are_called(
    run: Headrace, server: Running
) -> None:
    columns = "path VARCHAR PRIMARY KEY, version INT PRIMARY KEY, total DECIMAL(30, 2), `limit` INT"
    run("sql", "-e", f"CREATE TABLE `by day, 100%` ({columns}) WITH (KAFKA_TOPIC='by_day');")
    run("sql", "-e", "INSERT INTO `by day, 100%` VALUES ('/a b', 3, 1234567890123456789012.50, 7);")
    wait_for(lambda: server.http.get("/v1/views/by%20day%2C%20100%25").json()["rows"] == 1, 10, "the row")
    for where in (["path=/a b"], ["version=3", "limit=7"]):
        got = run("view", "get", "by day, 100%", *where)
        assert (got.code, "1234567890123456789012.50" in got.out) == (0, True), got
    why = run("view", "why", "by day, 100%", '["/a b", 3]')
    assert (why.code, "total = 1234567890123456789012.50" in why.out) == (0, True), why
    as_json = run("view", "why", "by day, 100%", '["/a b", 3]', "--json").out
    assert '"total": 1234567890123456789012.50' in as_json
    watched = run("view", "watch", "by day, 100%", "--snapshot", "--limit", "1").out
    assert "1234567890123456789012.50" in watched
    assert run("view", "show", "by day, 100%").code == 0


def test_tables_are_asked_and_watched(run: Headrace, server: Running) -> None:
    run("sql", "-e", "INSERT INTO users VALUES ('u1', 'Ann', 30), ('u2', 'Bob', NULL);")
    wait_for(lambda: server.http.get("/v1/views/users").json()["rows"] == 2, 10, "the rows")
    got = json.loads(run("view", "get", "users", "id=u1", "--json").out)
    assert got["rows"] == [["u1", "Ann", 30]]
    assert run("view", "get", "users", "--order=-id", "--limit", "1").out.splitlines()[1].split() == ["u2", "Bob"]
    assert run("view", "get", "users", "nonsense").err.startswith("`nonsense` is not COLUMN=VALUE")
    assert "users" in run("view", "list").out
    watched = run("view", "watch", "users", "--snapshot", "--limit", "2").out
    assert "name=Ann" in watched
    asked = run("sql", "-e", "SELECT name, age FROM users WHERE id = 'u1'; SHOW TABLES;")
    assert asked.out.splitlines()[:2] == ["name  age", "Ann    30"]


def test_a_question_can_wait_for_what_was_written(run: Headrace, server: Running) -> None:
    for number in range(6):
        token = server.send("users", {"id": "waited", "name": str(number)}).json()["token"]
        sql = "SELECT name FROM users WHERE id = 'waited';"
        wanted = ["--after", token] if number % 2 else ["--wait"]
        asked = run("sql", "-e", sql, "--format", "csv", *wanted)
        assert (asked.code, asked.out.splitlines()[1:]) == (0, [str(number)])
    unrelated = server.send("pageviews", {"userid": "ann"}).json()["token"]
    refused = run("sql", "-e", "SELECT * FROM users;", "--after", unrelated, "--wait-seconds", "0.1")
    assert (refused.code, "no event of topic `pageviews` comes to view `users`" in refused.err) == (1, True)


def test_rows_come_in_the_form_asked_for(run: Headrace) -> None:
    ask = ("sql", "-e", "SELECT id, age FROM users WHERE id <> 'waited' ORDER BY id;", "--format")
    assert run(*ask, "csv").out == "id,age\nu1,30\nu2,\n"
    assert run(*ask, "vertical").out.splitlines()[1:3] == ["id   u1", "age  30"]
    assert [json.loads(line) for line in run(*ask, "json").out.splitlines()] == [
        {"id": "u1", "age": 30},
        {"id": "u2", "age": None},
    ]


def test_an_unknown_view_is_named(run: Headrace) -> None:
    said = run("view", "watch", "user")
    assert said.code == 1
    assert "user" in said.err


def test_a_push_query_ends_at_its_limit(run: Headrace) -> None:
    said = run("sql", "-e", "SELECT name FROM users EMIT CHANGES LIMIT 0;")
    assert (said.code, said.out.splitlines()) == (0, ["name"])


def test_settings_last_as_long_as_the_session(run: Headrace, server: Running) -> None:
    run("sql", "-e", "INSERT INTO pageviews (userid, pageid) VALUES ('ann', '/set'), ('bob', '/set');")
    earliest = "SET 'auto.offset.reset' = 'earliest'; "
    push = run("sql", "-e", earliest + "SELECT userid FROM pageviews WHERE pageid = '/set' EMIT CHANGES LIMIT 2;")
    assert sorted(push.out.splitlines()[-2:]) == ["ann", "bob"]
    printed = run("sql", "-e", "PRINT pageviews FROM BEGINNING LIMIT 1;", "--json")
    assert json.loads(printed.out)["offset"] == 0
    thinned = run("sql", "-e", earliest + "PRINT pageviews INTERVAL 2 LIMIT 1;")
    assert thinned.code == 0
    run("sql", "-e", "SET 'ksql.persistence.default.format.value' = 'DELIMITED';", "-e", "CREATE STREAM d (a INT);")
    assert "DELIMITED" in run("sql", "-e", "DESCRIBE d EXTENDED;").out
    run("sql", "-e", "DROP STREAM d DELETE TOPIC;")
    assert "does not exist" in run("sql", "-e", "PRINT nothing LIMIT 1;").err


def test_an_error_points_into_the_whole_text(run: Headrace, tmp_path: Path) -> None:
    (tmp_path / "ask.sql").write_text("SHOW TABLES;\n\n  SELECT nam\n  FROM users;\n")
    said = run("sql", "-f", "ask.sql")
    assert said.code == 1
    assert said.err.startswith(
        "  SELECT nam\n         ^^^\nline 3, column 10: column `nam` does not exist\n  did you mean `name`?"
    )
    (tmp_path / "ask.sql").write_text("SHOW TABLES; DROP STREAM pageview;")
    said = run("sql", "-f", "ask.sql")
    assert "users" in said.out
    assert said.err.startswith(
        "SHOW TABLES; DROP STREAM pageview;\n                         ^^^^^^^^\nline 1, column 26:"
    )
    assert run("sql", "-f", "nowhere.sql").code == 1


def test_measuring_leaves_nothing_behind(run: Headrace, server: Running) -> None:
    said = run("bench", "--seconds", "0.2", "--json")
    assert said.code == 0
    measures = json.loads(said.out)["measures"]
    assert [measure["batch"] for measure in measures] == [1, 100, 1000]
    assert all(measure["events_per_second"] > 0 for measure in measures)
    assert "headrace_bench" not in server.http.get("/v1/topics").text


def test_the_prompt_runs_what_is_typed_until_it_ends(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    typed = "SHOW\nTABLES;\nSELECT nobody FROM users;\nhelp\nexit\n".replace("\n", "\r")
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()), Api(url) as api:
        keys.send_text(typed)
        repl(SqlSession(api))
    said = capsys.readouterr()
    assert "users" in said.out
    assert "Statements end with `;`" in said.out
    assert "column `nobody` does not exist" in said.err


def test_completion_knows_columns_sources_functions_and_keywords(url: str) -> None:
    def completed(text: str) -> list[str]:
        with Api(url) as api:
            completer = SqlCompleter(SqlSession(api))
            return [found.text for found in completer.get_completions(Document(text), None)]  # type: ignore[arg-type]

    assert "pageviews" in completed("SELECT * FROM pagev")
    assert "COUNT_DISTINCT" in completed("SELECT count_d")
    assert "SELECT" in completed("sel")
    assert completed("SELECT id FROM users WHERE nam")[0] == "name"
    assert completed("") == []
    # Where only a stream or a table can follow, nothing else is offered, and nothing need be typed.
    assert {"pageviews", "users"} <= set(completed("SELECT * FROM "))
    assert "COUNT" not in completed("DESCRIBE ")


def test_the_project_s_strongest_key_is_used(headrace: Headrace, tmp_path: Path) -> None:
    with running_server(tmp_path / "locked", KEYS, key="boss-0123456789ab") as server:
        url = f"http://127.0.0.1:{server.port}"
        assert headrace("view", "list", "--url", url).code == 1
        assert headrace("view", "list", "--url", url, "--key", "reader-0123456789").code == 0
        refused = headrace("sql", "-e", "DROP TABLE users;", "--url", url, "--key", "reader-0123456789")
        assert refused.code == 1
        with Api(url, "reader-0123456789") as api, pytest.raises(Refused):
            api.post("/v1/statements", {"sql": "DROP TABLE users;"})


def test_scripts_run_scripts_with_variables(run: Headrace, tmp_path: Path) -> None:
    (tmp_path / "inner.sql").write_text("DESCRIBE ${which};\n")
    (tmp_path / "outer.sql").write_text("DEFINE which = 'users';\nRUN SCRIPT 'inner.sql';\nSHOW VARIABLES;\n")
    said = run("sql", "-f", "outer.sql")
    assert said.code == 0, said.err
    assert "primary key" in said.out
    assert "which" in said.out
    (tmp_path / "inner.sql").write_text("RUN SCRIPT 'outer.sql';\n")
    assert "runs itself" in run("sql", "-f", "outer.sql").err
    (tmp_path / "inner.sql").write_text("DESCRIBE nobody;\n")
    assert "(in `inner.sql`)" in run("sql", "-f", "outer.sql").err


def test_collectors_are_listed_shown_and_tried(run: Headrace, server: Running) -> None:
    folder = server.services.project.folder / "collectors"
    folder.mkdir(exist_ok=True)
    (folder / "web.toml").write_text('type = "http"\ntopic = "users"\n[privacy]\nhash = ["name"]\nkey = "hush"\n')
    (folder / "broken.toml").write_text('type = "http"\ntopics = "users"\n')
    server.services.gates.reload()
    listed = run("collector", "list").out
    assert "collectors/broken.toml:2: there is no setting `topics`" in listed
    shown = run("collector", "show", "web").out
    assert "/v1/topics/users/events" in shown
    assert "hush" not in shown
    tried = run("collector", "test", "web", "--event", '{"id": "7", "name": "you"}')
    assert (tried.code, "accepted: it is in topic users" in tried.out) == (0, True)
    wrong = run("collector", "test", "web", "--event", '{"id": 7}')
    assert (wrong.code, wrong.out.splitlines()[1]) == (1, "rejected: `id` must be a string, got 7")
    assert run("collector", "test", "web", "--event", "[1]").code == 1
    assert {one["name"] for one in json.loads(run("collector", "list", "--json").out)["collectors"]} == {
        "web",
        "broken",
    }


def test_delivery_streams_are_listed(run: Headrace, server: Running) -> None:
    assert run("delivery", "list").out.startswith("no delivery streams")
    configuration = {"BucketARN": "arn:aws:s3:::lake", "Prefix": "orders/"}
    note = DeliveryNote(
        name="orders", made=1, created_ms=0, updated_ms=0, destination="S3", configuration=configuration
    )
    server.services.deliveries.create(note)
    one = pa.record_batch({"VALUE": pa.array([b"one"], pa.binary())})
    server.services.log.append([Append(note.topic, one)]).result()

    def listed() -> list[str]:
        return run("delivery", "list").out.splitlines()[-1].split()

    wait_for(lambda: listed()[:6] == ["orders", "puts", "lake/orders/", "running", "0", "0"], 30, "the stream")
    wait_for(lambda: listed()[6:9] == ["1", "1,", "3"], 30, "what waits for its file")
    server.services.deliveries.delete("orders")


def test_ways_past_what_a_collector_hides_are_named(headrace: Headrace, tmp_path: Path) -> None:
    headrace("init", "shop")
    collectors = tmp_path / "shop" / "collectors"
    for file in collectors.glob("*"):
        file.unlink()
    private = 'topic = "clicks"\n[privacy]\ndrop = ["user.email", "ip"]\n'
    (collectors / "app.toml").write_text(f'type = "segment"\n{private}')
    said = headrace("collector", "check", "--project", "shop")
    assert said.code == 0
    assert "warning: what it hides may still be sent to POST /v1/topics/clicks/events" in said.out
    (collectors / "web.toml").write_text('type = "http"\ntopic = "clicks"\n[privacy]\nhash = ["USER"]\n')
    body = json.loads(headrace("collector", "check", "--project", "shop", "--json").out)
    assert {one["name"]: one["warnings"] for one in body["collectors"]} == {
        "app": ["collector `web` writes to topic `clicks`, too, and does not hide `ip`"],
        "web": ["collector `app` writes to topic `clicks`, too, and does not hide `USER`"],
    }
    (collectors / "web.toml").write_text(f'type = "http"\n{private}')
    assert "warning" not in headrace("collector", "check", "--project", "shop").out


def test_collectors_are_checked_without_a_server(headrace: Headrace, tmp_path: Path) -> None:
    headrace("init", "shop")
    said = headrace("collector", "check", "--project", "shop")
    assert (said.code, said.out) == (0, "collectors/pageviews.toml: http into topic pageviews\n")
    (tmp_path / "shop" / "collectors" / "bad.toml").write_text(
        'type = "http"\n[validate.fields.size]\nmin = 1\n[validate.fields.age]\nmin = "a"\n'
    )
    said = headrace("collector", "check", "--project", "shop")
    assert said.code == 1
    assert "collectors/bad.toml:5: `validate.fields.age.min`: expected" in said.out
    body = json.loads(headrace("collector", "check", "--project", "shop", "--json").out)
    assert (body["ok"], body["problems"][0]["line"]) == (False, 5)
    assert "http" in headrace("collector", "kinds").out
