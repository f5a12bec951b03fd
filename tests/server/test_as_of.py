"""AS OF a moment between two batches of a query: computed again from the records, or said to be of an earlier one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from headrace.coordinate import moments
from headrace.log.base import Append
from headrace.log.schema import arrow_type
from headrace.types import BIGINT
from tests.cli.conftest import Headrace, headrace
from tests.server.running import Running, running_server
from tests.support import wait_for

__all__ = ["headrace"]

SQL = """
CREATE STREAM readings (device VARCHAR KEY, celsius DOUBLE, ts BIGINT)
  WITH (KAFKA_TOPIC='readings', VALUE_FORMAT='JSON', TIMESTAMP='ts', PARTITIONS=2);
CREATE TABLE latest AS SELECT device, LATEST_BY_OFFSET(celsius) AS celsius, COUNT(*) AS readings
  FROM readings GROUP BY device;
CREATE TABLE per_hour AS SELECT device, COUNT(*) AS readings
  FROM readings WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY device;
"""
MIDNIGHT = 1_794_700_800_000
HOUR = 3_600_000


def hour(number: float) -> int:
    return int(MIDNIGHT + number * HOUR)


def write_batch(server: Running, topic: str, rows: list[dict[str, Any]]) -> None:
    """What a query writes after it has read many records in one batch: their sum, by key."""
    log = server.services.log
    spec = log.topic(topic).spec
    types = {c.name: c.type for c in spec.key + spec.value}
    types |= dict.fromkeys(("$time", "$window_start", "$window_end"), BIGINT)
    names = list(rows[0])
    batch = pa.record_batch({name: pa.array([row[name] for row in rows], arrow_type(types[name])) for name in names})
    log.append([Append(topic, batch)]).result(60)
    wait_for(lambda: not any(map(server.services.followers.lag, ("LATEST", "PER_HOUR"))), 60, "the views")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two devices send once an hour; the query reads the first twelve hours in one batch, the others in a second."""
    with running_server(tmp_path_factory.mktemp("fleet"), sql=SQL) as server:
        for first in (0, 12):
            events = [
                {"device": d, "celsius": n + len(d), "ts": hour(n)}
                for n in range(first, first + 12)
                for d in ("a", "bb")
            ]
            assert server.send("readings", events).json()["accepted"] == 24
            last = first + 11
            write_batch(
                server,
                "LATEST",
                [
                    {"DEVICE": d, "CELSIUS": float(last + len(d)), "READINGS": last + 1, "$time": hour(last)}
                    for d in ("a", "bb")
                ],
            )
        yield server


def ask(server: Running, sql: str) -> tuple[list[list[Any]], dict[str, Any]]:
    answer = server.http.post("/v1/query", json={"sql": sql})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return body["rows"], body["reads"][0]["as_of"]


def test_rows_between_two_batches_are_exact(fleet: Running) -> None:
    """It answered with the state of 11:00: 12 readings."""
    by_key = "SELECT celsius, readings, ROWTIME FROM latest AS OF TIMESTAMP {} WHERE device = 'bb';"
    rows, as_of = ask(fleet, by_key.format(hour(20.5)))
    assert rows == [[22.0, 21, hour(20)]]
    assert as_of == {"asked_ms": hour(20.5), "represents_ms": hour(20.5), "exact": True, "hint": None}
    both, as_of = ask(fleet, f"SELECT device, readings FROM latest AS OF TIMESTAMP {hour(3)} ORDER BY device;")
    assert (both, as_of["exact"]) == ([["a", 4], ["bb", 4]], True)
    several = "SELECT SUM(readings) FROM latest AS OF TIMESTAMP {} WHERE device IN ('a', 'bb', 'c');"
    assert ask(fleet, several.format(hour(13)))[0] == [[28]]
    assert ask(fleet, by_key.format(MIDNIGHT - 1))[0] == []


def test_windows_too(fleet: Running) -> None:
    write_batch(
        fleet,
        "PER_HOUR",
        [{"DEVICE": "a", "READINGS": 1, "$time": hour(23), "$window_start": hour(23), "$window_end": hour(24)}],
    )
    sql = f"SELECT WINDOWSTART, readings FROM per_hour AS OF TIMESTAMP {hour(2.5)} WHERE device = 'a' ORDER BY 1;"
    rows, as_of = ask(fleet, sql)
    assert (rows, as_of["exact"]) == ([[hour(0), 1], [hour(1), 1], [hour(2), 1]], True)


def test_what_is_not_exact_says_so_and_how_to_get_it(
    fleet: Running, monkeypatch: pytest.MonkeyPatch, headrace: Headrace
) -> None:
    monkeypatch.setattr(moments, "MOST_RECORDS", 10)
    sql = f"SELECT device, readings FROM latest AS OF TIMESTAMP {hour(20.5)} ORDER BY device;"
    rows, as_of = ask(fleet, sql)
    assert rows == [["a", 12], ["bb", 12]], "the newest state that the changelog has"
    assert (as_of["asked_ms"], as_of["represents_ms"], as_of["exact"]) == (hour(20.5), hour(11), False)
    assert "rows by key are computed exactly: WHERE device = …" in as_of["hint"]
    said = headrace("sql", "-e", sql, "--format", "csv", "--url", f"http://127.0.0.1:{fleet.port}")
    assert (said.code, said.out) == (0, "device,readings\na,12\nbb,12\n")
    assert "`latest` as of 2026-11-15T20:30:00.000Z is shown as it was at 2026-11-15T11:00:00.000Z" in said.err
    assert "WHERE device = …" in said.err


def test_other_moments_are_exact_by_themselves(fleet: Running) -> None:
    end = fleet.services.log.snapshot().arrival
    answer = fleet.http.post("/v1/query", json={"sql": f"SELECT * FROM latest AS OF ARRIVAL {end} WHERE device = 'a';"})
    assert "as_of" not in answer.json()["reads"][0]
