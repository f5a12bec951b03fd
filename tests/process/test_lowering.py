"""What each operator means, on records written for it."""

from __future__ import annotations

import json
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.log.base import Append, TopicSpec
from headrace.log.registry.base import Schema
from headrace.log.registry.registry import Registry
from headrace.process.batch import run_batch
from tests.process.pipeline import Pipeline, Row

pytestmark = pytest.mark.spark

VIEWS = "CREATE STREAM views (u VARCHAR KEY, p VARCHAR, n INTEGER) WITH (KAFKA_TOPIC='views', PARTITIONS=1);"


def picked(rows: list[Row], names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names.split()) for row in rows]


def in_batch(spark: SparkSession, pipeline: Pipeline, sink: str, names: str) -> list[tuple[Any, ...]]:
    """The same plan over all that is there, as a batch."""
    frame = run_batch(spark, pipeline.log_folder, pipeline.topic, pipeline.spec(sink).plan)
    return sorted(tuple(row[name] for name in names.split()) for row in frame.collect())


def test_a_projection_keeps_times_and_tombstones_and_a_filter_drops_them(spark: SparkSession, tmp_path: Path) -> None:
    sql = (
        VIEWS
        + """
    CREATE STREAM all_views AS SELECT u, COALESCE(p, 'none') AS page, n * 2 AS twice, ROWTIME AS t, ROWOFFSET AS o
      FROM views;
    CREATE STREAM some AS SELECT u, p FROM views WHERE n > 1 OR n IS NULL;
    """
    )
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("views", [{"U": "a", "P": "/x", "N": 2, "$time": 70}, {"U": "b", "P": None, "N": 1, "$time": 5}])
        pipeline.put("views", [{"U": "a", "$tombstone": True, "$time": 80}, {"U": None, "P": "/y", "$time": 81}])
        pipeline.run(spark, "all_views")
        pipeline.run(spark, "some")
        assert picked(pipeline.records("ALL_VIEWS"), "U PAGE TWICE T O $time $tombstone") == [
            ("a", "/x", 4, 70, 0, 70, False),
            ("b", "none", 2, 5, 1, 5, False),
            ("a", None, None, None, None, 80, True),
            (None, "/y", None, 81, 3, 81, False),
        ]
        assert picked(pipeline.records("SOME"), "U P") == [("a", "/x"), (None, "/y")]


def test_groups_skip_null_keys_and_tombstones_and_having_takes_groups_back(spark: SparkSession, tmp_path: Path) -> None:
    sql = (
        VIEWS
        + """
    CREATE TABLE t AS SELECT p, COUNT(*) AS views, COUNT(n) AS numbers, SUM(n) AS total, AVG(n) AS mean FROM views
      GROUP BY p HAVING COUNT(*) < 3;
    """
    )
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("views", [{"U": "a", "P": "/x", "N": 7, "$time": 9}, {"U": "a", "P": None, "N": 7, "$time": 10}])
        pipeline.put("views", [{"U": "a", "P": "/y", "N": None, "$time": 3}, {"U": "a", "$tombstone": True}])
        pipeline.run(spark, "t")
        names = "P VIEWS NUMBERS TOTAL MEAN $time"
        assert picked(pipeline.table("T"), names) == [("/y", 1, 0, 0, 0.0, 3), ("/x", 1, 1, 7, 7.0, 9)]
        pipeline.put("views", [{"U": "a", "P": "/x", "N": 2**31 - 1, "$time": 8}] * 2)
        pipeline.run(spark, "t")
        # The third makes it three: the group leaves the table.
        assert picked(pipeline.table("T"), names) == [("/y", 1, 0, 0, 0.0, 3)]
        assert in_batch(spark, pipeline, "t", names) == [("/y", 1, 0, 0, 0.0, 3)]


