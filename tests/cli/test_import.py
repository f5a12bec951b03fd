"""`headrace import`: history comes in once, whatever is done twice."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.cli.api import Api
from headrace.cli.backend import ServerBackend
from headrace.cli.history_files import Reading
from headrace.cli.import_files import bring_in
from headrace.errors import HeadraceError
from tests.cli.conftest import Headrace
from tests.server.running import Running, running_server, write_project
from tests.support import free_port, wait_for

pytestmark = pytest.mark.slow

SALES = """
CREATE STREAM sales (shop VARCHAR KEY, amount DECIMAL(8, 2), sold TIMESTAMP, tags ARRAY<VARCHAR>)
  WITH (KAFKA_TOPIC='sales', TIMESTAMP='sold', PARTITIONS=2);
CREATE STREAM plain (a INTEGER, at VARCHAR) WITH (KAFKA_TOPIC='plain');
"""
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
NOON_MS = 1_794_744_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("import"), sql=SALES) as server:
        yield server


def values(server: Running, topic: str) -> list[dict[str, Any]]:
    return [event["key"] | event["value"] for event in server.events(topic)]


def test_every_format_once(server: Running, headrace: Headrace, tmp_path: Path) -> None:
    table = pa.table(
        {
            "shop": ["a", "b"],
            "amount": pa.array([Decimal("1.50"), None], pa.decimal128(8, 2)),
            "sold": pa.array([NOON, NOON], pa.timestamp("us", "UTC")),
            "tags": [["x"], []],
        }
    )
    folder = tmp_path / "history"
    folder.mkdir()
    pq.write_table(table, folder / "one.parquet")
    (folder / "two.csv").write_text(
        'shop,amount,sold,tags\nc,2.25,2026-11-15T12:00:01Z,"[""y""]"\nd,many,2026-11-15T12:00:02Z,\n'
    )
    lines = [{"shop": "e", "sold": NOON_MS + 3000, "more": 1}, {"shop": "f", "sold": "2026-11-15T12:00:04Z"}]
    with gzip.open(folder / "three.ndjson.gz", "wt") as packed:
        packed.write("\n".join(json.dumps(line) for line in lines) + "\nnonsense\n")
    with pa.output_stream(folder / "four.json.zst", compression="zstd") as packed:
        packed.write(json.dumps([{"shop": "g", "sold": NOON_MS}]).encode())
    # Called JSON, but one object a line.
    (folder / "five.json").write_text(
        f'{{"shop": "h", "sold": {NOON_MS}}}\n{{"shop": "i", "sold": {NOON_MS}}}\n{{"shop": \n'
    )
    run = ("import", "sales", str(folder), "--url", f"http://127.0.0.1:{server.port}")

    tried = headrace(*run, "--dry-run")
    assert (tried.code, values(server, "sales")) == (1, [])
    assert "11 rows in 5 files; 3 would be rejected" in tried.out
    assert "without a column: more" in tried.out
    assert "five.json:3 would be rejected: not JSON" in tried.err
    assert "two.csv:3 would be rejected: `amount`" in tried.err

    done = json.loads(headrace(*run, "--json").out)
    assert done == {
        "files": 5,
        "rows": 11,
        "accepted": 8,
        "duplicates": 0,
        "rejected": 3,
        "not_sent": 0,
        "left_out": [],
        "shed": 0,
        "without_rows": [],
        "copies": [],
        "unreadable": [],
    }
    assert {row["shop"]: row["amount"] for row in values(server, "sales")} == {
        "a": 1.5,
        "b": None,
        "c": 2.25,
        "e": None,
        "f": None,
        "g": None,
        "h": None,
        "i": None,
    }
    assert {event["time_ms"] for event in server.events("sales")} == {NOON_MS + 1000 * n for n in (0, 1, 3, 4)}
    assert len(server.dead_letters("sales")) == 3

    again = json.loads(headrace(*run, "--json").out)
    assert (again["accepted"], again["duplicates"]) == (0, 8)
    (folder / "two.csv").write_text("shop,amount,sold,tags\nc,2.25,2026-11-15T12:00:01Z,\nh,3,2026-11-15T12:00:02Z,\n")
    grown = json.loads(headrace("import", "sales", str(folder / "*.csv"), *run[3:], "--json").out)
    assert (grown["accepted"], grown["duplicates"]) == (2, 0), "a row that was mended is a new one"


def test_a_dry_run_shows_what_is_there(server: Running, headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("shop,sold,till\na,1794744000000,7\nb,2026-11-15T13:00:00Z,\n")
    run = ("import", "sales", str(tmp_path), "--url", f"http://127.0.0.1:{server.port}", "--dry-run")
    shown = headrace(*run)
    assert shown.code == 0, shown.err
    assert "event times from 2026-11-15T12:00:00.000Z to 2026-11-15T13:00:00.000Z" in shown.out
    assert "columns that no row has: amount, tags" in shown.out
    body = json.loads(headrace(*run, "--json").out)
    assert body["fields"] == [
        {"name": "shop", "found": ["VARCHAR"], "rows": 2, "column": "VARCHAR"},
        {"name": "sold", "found": ["BIGINT", "TIMESTAMP"], "rows": 2, "column": "TIMESTAMP"},
        {"name": "till", "found": ["VARCHAR"], "rows": 1, "column": None},
    ]
    assert body["first"][0] == {"shop": "a", "sold": NOON_MS, "till": "7"}


def test_what_cannot_be_read_is_named_and_the_rest_comes_in(
    server: Running, headrace: Headrace, tmp_path: Path
) -> None:
    """Each file is wrong in its own way, and none stops the others."""
    folder = tmp_path / "with spaces"
    folder.mkdir()
    (folder / "broken.parquet").write_bytes(b"PAR1 but not really")
    (folder / "latin.csv").write_bytes("a,at\n1,M\xfcnchen\n".encode("latin-1"))
    (folder / "no heading.csv").write_text("1,x\n2,y\n")
    (folder / "open.csv").write_text('a,at\n1,"x\n2,y\n')
    (folder / "twice.csv").write_text("a,A\n1,2\n")
    (folder / "torn.ndjson.gz").write_bytes(gzip.compress(b'{"a": 1}\n' * 1000)[:40])
    (folder / "empty.json").write_text("")
    (folder / "semicolons.csv").write_text("a;at\n1;x\n")
    (folder / "tabs.tsv").write_text("a\tat\n2\ty\n")
    (folder / "large.ndjson").write_text('{"a": 3}\n{"at": "' + "x" * 17_000_000 + '"}\n{"a": 4}\n')
    run = ("import", "plain", str(folder), "--url", f"http://127.0.0.1:{server.port}")
    before = len(values(server, "plain"))
    done = headrace(*run)
    assert done.code == 1
    assert (
        f"4 accepted, 0 were there already, 0 rejected, 1 too large to send ({folder}/large.ndjson:2), "
        "6 files could not be read" in done.out
    )
    assert sorted(row["a"] for row in values(server, "plain")[before:]) == [1, 2, 3, 4]
    assert f"{folder}/large.ndjson:2 was not sent, it has 17,0" in done.err
    assert "latin.csv`: what follows line 0 is not UTF-8" in done.err
    assert "no heading.csv`: no field is a column of the topic" in done.err
    assert "open.csv`: line 3 is not CSV: unexpected end of data" in done.err
    assert "twice.csv`: the heading names `a` twice" in done.err
    assert "torn.ndjson.gz` cannot be read as ndjson" in done.err
    body = json.loads(headrace(*run, "--json").out)
    assert (body["duplicates"], len(body["unreadable"])) == (4, 6)
    assert body["without_rows"] == [f"{folder}/empty.json"]
    [left_out] = body["left_out"]
    assert (left_out["place"], left_out["bytes"] > 17_000_000) == (f"{folder}/large.ndjson:2", True)
    put = headrace("topic", "put", "plain", "--file", str(folder / "large.ndjson"), *run[3:], "--json")
    answer = json.loads(put.out)
    assert (put.code, answer["accepted"], answer["shed"]) == (1, 2, 0)
    assert [(one["index"], one["place"]) for one in answer["not_sent"]] == [(1, f"{folder}/large.ndjson:2")]
    latin = headrace("import", "plain", str(folder / "latin.csv"), *run[3:], "--encoding", "latin-1")
    assert latin.code == 0, latin.err
    assert values(server, "plain")[-1]["at"] == "München"
    mistyped = headrace("import", "plain", str(folder / "semicolons.csv"), *run[3:], "--time", "att")
    assert (mistyped.code, "semicolons.csv` has no field `att`" in mistyped.err) == (1, True)


def test_an_import_waits_for_a_server_that_is_restarted(headrace: Headrace, tmp_path: Path) -> None:
    """The server ends after it took the first batch, and comes again: every row is there once."""
    project = write_project(tmp_path / "shop", sql=SALES)
    file = tmp_path / "rows.ndjson"
    file.write_text("".join(f'{{"a": {n}}}\n' for n in range(45_000)))
    port = free_port()
    with server_process(project, port) as first, Api(f"http://127.0.0.1:{port}", timeout=120) as api:
        backend = ServerBackend(api)
        wait_for(lambda: is_there(backend), 60, "the server")
        ended: list[str] = []

        def end_it(progress: str) -> None:
            if not ended:
                ended.append(progress)
                first.kill()
                first.wait()
                again.enter_context(server_process(project, port))

        with ExitStack() as again:
            body = bring_in(backend, None, "plain", [str(file)], Reading(), again=False, quiet=True, say=end_it)
            assert (body["rows"], body["accepted"] + body["duplicates"]) == (45_000, 45_000)
            assert [one["end"] for one in backend.topic("plain")["partitions"]] == [45_000]


def is_there(backend: ServerBackend) -> bool:
    try:
        return bool(backend.topic("plain"))
    except HeadraceError:
        return False


@contextmanager
def server_process(project: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "headrace.server.main", "--project", str(project), "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as child:
        try:
            yield child
        finally:
            child.kill()


def test_it_goes_on_where_it_was(headrace: Headrace, tmp_path: Path) -> None:
    """Without a server the command owns the log."""
    project = tmp_path / "shop"
    assert headrace("init", str(project)).code == 0
    (project / "pipelines" / "pageviews.sql").write_text(SALES)
    here = ("--project", str(project))
    assert headrace("topic", "create", "plain", "--columns", "a INTEGER, at VARCHAR", *here).code == 0
    file = tmp_path / "rows.csv"
    file.write_text("a,at\n" + "".join(f"{n},2026-11-15T12:00:00Z\n" for n in range(12_000)))
    run = ("import", "plain", str(file), "--time", "at", "--project", str(project))
    first = headrace(*run)
    assert (first.code, first.out) == (0, "12,000 accepted, 0 were there already, 0 rejected\n"), first.err
    assert "was imported already (12,000 rows)" in headrace(*run).err
    assert headrace(*run, "--again").out == "0 accepted, 12,000 were there already, 0 rejected\n"
    renamed = file.rename(tmp_path / "lines.csv")
    assert "was imported already as `rows.csv` (12,000 rows)" in headrace("import", "plain", str(renamed), *run[3:]).err
    file = renamed.rename(file)
    assert headrace("topic", "alter", "plain", "--add-columns", "more VARCHAR", *here).code == 0
    record = json.loads((project / ".headrace" / "imports.json").read_text())
    record["plain"][str(renamed)] |= {"rows": 5000, "complete": False}  # as if it had been killed then
    (project / ".headrace" / "imports.json").write_text(json.dumps(record))
    assert headrace(*run).out == "0 accepted, 7,000 were there already, 0 rejected\n"
    shown = headrace("topic", "tail", "plain", "--lines", "1", "--no-follow", "--json", *here)
    assert f'"time_ms": {NOON_MS}' in shown.out, shown.err


def test_what_is_not_there_is_said(server: Running, headrace: Headrace, tmp_path: Path) -> None:
    url = ("--url", f"http://127.0.0.1:{server.port}")
    assert "no file is called" in headrace("import", "sales", "nothing/*.csv", *url).err
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 but not really")
    broken = headrace("import", "sales", str(tmp_path / "broken.parquet"), *url)
    assert (broken.code, "cannot be read as parquet" in broken.err) == (1, True)
    (tmp_path / "data.txt").write_text("x")
    assert "does not say what it is" in headrace("import", "sales", str(tmp_path / "data.txt"), *url).err


def test_a_view_without_a_batch_layer_is_said_before_anything_is_sent(
    server: Running, headrace: Headrace, tmp_path: Path
) -> None:
    made = "CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;"
    assert server.http.post("/v1/statements", json={"sql": made}).status_code == 200
    (tmp_path / "late.csv").write_text("shop,sold\nlate,2020-01-01T00:00:00Z\n")
    url = f"http://127.0.0.1:{server.port}"
    done = headrace("import", "sales", str(tmp_path / "late.csv"), "--refresh", "by_shop", "--url", url)
    assert done.code == 1
    assert "`by_shop` has no batch layer" in done.err
    assert "late" not in {row["shop"] for row in values(server, "sales")}
