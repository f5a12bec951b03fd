"""ksqlDB's API, with its real clients and by hand."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from ksqldb import KSQLdbClient
from websockets.sync.client import connect

from tests.server.running import Running, running_server
from tests.support import wait_for

NODE = Path(__file__).parents[1] / "clients" / "node"
PEOPLE = [("u1", "Ann", 41), ("u2", "Bob", 7), ("u3", "Cy", None)]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Three people in the view `users`."""
    with running_server(tmp_path_factory.mktemp("people")) as server:
        server.send("users", [{"id": id_, "name": name, "age": age} for id_, name, age in PEOPLE])
        wait_for(lambda: server.http.get("/v1/views/users").json()["lag"] == 0, 10, "the view")
        yield server


@pytest.fixture
def client(people: Running) -> KSQLdbClient:
    return KSQLdbClient(f"http://127.0.0.1:{people.port}")


def ksql(server: Running, text: str, **more: Any) -> httpx.Response:
    return server.http.post("/ksql", json={"ksql": text, **more})


# The Python client


def test_the_python_client_runs_statements(client: KSQLdbClient) -> None:
    created = client.ksql("CREATE STREAM made (k VARCHAR KEY, n INT) WITH (KAFKA_TOPIC='made', VALUE_FORMAT='JSON');")
    assert created[0]["@type"] == "currentStatus"
    assert (created[0]["commandId"], created[0]["commandStatus"]["status"]) == ("stream/MADE/create", "SUCCESS")
    [listed] = client.ksql("LIST STREAMS;")
    assert {
        "type": "STREAM",
        "name": "MADE",
        "topic": "made",
        "keyFormat": "KAFKA",
        "valueFormat": "JSON",
        "isWindowed": False,
    } in listed["streams"]
    [dropped] = client.ksql("DROP STREAM made;")
    assert dropped["commandId"] == "stream/MADE/drop"
    assert any(entry["name"] == "server.port" for entry in client.get_properties())


def test_the_python_client_pulls_over_cleartext_http2(client: KSQLdbClient) -> None:
    head, *rows = client.query_sync("SELECT id, age FROM users WHERE id <> 'u2';", timeout=60)
    assert (head["columnNames"], head["columnTypes"]) == (["ID", "AGE"], ["STRING", "INTEGER"])
    assert sorted(rows) == [["u1", 41], ["u3", None]]


def test_the_python_client_inserts_and_pushes(people: Running, client: KSQLdbClient) -> None:
    sent = client.inserts_stream(
        "pageviews", [{"USERID": "k1", "pageid": "/k", "viewtime": 1}, {"userid": 7}, {"userid": "k2", "pageid": "/k"}]
    )
    assert [(line["seq"], line["status"]) for line in sent] == [(0, "ok"), (1, "error"), (2, "ok")]
    assert "`userid` must be a string" in sent[1]["message"]

    async def listen() -> list[Any]:
        found: list[Any] = []
        sql = "SELECT userid FROM pageviews WHERE pageid = '/k' EMIT CHANGES;"
        async for line in client.query_async(sql, {"auto.offset.reset": "earliest"}, timeout=60):
            found.append(line)
            if len(found) == 3:
                assert client.close_query(found[0]["queryId"])
        return found

    head, *rows = asyncio.run(listen())
    assert head["columnNames"] == ["USERID"]
    assert sorted(rows) == [["k1"], ["k2"]]
    assert not client.close_query(head["queryId"])


# The npm client


