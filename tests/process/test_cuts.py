"""Contract 4: results do not depend on how the input was cut into batches."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from headrace.process.batch import run_batch
from tests.process.pipeline import Pipeline, Row

pytestmark = pytest.mark.spark

STREAM = """
CREATE STREAM views (userid VARCHAR KEY, pageid VARCHAR, price BIGINT)
  WITH (KAFKA_TOPIC='views', VALUE_FORMAT='JSON', PARTITIONS=2);
"""
WINDOWS = {
    "TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 4 SECONDS)": (10_000, 10_000, 4_000),
    "HOPPING (SIZE 10 SECONDS, ADVANCE BY 4 SECONDS, GRACE PERIOD 0 SECONDS)": (10_000, 4_000, 0),
}
CUTS = {"whole": 1_000_000, "singly": 1}


def table(name: str, window: str) -> str:
    return f"""
    CREATE TABLE {name} AS
      SELECT pageid, COUNT(*) AS views, SUM(price) AS total, AVG(price) AS mean, MAX(userid) AS last,
             COUNT_DISTINCT(userid) AS people
      FROM views WINDOW {window} WHERE price IS NULL OR price <> 13 GROUP BY pageid;"""


def adversarial_events(chance: random.Random, count: int, size: int, advance: int, grace: int) -> list[Row]:
    """Time moves on to just before, on and just after the moment a window closes; then come records for that window,
    from its first to its last millisecond, among others that are a little or very late."""
    moments, now = [0], 0
    while len(moments) < count:
        start = (now // advance + chance.choice((0, 0, 1, 3))) * advance
        now = max(now, start + size + grace + chance.choice((-1, 0, 1)))
        moments += [now, start, start + size - 1, max(0, now - chance.choice((1, grace, size, 40_000)))]
    return [
        {
            "USERID": chance.choice("abc"),
            "PAGEID": chance.choice(("/x", "/x", "/y", None)),
            "PRICE": chance.choice((None, 1, 2**62, -5, 13)),
            "$time": moment,
        }
        for moment in moments[:count]
    ]


def windows_of(moment: int, size: int, advance: int) -> list[int]:
    return [start for start in range(0, moment + 1, advance) if start <= moment < start + size]


def model(records: list[Row], size: int, advance: int, grace: int) -> tuple[dict[Any, Row], set[tuple[int, ...]]]:
    """The definition: what is admitted and what is late, record by record, in order of arrival."""
    groups: dict[tuple[str, int], list[Row]] = {}
    late: set[tuple[int, ...]] = set()
    stream_time = -1
    for record in records:
        if record["PAGEID"] is not None and record["PRICE"] != 13:
            for start in windows_of(record["$time"], size, advance):
                by = stream_time - (start + size + grace)
                if by >= 0:
                    late.add((record["$arrival"], record["$time"], stream_time, start, by))
                else:
                    groups.setdefault((record["PAGEID"], start), []).append(record)
        stream_time = max(stream_time, record["$time"])
    return {key: summary(rows) for key, rows in groups.items()}, late


def summary(rows: list[Row]) -> Row:
    prices = [row["PRICE"] for row in rows if row["PRICE"] is not None]
    total = sum(prices)
    return {
        "VIEWS": len(rows),
        "TOTAL": (total + 2**63) % 2**64 - 2**63,
        "MEAN": total / len(prices) if prices else 0.0,
        "LAST": max(row["USERID"] for row in rows),
        "PEOPLE": len({row["USERID"] for row in rows}),
        "$time": max(row["$time"] for row in rows),
    }


def ledger(pipeline: Pipeline, sink: str) -> set[tuple[int, ...]]:
    topic = pipeline.spec(sink).late_topic
    assert topic is not None
    arrivals = {(r["PARTITION"], r["OFFSET"]): r["$arrival"] for r in positions(pipeline)}
    rows = pipeline.records(topic)
    found: set[tuple[int, ...]] = {
        (arrivals[r["PARTITION"], r["OFFSET"]], r["$time"], r["STREAM_TIME"], r["WINDOW_START"], r["LATE_BY"])
        for r in rows
    }
    assert len(found) == len(rows), "a late pair is in the ledger twice"
    return found


def positions(pipeline: Pipeline) -> list[Row]:
    found = []
    for number, ends in enumerate(pipeline.log.snapshot().ends["views"]):
        for records in pipeline.log.read("views", number, ends.start, ends.end, ["$arrival"]):
            arrivals = records.batch.column("$arrival").to_pylist()
            found += [
                {"PARTITION": number, "OFFSET": records.first_offset + place, "$arrival": arrival}
                for place, arrival in enumerate(arrivals)
            ]
    return found


@pytest.mark.parametrize("window", WINDOWS)
def test_one_batch_or_record_by_record(spark: SparkSession, tmp_path: Path, window: str) -> None:
    chance = random.Random(window)
    sql = STREAM + "".join(table(f"t_{cut}", window) for cut in CUTS)
    with Pipeline(tmp_path, sql) as pipeline:
        events = adversarial_events(chance, 28, *WINDOWS[window])
        # Some arrive together, most alone; half before the first start, half after: every cut restarts once.
        for half in (events[:14], events[14:]):
            for _ in range(3):
                pipeline.put("views", half[:2])
                del half[:2]
            for event in half:
                pipeline.put("views", [event])
            for cut, most in CUTS.items():
                pipeline.run(spark, f"t_{cut}", max_rows=most)
        tables, late = model(pipeline.records("views"), *WINDOWS[window])
        assert 0 in {by for *_, by in late}, "the test wants records that are late by nothing"
        for cut in CUTS:
            sink = f"T_{cut.upper()}"
            rows = {(row["PAGEID"], row["$window_start"]): row for row in pipeline.table(sink)}
            assert {key: {name: row[name] for name in tables[key]} for key, row in rows.items()} == tables
            assert ledger(pipeline, sink) == late
        batch = run_batch(spark, pipeline.log_folder, pipeline.topic, pipeline.spec("t_whole").plan).collect()
        assert {(r["PAGEID"], r["WINDOWSTART"]): {n: r[n] for n in summary_names()} for r in batch} == tables


DERIVED = {
    "plain": "SELECT userid, pageid, price FROM views WHERE price IS NULL OR price <> 7",
    "keyed": "SELECT pageid, userid, price FROM views PARTITION BY pageid",
    "named": "SELECT v.userid AS userid, pageid, price, name FROM views v LEFT JOIN people p ON v.userid = p.id",
}


def test_a_derived_stream_is_in_the_order_of_what_it_was_made_of(spark: SparkSession, tmp_path: Path) -> None:
    """So its stream time is the same live and replayed: nothing is late only because a batch was large."""
    people = "CREATE TABLE people (id VARCHAR PRIMARY KEY, name VARCHAR) WITH (KAFKA_TOPIC='people', PARTITIONS=2);"
    made = "".join(
        f"CREATE STREAM {name}_{cut} AS {query};" for name, query in DERIVED.items() for cut in ("whole", "parts")
    )
    windows = """
    CREATE TABLE per_window AS SELECT pageid, COUNT(*) AS views
      FROM plain_whole WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 1 SECONDS) GROUP BY pageid;"""
    with Pipeline(tmp_path, STREAM + people + made + windows) as pipeline:
        pipeline.put("people", [{"ID": user, "NAME": user * 3, "$time": 0} for user in "abcdef"])
        for number in range(60):
            row = {"USERID": "abcdef"[number % 6], "PAGEID": f"/{number % 5}", "PRICE": number}
            pipeline.put("views", [{**row, "$time": number * 1000}])
        for cut, most in (("whole", 1_000_000), ("parts", 7)):
            pipeline.run_all(spark, [f"{name}_{cut}" for name in DERIVED], max_rows=most)
        for name in DERIVED:
            for cut in ("WHOLE", "PARTS"):
                found = pipeline.records(f"{name.upper()}_{cut}")
                wanted = [n for n in range(60) if name != "plain" or n != 7]
                assert [(row["PRICE"], row["$stream_time"]) for row in found] == list(
                    zip(wanted, [-1, *(n * 1000 for n in wanted)], strict=False)
                )
        pipeline.run(spark, "per_window")
        assert sum(row["VIEWS"] for row in pipeline.table("PER_WINDOW")) == 59


def summary_names() -> tuple[str, ...]:
    return ("VIEWS", "TOTAL", "MEAN", "LAST", "PEOPLE", "$time")


def test_without_lateness_it_is_what_duckdb_says(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(7)
    sql = (
        STREAM
        + """
    CREATE TABLE by_page AS
      SELECT pageid, COUNT(*) AS views, COUNT(price) AS prices, SUM(price) AS total, MIN(price) AS low,
             MAX(price) AS high, AVG(price) AS mean, COUNT_DISTINCT(userid) AS people
      FROM views GROUP BY pageid;
    CREATE TABLE by_hour AS
      SELECT pageid, COUNT(*) AS views, SUM(price) AS total
      FROM views WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1000 DAYS) GROUP BY pageid;
    """
    )
    with Pipeline(tmp_path, sql) as pipeline:
        for _ in range(4):
            rows = [
                {
                    "USERID": f"u{chance.randint(0, 3000)}",
                    "PAGEID": f"/{chance.randint(0, 3)}",
                    "PRICE": chance.choice((None, chance.randint(-1000, 1000))),
                    "$time": chance.randint(0, 10_000_000),
                }
                for _ in range(2_500)
            ]
            pipeline.put("views", rows)
            pipeline.run(spark, "by_page", max_rows=1_700)
        pipeline.run(spark, "by_hour", max_rows=3_000)
        views = pipeline.records("views")
        connection = duckdb.connect()
        connection.execute("CREATE TABLE views (time BIGINT, userid VARCHAR, pageid VARCHAR, price BIGINT)")
        connection.executemany(
            "INSERT INTO views VALUES (?, ?, ?, ?)",
            [[v["$time"], v["USERID"], v["PAGEID"], v["PRICE"]] for v in views],
        )
        assert tuples(pipeline.table("BY_PAGE"), "PAGEID VIEWS PRICES TOTAL LOW HIGH MEAN PEOPLE $time") == asked(
            connection,
            "SELECT pageid, count(*), count(price), coalesce(sum(price), 0)::BIGINT, min(price), max(price),"
            " avg(price), count(DISTINCT userid), max(time) FROM views GROUP BY pageid",
        )
        assert tuples(pipeline.table("BY_HOUR"), "PAGEID $window_start $window_end VIEWS TOTAL") == asked(
            connection,
            "SELECT pageid, time // 3600000 * 3600000 AS start, start + 3600000, count(*),"
            " coalesce(sum(price), 0)::BIGINT FROM views GROUP BY pageid, start",
        )


def tuples(rows: list[Row], names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names.split()) for row in rows)


def asked(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return sorted(connection.execute(sql).fetchall())


def test_distinct_values_are_counted_exactly_and_beyond_that_always_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Groups of 1, 2,000 and 20,000 different values, read in one batch and in eleven."""
    cuts = {"once": 1_000_000, "often": 2_000}
    sql = STREAM + "".join(
        f"CREATE TABLE {cut} AS SELECT pageid, COUNT_DISTINCT(userid) AS people FROM views GROUP BY pageid;"
        for cut in cuts
    )
    sizes = {"one": 1, "many": 2_000, "too many": 20_000}
    values = [(page, f"user-{number}") for page, size in sizes.items() for number in range(size)]
    random.Random(3).shuffle(values)
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("views", [{"PAGEID": page, "USERID": user, "$time": 0} for page, user in values])
        results = []
        for cut, rows in cuts.items():
            pipeline.run(spark, cut, max_rows=rows)
            results.append({row["PAGEID"]: row["PEOPLE"] for row in pipeline.table(cut.upper())})
        assert results[0] == results[1]
        assert {page: results[0][page] for page in ("one", "many")} == {"one": 1, "many": 2_000}
        assert abs(results[0]["too many"] - 20_000) < 20_000 * 0.05