def test_a_table_of_a_table_forgets_what_no_longer_passes(spark: SparkSession, tmp_path: Path) -> None:
    sql = """
    CREATE TABLE users (id VARCHAR PRIMARY KEY, age INTEGER) WITH (KAFKA_TOPIC='users', PARTITIONS=1);
    CREATE TABLE adults AS SELECT id, age + 0 AS years FROM users WHERE age >= 18;
    """
    with Pipeline(tmp_path, sql) as pipeline:
        ages = [("ann", 30), ("bob", 17), ("cid", 40), ("ann", 12), ("bob", 18), ("dan", 50), ("ann", None)]
        pipeline.put("users", [{"ID": name, "AGE": age, "$time": at} for at, (name, age) in enumerate(ages)])
        pipeline.put("users", [{"ID": "dan", "$tombstone": True, "$time": 9}])
        pipeline.run(spark, "adults")
        expected = [("bob", 18, 4), ("cid", 40, 2)]
        assert sorted(picked(pipeline.table("ADULTS"), "ID YEARS $time")) == expected
        assert in_batch(spark, pipeline, "adults", "ID YEARS $time") == expected


def test_windows_of_a_windowed_table_stay_part_of_the_key(spark: SparkSession, tmp_path: Path) -> None:
    sql = (
        VIEWS
        + """
    CREATE TABLE t AS SELECT p, COUNT(*) AS views, WINDOWSTART AS since FROM views
      WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY p;
    CREATE TABLE busy AS SELECT p, views * 10 AS tens, WINDOWEND AS until FROM t WHERE views > 1;
    """
    )
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("views", [{"U": "a", "P": "/x", "$time": at} for at in (10, 20, 1_500, 2_600, 2_700)])
        pipeline.run(spark, "t")
        pipeline.run(spark, "busy")
        assert sorted(picked(pipeline.table("T"), "P $window_start $window_end SINCE VIEWS")) == [
            ("/x", 0, 1_000, 0, 2),
            ("/x", 1_000, 2_000, 1_000, 1),
            ("/x", 2_000, 3_000, 2_000, 2),
        ]
        expected = [("/x", 0, 1_000, 20, 1_000), ("/x", 2_000, 3_000, 20, 3_000)]
        assert sorted(picked(pipeline.table("BUSY"), "P $window_start $window_end TENS UNTIL")) == expected
        assert in_batch(spark, pipeline, "busy", "P WINDOWSTART WINDOWEND TENS UNTIL") == expected


def test_the_ledger_has_what_passes_where_and_shows_the_row(spark: SparkSession, tmp_path: Path) -> None:
    sql = (
        VIEWS
        + """
    CREATE TABLE t AS SELECT p, COUNT(*) AS views FROM views
      WINDOW TUMBLING (SIZE 1 SECOND, GRACE PERIOD 1 SECOND) WHERE n <> 5 GROUP BY p;
    """
    )
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("views", [{"U": "a", "P": "/x", "N": 1, "$time": 2_000}])
        late = {"U": "a", "P": "/x", "N": 4, "$time": 999}
        for event in (late, late | {"N": 5}, late | {"P": None}, late | {"$time": 1_000}):
            pipeline.put("views", [event])
        pipeline.run(spark, "t")
        [row] = pipeline.records(pipeline.spec("t").late_topic or "")
        assert json.loads(row.pop("ROW")) == {"u": "a", "p": "/x", "n": 4}
        assert {name: value for name, value in row.items() if not name.startswith("$")} == {
            "TOPIC": "views",
            "PARTITION": 0,
            "OFFSET": 1,
            "STREAM_TIME": 2_000,
            "WINDOW_START": 0,
            "WINDOW_END": 1_000,
            "LATE_BY": 0,
        }
        assert row["$time"] == 999