@pytest.mark.slow
def test_the_npm_client_works_unmodified(people: Running) -> None:
    ran = subprocess.run(
        ["node", "ksqldb.js", str(people.port)], cwd=NODE, capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["created"]["status"] == said["dropped"]["status"] == 200
    assert said["rows"] == [{"USERID": "u1", "PAGEID": "/a"}, {"USERID": "u2", "PAGEID": "/b"}]
    assert said["pushed"]["status"] == said["closed"]["status"] == 200
    assert said["first"]["data"] == {"rows": [{"status": "ok", "seq": 0}]}
    assert said["pulled"]["data"]["rows"] == said["rows"]
    assert "NPM_VIEWS" in [stream["name"] for stream in said["streams"]]
    assert [table["name"] for table in said["tables"]] == ["USERS"]
    assert "npm_views" in [topic["name"] for topic in said["topics"]]
    fields = [(field["name"], field.get("type")) for field in said["described"]["fields"]]
    assert fields == [("USERID", "KEY"), ("PAGEID", None)]
    assert said["wrong"]["error"]["error_code"] == 40001


# By hand


def test_a_query_of_a_table_marks_its_key(people: Running) -> None:
    answer = people.http.post("/query", json={"ksql": "SELECT * FROM users WHERE id = 'u1';"})
    assert answer.headers["content-type"] == "application/vnd.ksql.v1+json"
    head, row = answer.json()
    assert head["header"]["schema"] == "`ID` STRING KEY, `NAME` STRING, `AGE` INTEGER"
    assert row == {"row": {"columns": ["u1", "Ann", 41]}}


def test_structs_and_decimals_look_as_in_ksqldb(people: Running) -> None:
    ksql(
        people,
        """CREATE STREAM shaped (k VARCHAR KEY, s STRUCT<f1 INT, `f2` DECIMAL(4, 2)>)
        WITH (KAFKA_TOPIC='shaped', VALUE_FORMAT='JSON', PARTITIONS=1);""",
    )
    people.send("shaped", {"k": "a", "s": {"f1": 1, "f2": 2.5}})
    answer = people.http.post("/query-stream", json={"sql": "SELECT s FROM shaped;"})
    head, row = answer.text.splitlines()
    assert json.loads(head)["columnTypes"] == ["STRUCT<`F1` INTEGER, `f2` DECIMAL(4, 2)>"]
    assert row == '[{"F1":1,"f2":2.50}]'


def test_times_look_as_in_ksqldb(people: Running) -> None:
    ksql(people, "CREATE STREAM timed (d DATE, t TIME, u TIME, at TIMESTAMP, all ARRAY<TIME>) WITH (PARTITIONS=1);")
    ksql(
        people,
        "INSERT INTO timed VALUES ('2026-11-16', '10:00', '10:00:00.5', '2026-11-16T09:30:00', ARRAY['07:05:01']);",
    )
    _, row = people.http.post("/query-stream", json={"sql": "SELECT * FROM timed;"}).text.splitlines()
    assert json.loads(row) == ["2026-11-16", "10:00", "10:00:00.500", "2026-11-16T09:30:00.000", ["07:05:01"]]


def test_a_topic_is_printed(people: Running) -> None:
    ksql(people, "CREATE STREAM printed (k INT KEY, v VARCHAR) WITH (KAFKA_TOPIC='printed', PARTITIONS=1);")
    for n in range(4):
        ksql(people, f"INSERT INTO printed (ROWTIME, k, v) VALUES ({n}, {n}, 'x');")
    ksql(people, "INSERT INTO printed (ROWTIME, k) VALUES (5, NULL);")
    text = people.http.post("/query", json={"ksql": "PRINT 'printed' FROM BEGINNING INTERVAL 2 LIMIT 3;"}).text
    assert [line for line in text.splitlines() if line] == [
        'rowtime: 1970/01/01 00:00:00.000 Z, key: 0, value: {"v":"x"}, partition: 0',
        'rowtime: 1970/01/01 00:00:00.002 Z, key: 2, value: {"v":"x"}, partition: 0',
        'rowtime: 1970/01/01 00:00:00.005 Z, key: <null>, value: {"v":null}, partition: 0',
    ]
    missing = people.http.post("/query-stream", json={"sql": "PRINT nothing;"})
    assert (missing.status_code, missing.json()["error_code"]) == (400, 40001)


def test_what_is_shown_has_ksqldbs_names(people: Running) -> None:
    ksql(people, "CREATE TYPE place AS STRUCT<street VARCHAR>;")
    shown = ksql(
        people,
        """SHOW TYPES; SHOW STREAMS EXTENDED; DESCRIBE TABLES; SHOW QUERIES EXTENDED; SHOW TOPICS EXTENDED;
        SHOW VARIABLES; ASSERT TOPIC users; DESCRIBE FUNCTION SUBSTRING;
        EXPLAIN SELECT name FROM users EMIT CHANGES;""",
    ).json()
    assert [entity["@type"] for entity in shown] == [
        "type_list",
        "source_descriptions",
        "source_descriptions",
        "queryDescriptions",
        "kafka_topics_extended",
        "variables",
        "assert_topic",
        "describe_function",
        "queryDescription",
    ]
    assert shown[0]["types"]["PLACE"]["fields"][0]["name"] == "STREET"
    assert "USERS" in [source["name"] for source in shown[2]["sourceDescriptions"]]
    [first, *_] = shown[7]["functions"]
    assert ([a["type"] for a in first["arguments"]], first["returnType"]) == (["VARCHAR", "INTEGER"], "VARCHAR")
    explained = shown[8]["queryDescription"]
    assert (explained["sources"], [field["name"] for field in explained["fields"]]) == (["USERS"], ["NAME"])
    ksql(people, "DROP TYPE place;")


def test_a_push_query_ends_at_its_limit(people: Running) -> None:
    people.send("pageviews", [{"userid": f"l{n}", "pageid": "/limit"} for n in range(3)])
    answer = people.http.post(
        "/query",
        json={
            "ksql": "SELECT userid FROM pageviews WHERE pageid = '/limit' EMIT CHANGES LIMIT 2;",
            "streamsProperties": {"ksql.streams.auto.offset.reset": "earliest"},
        },
    )
    head, *rows, last = answer.json()
    assert head["header"]["schema"] == "`USERID` STRING"
    assert (len(rows), last) == (2, {"finalMessage": "Limit Reached"})


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        ("SELECT * FROM users;", 40002, "statement_error"),
        ("CREATE STREAM;", 40001, "statement_error"),
        ("DESCRIBE nothing;", 40001, "statement_error"),
    ],
)
def test_a_statement_that_cannot_be_run(people: Running, text: str, code: int, kind: str) -> None:
    answer = ksql(people, text)
    assert (answer.status_code, answer.json()["error_code"], answer.json()["@type"]) == (400, code, kind)


