"""What each kind of join means, on records written for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.process.pipeline import Pipeline, Row

pytestmark = pytest.mark.spark

CLICKS = "CREATE STREAM clicks (u VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks');"
ORDERS = "CREATE STREAM orders (u VARCHAR KEY, item VARCHAR) WITH (KAFKA_TOPIC='orders');"
USERS = "CREATE TABLE users (id VARCHAR PRIMARY KEY, name VARCHAR) WITH (KAFKA_TOPIC='users');"
CITIES = "CREATE TABLE homes (id VARCHAR PRIMARY KEY, city VARCHAR) WITH (KAFKA_TOPIC='homes');"


def picked(rows: list[Row], names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names.split()) for row in rows]


def test_a_stream_meets_the_table_as_it_is_when_the_row_arrives(spark: SparkSession, tmp_path: Path) -> None:
    sql = f"""{CLICKS} {USERS}
    CREATE STREAM named AS SELECT clicks.u, page, name FROM clicks LEFT JOIN users ON clicks.u = users.id;
    CREATE STREAM known AS SELECT clicks.u, page, name FROM clicks JOIN users ON clicks.u = users.id;
    """
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("clicks", [{"U": "a", "PAGE": "/1", "$time": 900}])
        # The table's time does not matter, only that it came later.
        pipeline.put("users", [{"ID": "a", "NAME": "Ann", "$time": 5_000}])
        pipeline.put("clicks", [{"U": "a", "PAGE": "/2", "$time": 10}, {"U": None, "PAGE": "/3", "$time": 11}])
        pipeline.run(spark, "named", max_rows=2)
        pipeline.put("users", [{"ID": "a", "NAME": "Anna", "$time": 1}, {"ID": "b", "NAME": "Bo", "$time": 1}])
        pipeline.put("clicks", [{"U": "a", "PAGE": "/4", "$time": 12}, {"U": "a", "$tombstone": True, "$time": 13}])
        pipeline.put("users", [{"ID": "a", "$tombstone": True, "$time": 2}])
        pipeline.put("clicks", [{"U": "a", "PAGE": "/5", "$time": 14}])
        pipeline.run(spark, "named")
        pipeline.run(spark, "known")
        # Order is kept within a key only.
        found = sorted(picked(pipeline.records("NAMED"), "PAGE NAME $time"))
        assert found == [("/1", None, 900), ("/2", "Ann", 10), ("/3", None, 11), ("/4", "Anna", 12), ("/5", None, 14)]
        assert picked(pipeline.records("KNOWN"), "PAGE NAME") == [("/2", "Ann"), ("/4", "Anna")]


def test_streams_meet_within_a_time_and_what_is_alone_comes_when_nothing_can_match(
    spark: SparkSession, tmp_path: Path
) -> None:
    sql = f"""{CLICKS} {ORDERS}
    CREATE STREAM eager AS SELECT c.u, page, item FROM clicks c LEFT JOIN orders o WITHIN 10 SECONDS ON c.u = o.u;
    CREATE STREAM patient AS SELECT c.u, page, item FROM clicks c LEFT JOIN orders o
      WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON c.u = o.u;
    CREATE STREAM pairs AS SELECT c.u, page, item FROM clicks c JOIN orders o
      WITHIN (10 SECONDS, 0 SECONDS) GRACE PERIOD 5 SECONDS ON c.u = o.u;
    """
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("clicks", [{"U": "a", "PAGE": "/1", "$time": 20_000}, {"U": "b", "PAGE": "/2", "$time": 20_000}])
        pipeline.put("orders", [{"U": "a", "ITEM": "tea", "$time": 10_000}, {"U": "a", "ITEM": "ink", "$time": 30_001}])
        for sink in ("eager", "patient", "pairs"):
            pipeline.run(spark, sink, max_rows=1)
        # Time goes on with another key: nothing can match the lone click any more, and this order is too late.
        pipeline.put("orders", [{"U": "z", "ITEM": "cup", "$time": 60_000}, {"U": "b", "ITEM": "pen", "$time": 20_000}])
        for sink in ("eager", "patient", "pairs"):
            pipeline.run(spark, sink)
        assert sorted(picked(pipeline.records("EAGER"), "PAGE ITEM $time"), key=str) == [
            ("/1", "tea", 20_000),
            ("/1", None, 20_000),
            ("/2", "pen", 20_000),
            ("/2", None, 20_000),
        ]
        assert sorted(picked(pipeline.records("PATIENT"), "PAGE ITEM $time"), key=str) == [
            ("/1", "tea", 20_000),
            ("/2", None, 20_000),
        ]
        assert picked(pipeline.records("PAIRS"), "PAGE ITEM $time") == [("/1", "tea", 20_000)]
        late = pipeline.spec("pairs").late_topic
        assert late is not None
        assert picked(pipeline.records(late), "TOPIC OFFSET STREAM_TIME $time") == [("orders", 3, 60_000, 20_000)]


def test_tables_meet_by_key_and_a_row_leaves_with_what_it_was_made_of(spark: SparkSession, tmp_path: Path) -> None:
    sql = f"""{USERS} {CITIES}
    CREATE TABLE both AS SELECT users.id AS id, name, city FROM users JOIN homes ON users.id = homes.id;
    CREATE TABLE any AS SELECT ROWKEY, name, city FROM users FULL OUTER JOIN homes ON users.id = homes.id;
    """
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("users", [{"ID": "a", "NAME": "Ann", "$time": 7}, {"ID": "b", "NAME": "Bo", "$time": 8}])
        pipeline.put("homes", [{"ID": "a", "CITY": "Ulm", "$time": 3}, {"ID": "c", "CITY": "Bern", "$time": 9}])
        for sink in ("both", "any"):
            pipeline.run(spark, sink)
        assert picked(pipeline.table("BOTH"), "ID NAME CITY $time") == [("a", "Ann", "Ulm", 7)]
        assert sorted(picked(pipeline.table("ANY"), "ROWKEY NAME CITY $time"), key=str) == [
            ("a", "Ann", "Ulm", 7),
            ("b", "Bo", None, 8),
            ("c", None, "Bern", 9),
        ]
        pipeline.put("homes", [{"ID": "a", "$tombstone": True, "$time": 11}, {"ID": "c", "$tombstone": True}])
        for sink in ("both", "any"):
            pipeline.run(spark, sink)
        assert pipeline.table("BOTH") == []
        assert sorted(picked(pipeline.table("ANY"), "ROWKEY NAME CITY"), key=str) == [
            ("a", "Ann", None),
            ("b", "Bo", None),
        ]


def test_rows_that_refer_to_a_row_of_another_table_follow_it(spark: SparkSession, tmp_path: Path) -> None:
    sql = f"""{USERS}
    CREATE TABLE carts (id VARCHAR PRIMARY KEY, owner VARCHAR, total INTEGER) WITH (KAFKA_TOPIC='carts');
    CREATE TABLE owned AS SELECT carts.id AS id, total, name FROM carts JOIN users ON carts.owner = users.id;
    CREATE TABLE every AS SELECT carts.id AS id, total, name FROM carts LEFT JOIN users ON carts.owner = users.id;
    """
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("carts", [{"ID": n, "OWNER": who, "TOTAL": 1} for n, who in (("1", "a"), ("2", "a"), ("3", "b"))])
        pipeline.put("users", [{"ID": "a", "NAME": "Ann"}, {"ID": "b", "NAME": "Bo"}])
        # One cart changes hands, one loses its owner, and then the owner has another name.
        pipeline.put("carts", [{"ID": "2", "OWNER": "b", "TOTAL": 2}, {"ID": "3", "OWNER": None, "TOTAL": 3}])
        pipeline.put("users", [{"ID": "a", "NAME": "Anna"}, {"ID": "b", "NAME": "Bob"}])
        for sink in ("owned", "every"):
            pipeline.run(spark, sink, max_rows=4)
        assert sorted(picked(pipeline.table("OWNED"), "ID TOTAL NAME"), key=str) == [("1", 1, "Anna"), ("2", 2, "Bob")]
        assert sorted(picked(pipeline.table("EVERY"), "ID TOTAL NAME"), key=str) == [
            ("1", 1, "Anna"),
            ("2", 2, "Bob"),
            ("3", 3, None),
        ]
        pipeline.put("users", [{"ID": "a", "$tombstone": True}])
        pipeline.put("carts", [{"ID": "2", "$tombstone": True}])
        for sink in ("owned", "every"):
            pipeline.run(spark, sink)
        assert pipeline.table("OWNED") == []
        assert sorted(picked(pipeline.table("EVERY"), "ID TOTAL NAME"), key=str) == [("1", 1, None), ("3", 3, None)]


def test_what_joins_give_can_be_joined_and_counted_again(spark: SparkSession, tmp_path: Path) -> None:
    """Batch after batch: Spark has a clock in each operator by then."""
    sql = f"""{CLICKS} {ORDERS}
    CREATE STREAM visits (u VARCHAR KEY, place VARCHAR) WITH (KAFKA_TOPIC='visits');
    CREATE STREAM thrice AS SELECT c.u, page, item, place FROM clicks c
      JOIN orders o WITHIN 10 SECONDS ON c.u = o.u JOIN visits v WITHIN 10 SECONDS ON c.u = v.u;
    CREATE TABLE counted AS SELECT c.u, COUNT(*) AS n FROM clicks c
      JOIN orders o WITHIN 10 SECONDS ON c.u = o.u WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY c.u;
    CREATE TABLE in_sessions AS SELECT c.u, COUNT(*) AS n FROM clicks c
      JOIN orders o WITHIN 10 SECONDS ON c.u = o.u WINDOW SESSION (30 SECONDS) GROUP BY c.u;
    """
    with Pipeline(tmp_path, sql) as pipeline:
        for time in range(0, 200_000, 20_000):
            pipeline.put("clicks", [{"U": "a", "PAGE": f"/{time}", "$time": time}])
            pipeline.put("orders", [{"U": "a", "ITEM": f"i{time}", "$time": time + 1_000}])
            pipeline.put("visits", [{"U": "a", "PLACE": f"p{time}", "$time": time + 2_000}])
        for sink in ("thrice", "counted", "in_sessions"):
            pipeline.run(spark, sink, max_rows=4)
        assert len(pipeline.records("THRICE")) == 10
        assert sorted(picked(pipeline.table("COUNTED"), "N")) == [(1,), (3,), (3,), (3,)]
        assert picked(pipeline.table("IN_SESSIONS"), "N") == [(10,)]


def test_what_is_late_for_a_window_over_a_join_is_in_the_ledger(spark: SparkSession, tmp_path: Path) -> None:
    sql = f"""{CLICKS} {ORDERS} {USERS}
    CREATE TABLE by_name AS SELECT name, COUNT(*) AS n FROM clicks c JOIN users ON c.u = users.id
      WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY name;
    CREATE TABLE by_item AS SELECT item, COUNT(*) AS n FROM clicks c
      JOIN orders o WITHIN 10 SECONDS GRACE PERIOD 20 SECONDS ON c.u = o.u
      WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY item;
    """
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("users", [{"ID": "a", "NAME": "Ann", "$time": 0}])
        pipeline.put("orders", [{"U": "a", "ITEM": "tea", "$time": 3_000}])
        pipeline.put("clicks", [{"U": "a", "PAGE": "/1", "$time": 4_000}, {"U": "b", "PAGE": "/2", "$time": 25_000}])
        # Too late for the window, not for the join; then one that nobody knows; then one too late for both.
        pipeline.put("clicks", [{"U": "a", "PAGE": "/3", "$time": 5_000}, {"U": "x", "PAGE": "/4", "$time": 5_000}])
        pipeline.put("orders", [{"U": "b", "ITEM": "ink", "$time": 60_000}, {"U": "a", "ITEM": "pen", "$time": 9_000}])
        for sink in ("by_name", "by_item"):
            pipeline.run(spark, sink, max_rows=2)
        assert picked(pipeline.table("BY_NAME"), "NAME N") == [("Ann", 1)]
        assert picked(pipeline.table("BY_ITEM"), "ITEM N") == [("tea", 1)]
        ledgers = [pipeline.records(str(pipeline.spec(sink).late_topic)) for sink in ("by_name", "by_item")]
        assert picked(ledgers[0], "TOPIC OFFSET STREAM_TIME WINDOW_START LATE_BY $time") == [
            ("clicks", 2, 25_000, 0, 15_000, 5_000)
        ]
        assert sorted(picked(ledgers[1], "TOPIC OFFSET STREAM_TIME WINDOW_END $time"), key=str) == [
            ("clicks", None, 25_000, 10_000, 5_000),
            ("orders", 2, 60_000, 19_000, 9_000),
        ]
