"""Headers travel with what their record causes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.log.base import HEADERS
from tests.process.pipeline import Pipeline, Row

pytestmark = pytest.mark.spark

SOURCES = """
CREATE STREAM clicks (u VARCHAR KEY, page VARCHAR, tags ARRAY<VARCHAR>) WITH (KAFKA_TOPIC='clicks', PARTITIONS=2);
CREATE STREAM orders (u VARCHAR KEY, item VARCHAR) WITH (KAFKA_TOPIC='orders');
CREATE TABLE users (id VARCHAR PRIMARY KEY, name VARCHAR, home VARCHAR) WITH (KAFKA_TOPIC='users');
CREATE TABLE homes (id VARCHAR PRIMARY KEY, city VARCHAR) WITH (KAFKA_TOPIC='homes');
"""


def carried(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return sorted(((*(row[name] for name in names), _trace(row)) for row in rows), key=repr)


def _trace(row: Row) -> str | None:
    return None if row[HEADERS] is None else str(row[HEADERS]["trace"], "utf-8")


def traced(trace: str | None, **columns: Any) -> Row:
    headers = {} if trace is None else {HEADERS: {"trace": trace.encode()}}
    return {name.upper(): value for name, value in columns.items()} | {"$time": 1_000, "$id": trace} | headers


def test_a_row_has_the_headers_of_the_record_it_was_made_of(spark: SparkSession, tmp_path: Path) -> None:
    sql = f"""{SOURCES}
    CREATE STREAM upper AS SELECT u, UCASE(page) AS page FROM clicks WHERE page <> '/no';
    CREATE STREAM tagged AS SELECT page, EXPLODE(tags) AS tag FROM clicks PARTITION BY page;
    CREATE TABLE here AS SELECT id, name FROM users WHERE home = 'here';
    CREATE TABLE counted AS SELECT u, COUNT(*) AS n FROM clicks GROUP BY u;
    """
    with Pipeline(tmp_path, sql) as pipeline:
        one, two = traced("1", u="a", page="/x", tags=["p", "q"]), traced("2", u="b", page="/no", tags=[])
        pipeline.put("clicks", [one, two, traced(None, u="c", page="/y", tags=["r"])])
        pipeline.put("users", [traced("3", id="a", name="Ann", home="here")])
        pipeline.put("users", [traced("4", id="a", name="Ann", home="there")])
        pipeline.run_all(spark, ["upper", "tagged", "here", "counted"])
        assert carried(pipeline.records("UPPER"), "PAGE") == [("/X", "1"), ("/Y", None)]
        assert carried(pipeline.records("TAGGED"), "PAGE", "TAG") == [
            ("/x", "p", "1"),
            ("/x", "q", "1"),
            ("/y", "r", None),
        ]
        assert carried(pipeline.records("HERE"), "NAME") == [("Ann", "3"), (None, "4")]
        # A group is made of many records.
        assert HEADERS not in pipeline.records("COUNTED")[0]
        # What is made of it again has them too, and they can be asked for.
        pipeline.executor.execute("""
        CREATE STREAM named (u VARCHAR KEY, page VARCHAR, trace BYTES HEADER('trace')) WITH (KAFKA_TOPIC='UPPER');
        CREATE STREAM again AS SELECT u, FROM_BYTES(trace, 'utf8') AS said FROM named;
        """)
        pipeline.run(spark, "again")
        assert carried(pipeline.records("AGAIN"), "SAID") == [("1", "1"), (None, None)]


def test_a_join_gives_the_headers_of_the_record_that_came_last(spark: SparkSession, tmp_path: Path) -> None:
    sql = f"""{SOURCES}
    CREATE STREAM known AS SELECT clicks.u, page, name FROM clicks JOIN users ON clicks.u = users.id;
    CREATE STREAM eager AS SELECT c.u, page, item FROM clicks c LEFT JOIN orders o WITHIN 10 SECONDS ON c.u = o.u;
    CREATE STREAM patient AS SELECT c.u, page, item FROM clicks c LEFT JOIN orders o
      WITHIN 10 SECONDS GRACE PERIOD 0 SECONDS ON c.u = o.u;
    CREATE TABLE settled AS SELECT users.id, name, city FROM users JOIN homes ON users.id = homes.id;
    CREATE TABLE living AS SELECT users.id, name, city FROM users JOIN homes ON users.home = homes.id;
    """
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("users", [traced("user", id="a", name="Ann", home="a")])
        pipeline.put("homes", [traced("home", id="a", city="Rome")])
        pipeline.put("clicks", [traced("click", u="a", page="/1"), traced("alone", u="b", page="/2")])
        pipeline.put(
            "orders", [traced("order", u="a", item="tea"), traced("late", u="z", item="x") | {"$time": 90_000}]
        )
        pipeline.put("homes", [traced("gone", id="a") | {"$tombstone": True}])
        pipeline.run_all(spark, ["known", "eager", "patient", "settled", "living"])
        assert carried(pipeline.records("KNOWN"), "PAGE", "NAME") == [("/1", "Ann", "click")]
        assert carried(pipeline.records("EAGER"), "PAGE", "ITEM") == [
            ("/1", "tea", "order"),
            ("/1", None, "click"),
            ("/2", None, "alone"),
        ]
        # That nothing matches it any more was brought by time, not by a record.
        assert carried(pipeline.records("PATIENT"), "PAGE", "ITEM") == [("/1", "tea", "order"), ("/2", None, None)]
        assert carried(pipeline.records("SETTLED"), "CITY") == [("Rome", "home"), (None, "gone")]
        # A row that refers to nothing says so, too.
        assert carried(pipeline.records("LIVING"), "CITY") == [("Rome", "home"), (None, "gone"), (None, "user")]
