"""Contract 4 for joins, sessions and aggregates over tables: one batch, several or record by record, the result is the
same, and it is the one that a plain reading of the rules gives."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.process.pipeline import Pipeline, Row

pytestmark = pytest.mark.spark

SOURCES = """
CREATE STREAM s (k VARCHAR KEY, n INTEGER) WITH (KAFKA_TOPIC='s', PARTITIONS=2);
CREATE STREAM r (k VARCHAR KEY, m INTEGER) WITH (KAFKA_TOPIC='r', PARTITIONS=2);
CREATE TABLE t (id VARCHAR PRIMARY KEY, v INTEGER) WITH (KAFKA_TOPIC='t', PARTITIONS=2);
CREATE TABLE f (id VARCHAR PRIMARY KEY, ref VARCHAR) WITH (KAFKA_TOPIC='f', PARTITIONS=2);
"""
QUERIES = {
    "met": "CREATE STREAM {} AS SELECT s.k AS k, n, v FROM s LEFT JOIN t ON s.k = t.id;",
    "pairs": """CREATE STREAM {} AS SELECT ROWKEY AS k, n, m FROM s FULL OUTER JOIN r
      WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON s.k = r.k;""",
    "inner": """CREATE STREAM {} AS SELECT s.k AS k, n, m FROM s JOIN r
      WITHIN (20 SECONDS, 6 SECONDS) GRACE PERIOD 1 SECOND ON s.k = r.k;""",
    "refers": "CREATE TABLE {} AS SELECT f.id AS id, v FROM f LEFT JOIN t ON f.ref = t.id;",
    "sums": "CREATE TABLE {} AS SELECT v, COUNT(*) AS n, COLLECT_LIST(id) AS ids FROM t GROUP BY v;",
    "visits": """CREATE TABLE {} AS SELECT k, COUNT(*) AS c, SUM(n) AS total, COLLECT_LIST(n) AS ns
      FROM s WINDOW SESSION (4 SECONDS, GRACE PERIOD 3 SECONDS) GROUP BY k;""",
    "over": """CREATE TABLE {} AS SELECT k, COLLECT_LIST(n) AS ns
      FROM s WINDOW SESSION (4 SECONDS, GRACE PERIOD 3 SECONDS) GROUP BY k EMIT FINAL;""",
}
CUTS = {"whole": 1_000_000, "parts": 4, "singly": 1}
GAP, SESSION_GRACE = 4_000, 3_000


def random_events(chance: random.Random, count: int) -> list[tuple[str, Row]]:
    """Time goes on by fits and starts, and some come late, by a little or a lot."""
    events, now = [], 0
    for number in range(count):
        now += chance.choice((0, 500, 3_000, 11_000))
        time = max(0, now - chance.choice((0, 0, 0, 2_000, 7_000, 8_001, 20_000)))
        key = chance.choice("ab")
        match chance.choice("sssrrtf"):
            case "t":
                row = {"ID": key, "V": chance.choice((1, 2, None)), "$tombstone": chance.random() < 0.2}
                events.append(("t", row | {"$time": time}))
            case "f":
                row = {"ID": chance.choice("xy"), "REF": chance.choice(("a", "b", None)), "$time": time}
                events.append(("f", row))
            case topic:
                events.append((topic, {"K": key, "N" if topic == "s" else "M": number, "$time": time}))
    return events


def result(pipeline: Pipeline, sink: str) -> Any:
    """A table by its rows; of a stream its rows, in order within a key where the order says something."""
    spec = pipeline.spec(sink)
    if spec.plan.sink.kind == "table":
        return [_shown(row) for row in pipeline.table(sink.upper())]
    rows = [_shown(row) for row in pipeline.records(sink.upper())]
    if any(column.name == "M" for column in spec.plan.sink.value):
        return Counter(map(str, rows))
    return {key: [row for row in rows if row["K"] == key] for key in "ab"}


def _shown(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("$arrival", "$stream_time")}


def late_rows(pipeline: Pipeline, sink: str) -> Counter[tuple[Any, ...]]:
    topic = pipeline.spec(sink).late_topic
    rows = pipeline.records(topic) if topic is not None else []
    return Counter((row["TOPIC"], row["PARTITION"], row["OFFSET"], row["STREAM_TIME"]) for row in rows)


def met(events: list[tuple[str, Row]]) -> dict[str, list[tuple[int, int | None]]]:
    table: Row = {}
    found: dict[str, list[tuple[int, int | None]]] = {"a": [], "b": []}
    for topic, row in events:
        if topic == "t":
            table[row["ID"]] = None if row["$tombstone"] else row["V"]
        elif topic == "s":
            found[row["K"]].append((row["N"], table.get(row["K"])))
    return found


def visits(events: list[tuple[str, Row]]) -> dict[tuple[str, int, int], list[int]]:
    """By the definition: a row joins the open sessions it is within the gap of; one whose session is closed is late."""
    sessions: dict[str, list[tuple[int, int, list[int]]]] = {"a": [], "b": []}
    now = -1
    for topic, row in events:
        if topic != "s":
            continue
        now, time = max(now, row["$time"]), row["$time"]
        closed = now - GAP - SESSION_GRACE
        kept = sessions[row["K"]]
        near = [one for one in kept if one[1] >= max(time - GAP, closed) and one[0] <= time + GAP]
        start, end = min([time, *(one[0] for one in near)]), max([time, *(one[1] for one in near)])
        if end >= closed:
            merged = sorted([row["N"], *(n for one in near for n in one[2])])
            sessions[row["K"]] = [one for one in kept if one not in near] + [(start, end, merged)]
    return {(key, start, end): ns for key, kept in sessions.items() for start, end, ns in kept}


def by_session(rows: list[Row]) -> dict[tuple[str, int, int], list[int]]:
    return {(row["K"], row["$window_start"], row["$window_end"]): sorted(row["NS"]) for row in rows}


def test_however_the_input_is_cut(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(1)
    statements = [sql.format(f"{name}_{cut}") for cut in CUTS for name, sql in QUERIES.items()]
    with Pipeline(tmp_path, SOURCES + "".join(statements)) as pipeline:
        events = random_events(chance, 16)
        # Half before the first start, half after: every query continues once from its checkpoint.
        for half in (events[:8], events[8:]):
            for topic, row in half:
                pipeline.put(topic, [row])
            for cut, most in CUTS.items():
                for name in QUERIES:
                    pipeline.run(spark, f"{name}_{cut}", max_rows=most)
        for name in QUERIES:
            results = {cut: result(pipeline, f"{name}_{cut}") for cut in CUTS}
            assert results["parts"] == results["whole"], name
            assert results["singly"] == results["whole"], name
            ledgers = [late_rows(pipeline, f"{name}_{cut}") for cut in CUTS]
            assert ledgers[0] == ledgers[1] == ledgers[2], name
        found = result(pipeline, "met_whole")
        assert {key: [(row["N"], row["V"]) for row in rows] for key, rows in found.items()} == met(events)
        rows = pipeline.table("VISITS_WHOLE")
        assert by_session(rows) == visits(events)
        now = max(row["$time"] for topic, row in events if topic == "s")
        over = {session: ns for session, ns in visits(events).items() if session[2] + GAP + SESSION_GRACE < now}
        assert by_session(pipeline.table("OVER_WHOLE")) == over
        assert all((r["C"], r["TOTAL"]) == (len(r["NS"]), sum(r["NS"])) for r in rows)
