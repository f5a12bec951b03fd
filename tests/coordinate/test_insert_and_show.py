"""The executor answers INSERT, SHOW, DESCRIBE and EXPLAIN, and leaves SELECT and PRINT to others."""

from __future__ import annotations

import os
from typing import Any

import pytest

from headrace.clock import ManualClock
from headrace.config import AuthSettings, Key, ProjectSettings
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.statements import StatementExecutor
from headrace.coordinate.status import EngineStatus
from headrace.errors import SqlError, UsageError
from headrace.log.local.open import LocalLog

from .conftest import NOW_MS, Run
from .test_statements import STREAM, TABLE, WINDOWED, rows


def records(log: LocalLog, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for partition, ends in enumerate(log.snapshot().ends[topic]):
        for batch in log.read(topic, partition, ends.start, ends.end):
            found += batch.batch.to_pylist()
    return sorted(found, key=lambda row: row["$arrival"])


def test_inserted_rows_get_their_event_time(run: Run, log: LocalLog) -> None:
    run(STREAM)
    [result] = run("""INSERT INTO pageviews (userid, pageid, viewtime) VALUES
        ('ann', '/a', '2026-09-01T12:00:00Z'), ('bob', '/b', NULL);""")
    assert (result.kind, result.message) == ("inserted", "2 rows inserted into `pageviews`")
    run("INSERT INTO pageviews (userid, pageid, rowtime) VALUES ('cid', '/c', 1234567890123);")
    found = [(row["USERID"], row["PAGEID"], row["$time"]) for row in records(log, "pageviews")]
    assert sorted(found) == [("ann", "/a", 1788264000000), ("bob", "/b", NOW_MS), ("cid", "/c", 1234567890123)]


def test_columns_the_topic_does_not_have_are_kept_beside(run: Run, log: LocalLog) -> None:
    run(STREAM + "CREATE STREAM more (userid VARCHAR KEY, country VARCHAR) WITH (KAFKA_TOPIC='pageviews');")
    run("INSERT INTO more VALUES ('ann', 'DE');")
    [row] = records(log, "pageviews")
    assert (row["USERID"], row["PAGEID"], row["$rest"]) == ("ann", None, '{"country":"DE"}')


def test_every_type_can_be_inserted(run: Run, log: LocalLog) -> None:
    run("""CREATE STREAM all_types (a INTEGER, b BIGINT, c DOUBLE, d DECIMAL(6, 2), e BOOLEAN, f DATE, g TIME,
        h TIMESTAMP, i ARRAY<INTEGER>, j MAP<VARCHAR, BIGINT>, k STRUCT<x VARCHAR, y TIMESTAMP>)
        WITH (KAFKA_TOPIC='t');""")
    run("""INSERT INTO all_types VALUES (1, 2, 1.5, 3.25, TRUE, '2026-09-01', '12:30:00', '2026-09-01T12:00:00Z',
        ARRAY[1, 2], MAP('k' := 7), STRUCT(x := 'v', y := CAST('2026-09-01T12:00:00Z' AS TIMESTAMP)));""")
    [row] = records(log, "t")
    values = [row[name] for name in "ABCDEFGHIJK"]
    assert [str(value) for value in values] == [
        "1", "2", "1.5", "3.25", "True", "2026-09-01", "45000000", "2026-09-01 12:00:00+00:00", "[1, 2]",
        "[('k', 7)]", "{'X': 'v', 'Y': datetime.datetime(2026, 9, 1, 12, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC'))}",
    ]  # fmt: skip


def test_what_a_query_writes_is_not_written_by_hand(run: Run) -> None:
    run(STREAM + TABLE)
    with pytest.raises(SqlError, match="`by_page` is written by CTAS_BY_PAGE_1"):
        run("INSERT INTO by_page VALUES ('/a', 3);")
    with pytest.raises(SqlError, match="Headrace itself"):
        run("INSERT INTO dead_letters (reason) VALUES ('because');")


def test_a_time_far_ahead_is_refused(run: Run) -> None:
    run(STREAM)
    with pytest.raises(SqlError, match="too far ahead of the clock"):
        run("INSERT INTO pageviews (userid, viewtime) VALUES ('ann', '2999-01-01T00:00:00Z');")


# Looking


def test_show(run: Run) -> None:
    run(STREAM + TABLE + WINDOWED)
    assert rows(run("SHOW TABLES;")[0]) == [
        ("by_page", "BY_PAGE", "JSON", None, "CTAS_BY_PAGE_1"),
        ("per_minute", "PER_MINUTE", "JSON", "tumbling 60 s, grace 86340 s", "CTAS_PER_MINUTE_2"),
    ]
    assert [row[0] for row in rows(run("SHOW STREAMS;")[0])] == ["dead_letters", "pageviews"]
    assert rows(run("SHOW TOPICS;")[0]) == [
        ("BY_PAGE", "derived", 2, 0),
        ("PER_MINUTE", "derived", 2, 0),
        ("pageviews", "events", 2, 0),
    ]
    assert len(rows(run("SHOW ALL TOPICS;")[0])) == 6
    [first, _] = rows(run("SHOW QUERIES;")[0])
    assert first == ("CTAS_BY_PAGE_1", "starting", "by_page", "pageviews", TABLE)
    assert ("COUNT_DISTINCT", "aggregate") in [row[:2] for row in rows(run("SHOW FUNCTIONS;")[0])]


def test_show_properties_keeps_secrets(log: LocalLog, clock: ManualClock) -> None:
    settings = ProjectSettings(auth=AuthSettings([Key("hunter2", "admin")]))
    executor = StatementExecutor(log, Catalog(log), clock, settings=settings)
    [result] = executor.execute("SHOW PROPERTIES;")
    assert ("server.port", "8080") in rows(result)
    assert "hunter2" not in str(result)


def test_describe(run: Run) -> None:
    run(STREAM + WINDOWED)
    [result] = run("DESCRIBE EXTENDED per_minute;")
    assert rows(result) == [
        ("pageid", "VARCHAR", "primary key"),
        ("windowstart", "BIGINT", "window"),
        ("windowend", "BIGINT", "window"),
        ("views", "BIGINT", None),
    ]
    assert result.text is not None
    assert "written by   CTAS_PER_MINUTE_1 (starting)" in result.text
    assert "served       version 1" in result.text
    with pytest.raises(SqlError, match="`per_minutes` does not exist"):
        run("DESCRIBE per_minutes;")
    [function] = run("DESCRIBE FUNCTION count_distinct;")
    assert function.text is not None
    assert function.text.startswith("COUNT_DISTINCT: ")


def test_explain(run: Run) -> None:
    run(STREAM + TABLE)
    [plan] = run("EXPLAIN SELECT pageid FROM pageviews WHERE userid = 'ann' EMIT CHANGES;")
    assert plan.text is not None
    assert "PAGEVIEWS" in plan.text.upper()
    [running] = run("EXPLAIN CTAS_BY_PAGE_1;")
    assert running.text is not None
    assert running.text.startswith(TABLE)
    assert "CTAS_BY_PAGE_1 is starting" in running.text
    with pytest.raises(SqlError, match="query `CTAS_9` does not exist"):
        run("EXPLAIN CTAS_9;")


def test_the_engine_s_word_on_a_query_counts(log: LocalLog, clock: ManualClock) -> None:
    status = EngineStatus(clock)
    executor = StatementExecutor(log, Catalog(log), clock, status=status)
    executor.execute(STREAM + TABLE)
    report = {"state": "running", "pid": os.getpid(), "queries": [{"id": "CTAS_BY_PAGE_1", "state": "running"}]}
    status.receive(report)
    [row] = rows(executor.execute("SHOW QUERIES;")[0])
    assert row[1] == "running"


def test_selects_and_prints_go_elsewhere(run: Run) -> None:
    with pytest.raises(UsageError, match="a SELECT is asked as a query"):
        run("SELECT * FROM dead_letters;")
    with pytest.raises(UsageError, match="headrace topic tail pageviews"):
        run("PRINT 'pageviews';")