def test_columns_declared_later_are_found_in_the_rest(spark: SparkSession, tmp_path: Path) -> None:
    sql = """
    CREATE STREAM raw (u VARCHAR KEY) WITH (KAFKA_TOPIC='events', PARTITIONS=1);
    CREATE STREAM rich (u VARCHAR KEY, device VARCHAR, size INTEGER, big BIGINT, cost DECIMAL(6, 2), ok BOOLEAN,
      at TIMESTAMP, tags ARRAY<VARCHAR>, geo STRUCT<lat DOUBLE, lon DOUBLE>) WITH (KAFKA_TOPIC='events');
    CREATE STREAM out AS SELECT u, device, size, big, cost, ok, at, tags, geo->lat AS lat FROM rich;
    """
    rest = [
        '{"Device": "phone", "SIZE": 7, "big": 5000000000, "cost": 1.5, "ok": true, "at": "2026-11-15T12:00:00Z",'
        ' "tags": ["a", null], "geo": {"LAT": 48, "lon": 16.4}, "other": {}}',
        '{"device": 7, "size": "7", "big": 1.5, "cost": "0.25", "ok": "true", "at": 1000, "tags": "a", "geo": []}',
        '{"size": 3000000000, "device": null}',
        None,
    ]
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("events", [{"U": "a", "$rest": text, "$time": at} for at, text in enumerate(rest)])
        pipeline.run(spark, "out")
        rows = pipeline.records("OUT")
        assert picked(rows, "DEVICE SIZE BIG OK TAGS LAT") == [
            ("phone", 7, 5_000_000_000, True, ["a", None], 48.0),
            (None, None, None, None, None, None),
            (None, None, None, None, None, None),
            (None, None, None, None, None, None),
        ]
        assert [str(row["COST"]) for row in rows] == ["1.50", "0.25", "None", "None"]
        assert [row["AT"] and row["AT"].timestamp() for row in rows] == [1_794_744_000, 1, None, None]


def test_a_raw_topic_is_decoded_where_it_is_read(spark: SparkSession, tmp_path: Path) -> None:
    sql = """
    CREATE STREAM s (k BIGINT KEY, name VARCHAR, n INTEGER) WITH (KAFKA_TOPIC='bytes', VALUE_FORMAT='JSON');
    CREATE STREAM out AS SELECT k, name, n FROM s;
    """
    with Pipeline(tmp_path, "") as pipeline:
        pipeline.log.create_topic(TopicSpec("bytes", kind="raw"))
        pipeline.executor.execute(sql)
        records = [
            ((-2).to_bytes(8, "big", signed=True), b'{"Name": "ann", "n": 3}'),
            ((2**40).to_bytes(8, "big"), b"not json"),
            (b"short", b'["no object"]'),
            (None, None),
        ]
        put_bytes(pipeline, records)
        pipeline.run(spark, "out")
        assert picked(pipeline.records("OUT"), "K NAME N $tombstone") == [
            (-2, "ann", 3, False),
            (2**40, None, None, False),
            (None, None, None, False),
            (None, None, None, True),
        ]


