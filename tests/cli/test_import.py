"""`headrace import`: history comes in once, whatever is done twice."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Headrace
from tests.server.running import Running, running_server

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
    assert done == {"files": 5, "rows": 11, "accepted": 8, "duplicates": 0, "rejected": 3}
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
    record = json.loads((project / ".headrace" / "imports.json").read_text())
    record["plain"][str(file)] |= {"rows": 5000, "complete": False}  # as if it had been killed then
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
