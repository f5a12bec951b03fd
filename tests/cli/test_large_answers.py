"""Answers larger than `[server] query_rows`: by the command line, by export jobs, by the Python clients."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import AsyncClient, Client
from headrace.cli.api import Api
from headrace.cli.export_files import export_query
from headrace.client.arrow_rows import ARROW
from headrace.client.rows import RowReading
from headrace.errors import DeadlineExceeded, Disconnected
from headrace.frames import sql
from tests.cli.conftest import Headrace, Said
from tests.server.running import Running, running_server
from tests.support import wait_for

ROWS = 25_000
SETTINGS = "[server]\nquery_rows = 10_000\n"
ALL = "SELECT id, age FROM users;"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """25,000 users; one has a line separator in its name."""
    with running_server(tmp_path_factory.mktemp("large"), SETTINGS) as running:
        for first in range(0, ROWS, 5_000):
            users = [
                {"id": f"u{n}", "name": "a\u2028b" if n == 7 else "x" * 40, "age": n}
                for n in range(first, first + 5_000)
            ]
            assert running.send("users", users).json()["accepted"] == 5_000
        wait_for(lambda: running.http.get("/v1/views/users").json()["lag"] == 0, 60, "the view")
        yield running


@pytest.fixture
def url(server: Running) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture
def run(headrace: Headrace, url: str) -> Headrace:
    def run(*arguments: str) -> Said:
        return headrace(*arguments, "--url", url)

    return run


def test_csv_has_every_row(run: Headrace) -> None:
    said = run("sql", "-e", "SELECT * FROM users;", "--format", "csv")
    rows = list(csv.reader(io.StringIO(said.out)))
    assert (said.code, said.err, rows[0], len(rows) - 1) == (0, "", ["id", "name", "age"], ROWS)
    assert {row[0] for row in rows[1:]} == {f"u{n}" for n in range(ROWS)}


@pytest.mark.parametrize(
    ("text", "options", "rows"),
    [
        ("SELECT id FROM users LIMIT 20000;", (), 20_000),
        ("SELECT id FROM users;", ("--limit", "15000"), 15_000),
        ("SELECT id FROM users LIMIT 20000;", ("--limit", "3"), 3),
        ("SELECT id FROM users ORDER BY LCASE(id);", (), ROWS),
        ("SELECT a.id FROM users a JOIN users b ON a.id = b.id;", (), ROWS),
    ],
)
def test_limits_do_what_they_say(run: Headrace, text: str, options: tuple[str, ...], rows: int) -> None:
    said = run("sql", "-e", text, "--format", "csv", *options)
    assert (said.code, len(said.out.splitlines()) - 1) == (0, rows)


def test_json_is_one_document(run: Headrace) -> None:
    body = json.loads(run("sql", "-e", "SELECT id FROM users ORDER BY age;", "--json").out)
    assert (len(body["rows"]), body["rows"][-1], body["truncated"]) == (ROWS, [f"u{ROWS - 1}"], False)
    assert (body["view"], body["version"], body["columns"]) == ("users", 1, [{"name": "id", "type": "VARCHAR"}])
    cut = json.loads(run("sql", "-e", ALL, "--json", "--limit", "2").out)
    assert (len(cut["rows"]), cut["truncated"]) == (2, True)


def test_a_table_in_a_script_that_is_not_whole_is_an_error(run: Headrace) -> None:
    said = run("sql", "-e", ALL)
    assert (said.code, len(said.out.splitlines())) == (1, 10_001)
    assert "only the first 10,000 rows were printed: [server] query_rows" in said.err
    assert "--format csv" in said.err
    assert run("sql", "-e", "SELECT id FROM users LIMIT 12000;").code == 0


def test_exports_of_any_size(server: Running, url: str, tmp_path: Path) -> None:
    said: list[str] = []
    with Api(url) as api:
        for ending in ("csv", "json", "parquet"):
            export_query(api, "SELECT * FROM users ORDER BY age;", tmp_path, f"all.{ending}", said.append)
        assert export_query(api, "SELECT * FROM users WHERE id = '';", tmp_path, "none.json", said.append) == (
            "0 rows in none.json"
        )
    rows = json.loads((tmp_path / "all.json").read_text())
    assert (len(rows), rows[7]) == (ROWS, {"id": "u7", "name": "a\u2028b", "age": 7})
    table = pq.read_table(tmp_path / "all.parquet")
    assert (table.num_rows, table.schema.names, table.slice(7, 1).to_pylist()) == (
        ROWS,
        ["id", "name", "age"],
        [rows[7]],
    )
    with (tmp_path / "all.csv").open(newline="") as file:
        assert sum(1 for _ in csv.reader(file)) == ROWS + 1
    assert json.loads((tmp_path / "none.json").read_text()) == []


def test_python_clients_get_every_row(url: str) -> None:
    with Client(url) as client:
        answer = client.query("SELECT id FROM users;")
        assert (len(answer.rows), answer.truncated, answer.view) == (ROWS, False, "users")
        cut = client.query("SELECT id FROM users;", limit=12_000)
        assert (len(cut.rows), cut.truncated) == (12_000, True)
        assert sum(row["age"] for row in client.rows(ALL)) == ROWS * (ROWS - 1) // 2

    async def ages() -> int:
        async with AsyncClient(url) as client:
            return sum([row["age"] async for row in client.rows(ALL)])

    assert asyncio.run(ages()) == ROWS * (ROWS - 1) // 2
    assert sql(ALL, url=url).num_rows == ROWS
    assert sql(ALL, url=url, limit=5).num_rows == 5


def test_an_answer_that_fails_midway_is_an_error(url: str) -> None:
    """As lines and as Arrow: a deadline in the middle is never taken for the end."""
    body = {"sql": "SELECT a.id, b.id FROM users a CROSS JOIN users b;", "deadline_ms": 1000}
    reading = RowReading()
    with Api(url) as api:
        with pytest.raises(DeadlineExceeded, match="longer than `1` s") as raised:
            list(api.query_rows(body, reading))
        assert reading.rows > 0
        assert "stream_seconds" in str(raised.value)
        assert "headrace.spark.sql(" in str(raised.value)
        with pytest.raises(DeadlineExceeded), api.query_batches(body) as batches:
            list(batches.batches())
    plain = httpx.post(f"{url}/v1/query", json=body | {"stream": True}, headers={"accept": ARROW}, trust_env=False)
    with pytest.raises((pa.ArrowInvalid, OSError)):
        pa.ipc.open_stream(plain.content).read_all()


def test_an_answer_that_breaks_off_is_an_error() -> None:
    reading = RowReading()
    with pytest.raises(Disconnected, match="broke off after 1 rows"):
        list(reading.read_all([b'{"event":"header","data":{"columns":[]}}', b'{"event":"rows","data":{"rows":[[1]]}}']))


def test_a_client_that_leaves_ends_the_reading(server: Running) -> None:
    body = json.dumps({"sql": "SELECT a.id, b.id FROM users a CROSS JOIN users b;", "stream": True}).encode()
    head = "POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as leaving:
        leaving.sendall(head.encode() + body)
        assert leaving.recv(1000)
        assert server.services.streams == 1
    wait_for(lambda: server.services.streams == 0, 60, "the end of the reading")