def test_a_raw_topic_is_decoded_in_any_format(spark: SparkSession, tmp_path: Path) -> None:
    """By its codec, where Spark does not read it itself; what cannot be decoded is null, and a record."""
    sql = """
    CREATE STREAM lines (k DOUBLE KEY, name VARCHAR, n INTEGER)
      WITH (KAFKA_TOPIC='bytes', KEY_FORMAT='KAFKA', VALUE_FORMAT='DELIMITED', VALUE_DELIMITER='|');
    CREATE STREAM framed (name VARCHAR, n INTEGER) WITH (KAFKA_TOPIC='bytes', VALUE_FORMAT='AVRO');
    CREATE STREAM alone (word VARCHAR) WITH (KAFKA_TOPIC='bytes', VALUE_FORMAT='JSON', WRAP_SINGLE_VALUE=false);
    CREATE STREAM out AS SELECT k, name, n FROM lines;
    CREATE STREAM from_avro AS SELECT name, n FROM framed;
    CREATE STREAM words AS SELECT word FROM alone;
    """
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "NAME", "type": "string"}, {"name": "N", "type": "int"}],
    }
    with Pipeline(tmp_path, "") as pipeline:
        pipeline.log.create_topic(TopicSpec("bytes", kind="raw"))
        id_ = Registry(pipeline.log).register("bytes-value", Schema(json.dumps(schema), "AVRO")).id
        pipeline.executor.execute(sql)
        avro = BytesIO()
        fastavro.schemaless_writer(avro, schema, {"NAME": "ben", "N": 4})
        records = [
            (struct.pack(">d", 1.5), b"ann|3"),
            (b"short", b"too|many|parts"),
            (None, b"\0" + id_.to_bytes(4, "big") + avro.getvalue()),
            (None, b'"word"'),
            (None, None),
        ]
        put_bytes(pipeline, records)
        for name in ("out", "from_avro", "words"):
            pipeline.run(spark, name)
        lines = picked(pipeline.records("OUT"), "K NAME N $tombstone")
        assert lines[:2] == [(1.5, "ann", 3, False), (None, None, None, False)]
        assert lines[-1] == (None, None, None, True)
        assert picked(pipeline.records("FROM_AVRO"), "NAME N") == [(None, None)] * 2 + [("ben", 4)] + [(None, None)] * 2
        assert picked(pipeline.records("WORDS"), "WORD")[3] == ("word",)


def put_bytes(pipeline: Pipeline, records: list[tuple[bytes | None, bytes | None]]) -> None:
    keys, values = zip(*records, strict=True)
    batch = pa.record_batch({"KEY": pa.array(keys, pa.binary()), "VALUE": pa.array(values, pa.binary())})
    pipeline.log.append([Append("bytes", batch)]).result(30)


def test_a_query_may_say_which_column_is_the_time_which_all_rows_need(spark: SparkSession, tmp_path: Path) -> None:
    sql = """
    CREATE STREAM s (k VARCHAR KEY, at BIGINT) WITH (KAFKA_TOPIC='s');
    CREATE STREAM out WITH (TIMESTAMP='at') AS SELECT k, at FROM s;
    """
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("s", [{"K": "a", "AT": at, "$time": 7} for at in (5_000, None, -1)])
        pipeline.run(spark, "out")
        assert picked(pipeline.records("OUT"), "AT $time") == [(5_000, 5_000)]


def test_an_aggregate_over_a_table_takes_away_what_a_row_was(spark: SparkSession, tmp_path: Path) -> None:
    sql = """
    CREATE TABLE users (id VARCHAR PRIMARY KEY, city VARCHAR, age INTEGER) WITH (KAFKA_TOPIC='users');
    CREATE TABLE cities AS SELECT city, COUNT(*) AS people, SUM(age) AS years, COLLECT_LIST(age) AS ages
      FROM users GROUP BY city;
    """
    with Pipeline(tmp_path, sql) as pipeline:
        pipeline.put("users", [{"ID": "a", "CITY": "Bern", "AGE": 30}, {"ID": "b", "CITY": "Bern", "AGE": 40}])
        pipeline.put("users", [{"ID": "c", "CITY": "Ulm", "AGE": 5}, {"ID": None, "CITY": "Ulm", "AGE": 9}])
        pipeline.run(spark, "cities")
        pipeline.put("users", [{"ID": "a", "CITY": "Ulm", "AGE": 31}, {"ID": "b", "CITY": "Bern", "AGE": 41}])
        pipeline.put("users", [{"ID": "b", "$tombstone": True}, {"ID": "c", "CITY": None, "AGE": 6}])
        pipeline.run(spark, "cities")
        # A group that is empty stays, with a count of 0.
        assert picked(pipeline.table("CITIES"), "CITY PEOPLE YEARS AGES") == [("Bern", 0, 0, []), ("Ulm", 1, 31, [31])]
