"""What Python wrote, Spark reads: every type, however it lies in frames and segments, and exactly the asked range."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headrace.log.base import Append, TopicSpec
from headrace.log.local import LocalLog
from headrace.log.schema import arrow_type
from headrace.spark import read_topic
from headrace.types import BIGINT, INTEGER, VARCHAR, Array, Column, Struct
from tests.jvm.support import ALL_TYPES, Rows, batches, by_arrival, few, put_rows, python_rows, spark_rows, spark_topic
from tests.log.support import PLAIN, VIEWS, batch, numbers, open_owner, put, segments
from tests.log.test_damage import damaged_log

pytestmark = pytest.mark.spark


@few
@given(batches(), st.sampled_from([500, 4_000, 1_000_000]), st.data())
def test_every_type_and_every_range(
    spark: SparkSession, written: list[Rows], segment_bytes: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(open_owner(Path(folder), segment_bytes=segment_bytes)) as log:
        path = log.folder
        log.create_topic(ALL_TYPES)
        for rows in written:
            put_rows(log, rows)
        wanted = python_rows(log)
        assert spark_topic(spark, path) == wanted

        ends = [ends.end for ends in log.snapshot().ends[ALL_TYPES.name]]
        bounds = [sorted(data.draw(st.tuples(st.integers(0, end), st.integers(0, end)))) for end in ends]
        starting, ending = ({"partitions": {str(p): b[side] for p, b in enumerate(bounds)}} for side in (0, 1))
        inside = [
            row for row in wanted if bounds[row["$partition"]][0] <= row["$offset"] < bounds[row["$partition"]][1]
        ]
        assert spark_topic(spark, path, starting=starting, ending=ending) == inside

        first, after = sorted(data.draw(st.tuples(st.integers(0, len(wanted)), st.integers(0, len(wanted)))))
        assert spark_topic(spark, path, starting={"arrival": first}, ending={"arrival": after}) == wanted[first:after]


@few
@given(st.lists(st.integers(1, 400), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_rewritten_segments_read_the_same(spark: SparkSession, sizes: list[int], random: Any) -> None:
    """Small frames, then the same records in large ones; half a range in each."""
    with tempfile.TemporaryDirectory() as folder, closing(open_owner(Path(folder), segment_bytes=16_000)) as log:
        path = log.folder
        log.create_topic(VIEWS)
        for size in sizes:
            users = [random.choice("abcdefgh") for _ in range(size)]
            put(log, "pageviews", USERID=users, PAGEID=[None] * size, N=list(range(size)))
        wanted = python_rows(log, "pageviews")
        assert spark_topic(spark, path, "pageviews") == wanted
        log.maintain()
        assert spark_topic(spark, path, "pageviews") == wanted
        for index in path.glob("topics/*/*/*.idx"):
            index.unlink()
        middle = len(wanted) // 2
        assert spark_topic(spark, path, "pageviews", starting={"arrival": middle}) == wanted[middle:]


def plain(path: Path, groups: int = 5, **changes: Any) -> LocalLog:
    """Frames of two rows each, N counting up."""
    log = open_owner(path, **changes)
    log.create_topic(PLAIN)
    for number in range(groups):
        put(log, "plain", N=[2 * number, 2 * number + 1])
    return log


def test_large_frames_are_read_in_several_tasks(spark: SparkSession, tmp_path: Path) -> None:
    log = open_owner(tmp_path)
    log.create_topic(PLAIN)
    total = 300_000
    for first in range(0, total, 50_000):
        put(log, "plain", N=list(range(first, first + 50_000)))
    frame = read_topic(spark, tmp_path, "plain", columns=["N", "$offset"])
    assert frame.rdd.getNumPartitions() > 2
    assert [tuple(row) for row in frame.orderBy("N").collect()] == [(n, n) for n in range(total)]
    assert read_topic(spark, tmp_path, "plain").count() == total
    log.close()


def test_a_column_added_later_is_null_before(spark: SparkSession, tmp_path: Path) -> None:
    log = plain(tmp_path, 1)
    read_before = read_topic(spark, tmp_path, "plain")
    new = Column("S", Struct((("A", INTEGER), ("B", Array(VARCHAR)))))
    log.alter_topic(replace(PLAIN, value=(*PLAIN.value, new)))
    log.append([Append("plain", batch(N=[2], S=[{"A": 1, "B": ["x"]}]))]).result(30)
    assert [(row["N"], row["S"]) for row in spark_topic(spark, tmp_path, "plain")] == [
        (0, None),
        (1, None),
        (2, {"A": 1, "B": ["x"]}),
    ]
    # Whoever began with the old schema goes on with it.
    assert [row["N"] for row in spark_rows(read_before)] == [0, 1, 2]
    log.close()


def test_a_schema_of_ones_own(spark: SparkSession, tmp_path: Path) -> None:
    log = plain(tmp_path, 2)
    reader = spark.read.format("headrace").options(path=str(tmp_path), topic="plain")
    frame = reader.schema("N BIGINT, WHAT STRUCT<A: INT>, `$partition` INT, `$offset` BIGINT").load()
    assert [tuple(row) for row in frame.orderBy("N").collect()] == [(n, None, 0, n) for n in range(4)]
    with pytest.raises(Exception, match="column `N` is asked for as STRING, the topic has BIGINT"):
        reader.schema("N STRING").load().collect()
    log.close()


def test_one_field_of_a_struct(spark: SparkSession, tmp_path: Path) -> None:
    """Spark asks for that field only; the column is read whole all the same."""
    with closing(open_owner(tmp_path)) as log:
        pair = Struct((("A", BIGINT), ("B", VARCHAR)))
        log.create_topic(TopicSpec("pairs", key=(), value=(Column("P", pair),)))
        rows = pa.record_batch({"P": pa.array([{"A": 1, "B": "x"}, None], arrow_type(pair))})
        log.append([Append("pairs", rows)]).result(30)
        frame = read_topic(spark, tmp_path, "pairs").selectExpr("P.B AS B").orderBy("B")
        assert [row.B for row in frame.collect()] == [None, "x"]


def test_only_the_columns_asked_for_are_loaded(spark: SparkSession, tmp_path: Path) -> None:
    log = plain(tmp_path, 2)
    frame = read_topic(spark, tmp_path, "plain")
    plan = frame.select("N").where("N > 1")._jdf.queryExecution().executedPlan().toString()
    assert "struct<N:bigint>" in plan
    assert read_topic(spark, tmp_path, "plain", columns=["$offset", "N"]).columns == ["$offset", "N"]
    with pytest.raises(Exception, match="no column `M`; there are "):
        read_topic(spark, tmp_path, "plain", columns=["M"])
    log.close()


@pytest.mark.parametrize("byte", [0, 9, 16, 24, 200])
@pytest.mark.parametrize("frame", [0, 2, 4])
def test_damage_is_named_and_passed_over_once_set_aside(
    spark: SparkSession, tmp_path: Path, frame: int, byte: int
) -> None:
    segment, positions = damaged_log(tmp_path, {frame: byte})
    log = open_owner(tmp_path)
    first = 2 * frame
    named = rf"CORRUPT_FRAME topic `plain` partition 0 offset {first}: .* in `{segment}` at position {positions[frame]}"
    with pytest.raises(Exception, match=named):
        spark_topic(spark, tmp_path, "plain")
    after = spark_topic(spark, tmp_path, "plain", starting={"partitions": {"0": first + 2}})
    assert [row["N"] for row in after] == list(range(first + 2, 10))
    log.quarantine("plain", 0, first)
    put(log, "plain", N=[100])
    assert [row["N"] for row in spark_topic(spark, tmp_path, "plain")] == numbers(log)
    log.close()


def test_an_index_of_garbage_misleads_nobody(spark: SparkSession, tmp_path: Path) -> None:
    """As after a crash: the index of a segment that is still written to is not synced."""
    log = plain(tmp_path, 400, segment_bytes=1_000_000)
    wanted = python_rows(log, "plain")
    log.close()
    [index] = tmp_path.glob("topics/plain/0/*.idx")
    content = bytearray(index.read_bytes())
    assert len(content) > 32 + 2 * 40
    for damaged in range(32 + 40, len(content), 40):
        content[damaged : damaged + 32] = content[damaged + 40 : damaged + 72] or bytes(32)
    index.write_bytes(content)
    for first in (0, 350, 700):
        assert spark_topic(spark, tmp_path, "plain", starting={"arrival": first}) == wanted[first:]
        assert spark_topic(spark, tmp_path, "plain", starting={"partitions": {"0": first}}) == wanted[first:]


def test_offsets_that_are_not_there(spark: SparkSession, tmp_path: Path) -> None:
    log = plain(tmp_path, 200, segment_bytes=2_000, retention_bytes=8_000)
    log.maintain()
    start = log.snapshot().ends["plain"][0].start
    assert start > 0
    assert [row["N"] for row in spark_topic(spark, tmp_path, "plain")] == list(range(start, 400))
    with pytest.raises(Exception, match=rf"OFFSET_OUT_OF_RANGE .* partition 0: offset 0 .* starts at {start}"):
        spark_topic(spark, tmp_path, "plain", starting={"partitions": {"0": 0}})
    with pytest.raises(Exception, match=r"OFFSET_OUT_OF_RANGE .* offset 401 is past the log's end 400"):
        spark_topic(spark, tmp_path, "plain", ending={"partitions": {"0": 401}})
    log.close()


def test_what_cannot_be_read_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="topic `plain` does not exist in the log"):
        read_topic(spark, tmp_path, "plain")
    log = plain(tmp_path, 1)
    reader = spark.read.format("headrace").options(path=str(tmp_path), topic="plain")
    with pytest.raises(Exception, match="no option `startingofset`"):
        reader.option("startingOfset", "latest").load()
    with pytest.raises(Exception, match="topic `plain` has no partition `7`, it has 1"):
        spark_topic(spark, tmp_path, "plain", starting={"partitions": {"7": 1}})
    log.close()


def test_raw_and_windowed_topics(spark: SparkSession, tmp_path: Path) -> None:
    log = open_owner(tmp_path)
    log.create_topic(TopicSpec("raw", kind="raw"))
    windowed = TopicSpec(
        "w", key=(Column("K", VARCHAR),), value=(Column("N", BIGINT),), role="derived", windowed="time"
    )
    log.create_topic(windowed)
    log.append([Append("raw", batch(KEY=[b"k", None], VALUE=[b"\0\xff", b""], headers_=[[("h", b"1")], None]))]).result(
        30
    )
    put(log, "w", K=["a"], N=[1], window_start_=[0], window_end_=[60_000], tombstone_=[True])
    for topic in ("raw", "w"):
        assert by_arrival(spark_topic(spark, tmp_path, topic)) == python_rows(log, topic)
    assert segments(tmp_path, "w")
    log.close()
