"""Contract 4 for joins, sessions and aggregates over tables: in one batch or record by record, the result is the
same, and it is the one that a plain reading of the rules gives."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.process.batch import run_batch
from headrace.views.evaluate import Evaluation, Question, answer
from headrace.views.reading import Reader
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
CUTS = {"whole": 1_000_000, "singly": 1}
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
            assert results["singly"] == results["whole"], name
            ledgers = [late_rows(pipeline, f"{name}_{cut}") for cut in CUTS]
            assert ledgers[0] == ledgers[1], name
        found = result(pipeline, "met_whole")
        assert {key: [(row["N"], row["V"]) for row in rows] for key, rows in found.items()} == met(events)
        rows = pipeline.table("VISITS_WHOLE")
        assert by_session(rows) == visits(events)
        now = max(row["$time"] for topic, row in events if topic == "s")
        over = {session: ns for session, ns in visits(events).items() if session[2] + GAP + SESSION_GRACE < now}
        assert by_session(pipeline.table("OVER_WHOLE")) == over
        assert all((r["C"], r["TOTAL"]) == (len(r["NS"]), sum(r["NS"])) for r in rows)


CHAIN = {
    "last": "CREATE TABLE last_{0} AS SELECT k, LATEST_BY_OFFSET(n) AS g, COUNT(*) AS c FROM s GROUP BY k;",
    "totals": "CREATE TABLE totals_{0} AS SELECT g, SUM(c) AS total FROM last_{0} GROUP BY g;",
    "few": "CREATE TABLE few_{0} AS SELECT g, COUNT(*) AS n FROM last_{0} GROUP BY g HAVING SUM(c) < 5;",
    "odds": "CREATE TABLE odds_{0} AS SELECT total % 2 AS odd, COUNT(*) AS n FROM totals_{0} GROUP BY total % 2;",
    "met": "CREATE TABLE met_{0} AS SELECT v, COUNT(*) AS n FROM last_{0} l JOIN t ON l.k = t.id GROUP BY v;",
}


def chain(events: list[tuple[str, Row]]) -> dict[str, dict[Any, int]]:
    """What the tables over a table hold, by what that holds in the end: what it held on the way does not matter."""
    streamed = [row for topic, row in events if topic == "s"]
    last = {row["K"]: row["N"] for row in streamed}
    counts = Counter(row["K"] for row in streamed)
    totals: Counter[int] = Counter()
    for key, group in last.items():
        totals[group] += counts[key]
    table = {row["ID"]: None if row["$tombstone"] else row["V"] for topic, row in events if topic == "t"}
    return {
        "totals": dict(totals),
        "few": {group: n for group, n in Counter(last.values()).items() if totals[group] < 5},
        "odds": dict(Counter(total % 2 for total in totals.values())),
        "met": dict(Counter(table[key] for key in last if table.get(key) is not None)),
    }


def test_which_groups_a_table_of_a_table_has_however_both_are_cut(spark: SparkSession, tmp_path: Path) -> None:
    """A row is in a group and leaves it within one batch, so that nobody sees it there, or within two."""
    chance, cuts = random.Random(2), CUTS
    events: list[tuple[str, Row]] = [("s", {"K": "c", "N": n, "$time": n}) for n in (7, 8, 0)]
    for time in range(3, 13):
        stream = chance.random() < 0.7
        row = {"K": chance.choice("abc"), "N": chance.choice((0, 1, 2))}
        change = {"ID": chance.choice("ab"), "V": chance.choice((1, 2)), "$tombstone": chance.random() < 0.2}
        events.append(("s" if stream else "t", (row if stream else change) | {"$time": time}))
    statements = "".join(sql.format(cut) for cut in cuts for sql in CHAIN.values())
    with Pipeline(tmp_path, SOURCES + statements) as pipeline:
        for topic, row in events:
            pipeline.put(topic, [row])
        expected = chain(events)
        for cut, most in cuts.items():
            pipeline.run(spark, f"last_{cut}", max_rows=most)
            pipeline.run_all(spark, [f"{name}_{cut}" for name in ("totals", "few", "met")], max_rows=most)
            pipeline.run(spark, f"odds_{cut}", max_rows=most)
            for name, groups in expected.items():
                plan = pipeline.spec(f"{name}_{cut}").plan
                names = [column.name for column in plan.sink.key + plan.sink.value]
                assert dict(pipeline.result(names, f"{name}_{cut}".upper(), table=True)) == groups, (name, cut)
                again = answer(Evaluation(Reader(pipeline.log, pipeline.log.snapshot().arrival)), Question(plan))
                assert {row.values[names[0]]: row.values[names[1]] for row in again} == groups, (name, cut)
        held = [{row["G"] for row in pipeline.records(f"LAST_{cut.upper()}")} for cut in cuts]
        assert held[0] < held[1], "cut as a whole, some groups should never have been there"
        batch = run_batch(spark, pipeline.log_folder, pipeline.topic, pipeline.spec("totals_singly").plan).collect()
        assert {row["G"]: row["TOTAL"] for row in batch} == expected["totals"]