def test_what_was_done_before_the_error_is_in_it(people: Running) -> None:
    answer = ksql(people, "SHOW TABLES; DESCRIBE nothing;")
    assert answer.json()["statementText"] == "DESCRIBE nothing;"
    assert [entity["@type"] for entity in answer.json()["entities"]] == ["tables"]


def test_variables_are_put_in(people: Running) -> None:
    [shown] = ksql(people, "DESCRIBE ${who};", sessionVariables={"who": "users"}).json()
    assert shown["sourceDescription"]["fields"][2]["schema"]["type"] == "INTEGER"


def test_a_body_that_is_none(people: Running) -> None:
    answer = people.http.post("/ksql", content=b"{", headers={"Content-Type": "application/vnd.ksql.v1+json"})
    assert (answer.status_code, answer.json()["@type"]) == (400, "generic_error")
    assert people.http.post("/inserts-stream", content=b"{}\n").json()["error_code"] == 40000
    assert people.http.post("/inserts-stream", content=b'{"target": "userz"}\n').status_code == 404


def test_the_server_about_itself(people: Running) -> None:
    get = people.http.get
    assert get("/info").json()["KsqlServerInfo"]["serverStatus"] == "RUNNING"
    assert get("/healthcheck").json()["details"]["metastore"] == {"isHealthy": True}
    assert len(get("/clusterStatus").json()["clusterStatus"]) == 1
    assert get("/status").json()["commandStatuses"]["table/USERS/create"] == "SUCCESS"
    assert get("/status/table/USERS/create").json()["status"] == "SUCCESS"
    assert get("/status/table/NOBODY/create").json()["error_code"] == 40400
    assert get("/is_valid_property/ksql.streams.auto.offset.reset").json() is True


def test_a_push_query_over_a_websocket(people: Running) -> None:
    people.send("pageviews", [{"userid": "w1", "pageid": "/ws"}])
    sql = "SELECT userid FROM pageviews WHERE pageid = '/ws' EMIT CHANGES LIMIT 1;"
    wanted = quote(json.dumps({"ksql": sql, "streamsProperties": {"auto.offset.reset": "earliest"}}))
    with connect(f"ws://127.0.0.1:{people.port}/ws/query?request={wanted}") as socket:
        schema, row, last = [json.loads(message) for message in socket]
    assert [field["name"] for field in schema] == ["USERID"]
    assert (row, last) == ({"row": {"columns": ["w1"]}}, {"finalMessage": "Limit Reached"})
    with connect(f"ws://127.0.0.1:{people.port}/ws/query?request=x") as socket:
        assert json.loads(socket.recv())["@type"] == "generic_error"


def test_a_key_is_the_password(tmp_path: Path) -> None:
    toml = '[auth]\nkeys = [{ name = "reader", key = "reader-0123456789", role = "read" }]\n'
    with running_server(tmp_path, toml, key="reader-0123456789") as server:
        anonymous = httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60, trust_env=False)
        refused = anonymous.post("/ksql", json={"ksql": "SHOW TABLES;"})
        assert (refused.status_code, refused.json()["error_code"]) == (401, 40100)
        allowed = anonymous.post("/ksql", json={"ksql": "SHOW TABLES;"}, auth=("anybody", "reader-0123456789"))
        assert allowed.json()[0]["@type"] == "tables"
        dropping = anonymous.post("/ksql", json={"ksql": "DROP TABLE users;"}, auth=("anybody", "reader-0123456789"))
        assert (dropping.status_code, dropping.json()["error_code"]) == (403, 40300)
