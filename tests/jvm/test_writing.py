"""What Spark writes, Python reads: one transaction per batch, once, into one topic or several."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import UsageError
from headrace.log.base import ARRIVAL, OFFSET, PARTITION, STREAM_TIME, TIME, TopicSpec
from headrace.log.local import LocalLog
from headrace.spark import read_topic, write_topic
from headrace.types import BIGINT, VARCHAR, Array, Column
from tests.jvm.support import ALL_TYPES, Rows, batches, few, put_rows, python_rows, source_ends, spark_rows, spark_topic
from tests.log.support import DERIVED, PLAIN, VIEWS, open_owner, put

pytestmark = pytest.mark.spark

COPY = TopicSpec("copy", key=ALL_TYPES.key, value=ALL_TYPES.value, partitions=2, role="derived")
STAMPS = (ARRIVAL, STREAM_TIME, PARTITION, OFFSET)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    opened = open_owner(tmp_path / "log", serve=True)
    for spec in (VIEWS, PLAIN, DERIVED, ALL_TYPES, COPY):
        opened.create_topic(spec)
    yield opened
    opened.close()


def values(rows: Rows, *without: str) -> Rows:
    """Without what the owner stamps, in an order of their own."""
    kept = [{name: value for name, value in row.items() if name not in STAMPS + without} for row in rows]
    return sorted(kept, key=repr)


@few
@given(batches(4, 8))
def test_every_type_goes_through(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, written: list[Rows]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = open_owner(folder, serve=True)
    log.create_topic(ALL_TYPES)
    log.create_topic(COPY)
    for rows in written:
        put_rows(log, rows)
    columns = ["$time", "$tombstone", *(column.name for column in COPY.key + COPY.value)]
    write_topic(read_topic(spark, folder, "all", columns=columns), folder, "copy")
    wanted = values(python_rows(log, "all"), "$id", "$headers", "$rest")
    assert values(python_rows(log, "copy")) == wanted
    assert values(spark_topic(spark, folder, "copy")) == wanted
    log.close()


def start(
    frame: DataFrame, log: LocalLog, checkpoint: Path, routes: list[dict[str, Any]], **options: Any
) -> StreamingQuery:
    """Run over what is there."""
    writer = (
        frame.writeStream.format("headrace")
        .options(path=str(log.folder), routes=json.dumps(routes), query="q", version="1", checkpoint=str(checkpoint))
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
        .trigger(availableNow=True)
    )
    return writer.start()


def views(spark: SparkSession, log: LocalLog, max_rows: int = 1_000) -> DataFrame:
    return read_topic(spark, log.folder, "pageviews", stream=True, max_rows=max_rows)


def counts(spark: SparkSession, log: LocalLog, **options: Any) -> DataFrame:
    return views(spark, log, **options).groupBy("USERID").count()


COUNTS_ROUTE = {"topic": "counts", "columns": {"K": "USERID", "N": "count"}}


def test_a_stateful_query_into_a_topic(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    put(log, "pageviews", USERID=list("abcab"))
    start(counts(spark, log), log, tmp_path / "c", [COUNTS_ROUTE]).awaitTermination(60)
    put(log, "pageviews", USERID=list("aac"))
    start(counts(spark, log), log, tmp_path / "c", [COUNTS_ROUTE]).awaitTermination(60)
    found = [(row["K"], row["N"]) for row in python_rows(log, "counts")]
    assert (sorted(found[:3]), sorted(found[3:])) == ([("a", 2), ("b", 2), ("c", 1)], [("a", 4), ("c", 2)])
    identity = log.last_identity("q", 1)
    assert identity is not None
    assert identity.batch == 1
    assert identity.checkpoint == json.loads((tmp_path / "c" / "metadata").read_text())["id"]
    assert sum(json.loads(identity.offsets)["partitions"].values()) == 8


def test_the_first_batch_says_how_many_rows_the_next_may_have(
    spark: SparkSession, log: LocalLog, tmp_path: Path
) -> None:
    """A handful of keys takes no time, so the next has as many rows as one may have at the most."""
    for user in "abcdefghijklmnop":
        put(log, "pageviews", USERID=[user])
    reader = spark.readStream.format("headrace").name("input")
    options = {"path": str(log.folder), "topic": "pageviews", "maxRowsPerTrigger": 6, "firstRows": 2, "cut": "q"}
    frame = reader.options(**{name: str(value) for name, value in options.items()}).load().groupBy("USERID").count()
    start(frame, log, tmp_path / "c", [COUNTS_ROUTE]).awaitTermination(60)
    ends = [sum(source_ends(tmp_path / "c", number)[0]["partitions"].values()) for number in range(4)]
    assert ends == [2, 8, 14, 16]
    assert sorted(row["K"] for row in python_rows(log, "counts")) == list("abcdefghijklmnop")


def test_one_stream_into_several_topics(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    put(log, "pageviews", USERID=list("abcd"), N=[1, 2, 3, 4], time_=[10, 20, 30, 40])
    routed = views(spark, log).selectExpr(
        "USERID", "N", "`$time`", "CAST(CASE WHEN N > 2 THEN 1 WHEN N = 2 THEN 0 END AS INT) AS `$route`"
    )
    routes = [
        {"topic": "counts", "columns": {"K": "USERID", "N": "N", "$time": "$time"}},
        {"topic": "plain", "columns": {"N": "N", "$time": "$time"}},
    ]
    start(routed, log, tmp_path / "c", routes).awaitTermination(60)
    assert [(row["K"], row["N"], row[TIME]) for row in python_rows(log, "counts")] == [("a", 1, 10), ("b", 2, 20)]
    assert [(row["N"], row[TIME]) for row in python_rows(log, "plain")] == [(3, 30), (4, 40)]


def test_a_repeated_batch_changes_nothing(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    """As after a crash between the owner's commit and Spark's own note of it."""
    put(log, "pageviews", USERID=list("abcdef"))
    route = {"topic": "counts", "columns": {"K": "USERID", "N": "N"}}
    start(views(spark, log, max_rows=2), log, tmp_path / "c", [route]).awaitTermination(60)
    wanted = python_rows(log, "counts")
    assert len(wanted) == 6
    (tmp_path / "c" / "commits" / "2").unlink()
    start(views(spark, log, max_rows=2), log, tmp_path / "c", [route]).awaitTermination(60)
    assert python_rows(log, "counts") == wanted
    assert (tmp_path / "c" / "commits" / "2").exists()


def test_a_deleted_checkpoint_is_noticed(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    put(log, "pageviews", USERID=list("abc"))
    start(counts(spark, log), log, tmp_path / "c", [COUNTS_ROUTE]).awaitTermination(60)
    shutil.rmtree(tmp_path / "c")
    with pytest.raises(Exception, match=r"batch_conflict: .*committed by another checkpoint"):
        start(counts(spark, log), log, tmp_path / "c", [COUNTS_ROUTE]).awaitTermination(60)
    assert len(python_rows(log, "counts")) == 3


def test_batches_without_rows_are_committed_too(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    """Or the numbers of the batches that follow would not be next."""
    route = {"topic": "counts", "columns": {"K": "USERID", "N": "N"}}
    for users in ("ab", "cd"):
        put(log, "pageviews", USERID=list(users), N=[1, 1])
        start(views(spark, log).where("N > 1"), log, tmp_path / "c", [route]).awaitTermination(60)
    put(log, "pageviews", USERID=["e"], N=[2])
    start(views(spark, log).where("N > 1"), log, tmp_path / "c", [route]).awaitTermination(60)
    assert [row["K"] for row in python_rows(log, "counts")] == ["e"]


def test_rows_of_a_megabyte_travel_a_few_at_a_time(spark: SparkSession, log: LocalLog) -> None:
    log.create_topic(TopicSpec("large", value=(Column("T", VARCHAR), Column("A", Array(BIGINT))), role="derived"))
    frame = spark.range(24, numPartitions=1).selectExpr(
        "repeat('x', 1000000 + id) AS T", "CAST(NULL AS ARRAY<BIGINT>) AS A"
    )
    write_topic(frame, log.folder, "large")
    found = python_rows(log, "large")
    assert [(len(row["T"]), row["A"]) for row in found] == [(1_000_000 + number, None) for number in range(24)]


def test_what_the_owner_refuses(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    frame = spark.range(50_000).selectExpr("id AS N", "CAST(id AS STRING) AS WRONG")
    with pytest.raises(Exception, match=r"not_found: .*nowhere"):
        write_topic(frame, log.folder, "nowhere")
    with pytest.raises(Exception, match=r"usage: .*WRONG"):
        write_topic(frame, log.folder, "plain")
    assert python_rows(log, "plain") == []
    with pytest.raises(UsageError, match="`query` and `checkpoint`"):
        write_topic(views(spark, log), log.folder, "plain")
    write_topic(frame.drop("WRONG"), log.folder, "plain")
    assert [row["N"] for row in sorted(python_rows(log, "plain"), key=lambda row: row["N"])] == list(range(50_000))


def test_without_an_owner(spark: SparkSession, tmp_path: Path) -> None:
    open_owner(tmp_path, serve=True).close()
    frame = spark.range(1).selectExpr("id AS N")
    with pytest.raises(Exception, match="owner_lost: nobody owns the log"):
        write_topic(frame, tmp_path, "plain")


def test_many_columns_of_text(spark: SparkSession, log: LocalLog) -> None:
    """Batches larger than the socket's buffer, several of them per task."""
    spec = TopicSpec(
        "wide", key=(Column("K", BIGINT),), value=(Column("A", VARCHAR), Column("B", VARCHAR)), partitions=2
    )
    log.create_topic(spec)
    frame = spark.range(60_000).selectExpr(
        "id AS K", "repeat(CAST(id AS STRING), 10) AS A", "IF(id % 3 = 0, NULL, 'x') AS B"
    )
    write_topic(frame, log.folder, "wide")
    written = read_topic(spark, log.folder, "wide", columns=["K", "A", "B"])
    assert values(spark_rows(written)) == values(spark_rows(frame))
