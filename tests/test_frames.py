"""`headrace.sql(…)`: the same table from a server, and from the folder once it has stopped."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace
from headrace.errors import NotRunning, SqlError, UsageError
from tests.server.running import Running, running_server
from tests.support import wait_for

SQL = """
CREATE TABLE things (
    id VARCHAR PRIMARY KEY, n INTEGER, price DECIMAL(6, 2), at TIMESTAMP, day DATE, hour TIME, tags ARRAY<VARCHAR>,
    counts MAP<VARCHAR, BIGINT>, place STRUCT<x DOUBLE, seen TIMESTAMP>
  ) WITH (KAFKA_TOPIC='things');
"""
THING = {
    "id": "a",
    "n": 1,
    "price": 1.5,
    "at": "2026-11-15T12:00:00.001Z",
    "day": "2026-11-15",
    "hour": "13:00:00",
    "tags": ["x", None],
    "counts": {"y": 2},
    "place": {"x": 0.5, "seen": "2026-11-15T12:00:00Z"},
}
NOON = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)


def ask(text: str, **options: Any) -> pa.Table:
    # The package's name, and what everybody calls the function: only mypy minds.
    return headrace.sql(text, **options)  # type: ignore[operator]


def fill(server: Running, rows: int) -> None:
    answer = server.send("things", [THING, *({"id": f"b{n}", "n": n} for n in range(rows - 1))])
    assert answer.status_code == 200, answer.text
    wait_for(lambda: server.services.followers.lag("THINGS") == 0, 30, "the view to be filled")


def test_from_a_server_and_from_a_folder(tmp_path: Path) -> None:
    one = "SELECT * FROM things WHERE id = 'a';"
    grouped = "SELECT n % 2 AS odd, COUNT(*) AS many FROM things GROUP BY n % 2 ORDER BY odd;"
    with running_server(tmp_path, sql=SQL) as server:
        fill(server, 11)
        url = f"http://127.0.0.1:{server.port}"
        live = [ask(sql, url=url) for sql in (one, grouped)]
        shown = ask("SHOW TABLES;", url=url)
    assert "things" in str(shown.to_pylist()).lower()
    folder = [ask(sql, project=tmp_path) for sql in (one, grouped)]
    assert folder == live
    [row] = live[0].to_pylist()
    assert row == {
        "id": "a",
        "n": 1,
        "price": Decimal("1.50"),
        "at": NOON + datetime.timedelta(milliseconds=1),
        "day": NOON.date(),
        "hour": datetime.time(13),
        "tags": ["x", None],
        "counts": [("y", 2)],
        "place": {"X": 0.5, "SEEN": NOON},
    }
    assert live[1].to_pydict() == {"odd": [0, 1], "many": [5, 6]}


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with running_server(tmp_path, sql=SQL) as server:
        fill(server, 3)
        url = f"http://127.0.0.1:{server.port}"
        with pytest.raises(SqlError, match="does not exist"):
            ask("SELECT * FROM thngs;", url=url)
        with pytest.raises(UsageError, match="EMIT has no end"):
            ask("SELECT * FROM things EMIT CHANGES;", url=url)
        with pytest.raises(UsageError, match="one statement at a time"):
            ask("SHOW TABLES; SHOW STREAMS;", url=url)
        assert ask("SELECT * FROM things;", url=url, limit=2).num_rows == 2
    with pytest.raises(NotRunning, match="nothing answers"):
        ask("SELECT * FROM things;", url=url)
