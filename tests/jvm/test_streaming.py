"""Micro-batches: bounded, complete, cut at one arrival number for all inputs, and none without data."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from headrace.log.base import Append, Log
from headrace.log.local import LocalLog
from headrace.spark import read_topic
from tests.jvm.support import Batches, by_arrival, few, python_rows, run_available, source_ends, wait_until
from tests.log.support import PLAIN, VIEWS, batch, open_owner, put

pytestmark = pytest.mark.spark

EVENTS = st.lists(
    st.tuples(st.sampled_from(["pageviews", "plain"]), st.text("abcdef", min_size=1, max_size=9)),
    min_size=1,
    max_size=12,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    opened = open_owner(tmp_path / "log")
    opened.create_topic(VIEWS)
    opened.create_topic(PLAIN)
    yield opened
    opened.close()


def put_views(log: Log, users: str) -> None:
    put(log, "pageviews", USERID=list(users), N=list(range(len(users))))


def put_event(log: Log, topic: str, text: str) -> None:
    if topic == "pageviews":
        put_views(log, text)
    else:
        put(log, "plain", N=list(range(len(text))))


def stream(spark: SparkSession, log: LocalLog, topic: str = "pageviews", **options: Any) -> DataFrame:
    return read_topic(spark, log.folder, topic, stream=True, **options)


@few
@given(EVENTS, st.integers(1, 9))
def test_two_inputs_are_cut_at_the_same_arrival_number(
    spark: SparkSession, events: list[tuple[str, str]], limit: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(open_owner(Path(folder) / "log", linger_ms=1.0)) as log:
        path = Path(folder)
        log.create_topic(VIEWS)
        log.create_topic(PLAIN)
        for topic, text in events:
            put_event(log, topic, text)
        columns = ["$arrival", "$partition", "$offset", "N"]
        views, plain = (
            stream(spark, log, topic, max_rows=limit, cut="both", columns=columns).selectExpr(
                f"'{topic}' AS TOPIC", "*"
            )
            for topic in ("pageviews", "plain")
        )
        seen, _ = run_available(views.union(plain), path / "checkpoint")
        wanted = by_arrival([{"TOPIC": t} | row for t in ("pageviews", "plain") for row in python_rows(log, t)])
        # Batch after batch in the order of arrival, without gap or repeat, none empty, none above the limit.
        assert seen.all == [{name: row[name] for name in ("TOPIC", *columns)} for row in wanted]
        for rows in seen:
            counts = [sum(row["TOPIC"] == topic for row in rows) for topic in ("pageviews", "plain")]
            assert 1 <= max(counts) <= limit
        # Spark keeps the offsets of the last batches.
        for batch_offsets in (path / "checkpoint" / "offsets").glob("[0-9]*"):
            assert len({end["arrival"] for end in source_ends(path / "checkpoint", int(batch_offsets.name))}) == 1


def test_available_now_stops_at_what_was_there(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    put_views(log, "abcabc")
    seen = Batches()

    def write_more(frame: DataFrame, number: int) -> None:
        seen(frame, number)
        put_views(log, "zz")

    frame = stream(spark, log, max_rows=2)
    writer = frame.writeStream.foreachBatch(write_more).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination(60)
    assert [row["$arrival"] for row in seen.all] == list(range(6))
    # And the next run goes on exactly there, also in one go.
    rest, _ = run_available(stream(spark, log, max_rows=100), tmp_path / "copy")
    assert len(rest.rows) == 1
    again = Batches()
    again.rows = [[]] * len(seen.rows)
    frame.writeStream.foreachBatch(again).option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination(60)
    assert [row["$arrival"] for row in again.all] == list(range(6, 12))


def test_a_growing_log_is_followed(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    """Written by one thread in small groups, rewritten under the reader, read by a query that is stopped and begun."""
    total, stopped = 400, threading.Event()

    def write() -> None:
        for number in range(total):
            put(log, "pageviews", USERID=[f"u{number % 17}"] * 3, N=[number] * 3)
            if number % 50 == 0:
                log.maintain()
        stopped.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = Batches()
    for _ in range(2):
        query = (
            stream(spark, log, max_rows=500)
            .writeStream.foreachBatch(seen)
            .option("checkpointLocation", str(tmp_path / "c"))
            .start()
        )
        read = len(seen.all)
        wait_until(query, lambda: len(seen.all) > read + 100 or stopped.is_set(), "some rows")  # noqa: B023
        if stopped.is_set():
            wait_until(query, lambda: len(seen.all) >= 3 * total, "all rows")
        query.stop()
    query = stream(spark, log).writeStream.foreachBatch(seen).option("checkpointLocation", str(tmp_path / "c")).start()
    wait_until(query, lambda: stopped.is_set() and len(seen.all) >= 3 * total, "all rows")
    query.stop()
    writer.join()
    assert seen.all == python_rows(log, "pageviews")


def test_other_topics_start_no_batch(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    """The log's arrival number grows with every topic; a query only moves when its own have records."""
    put_views(log, "a")
    seen = Batches()
    query = stream(spark, log).writeStream.foreachBatch(seen).option("checkpointLocation", str(tmp_path / "c")).start()
    wait_until(query, lambda: len(seen.rows) == 1, "the first row")
    for number in range(20):
        put(log, "plain", N=[number])
    put_views(log, "b")
    wait_until(query, lambda: len(seen.all) == 2, "the second row")
    query.stop()
    assert [len(rows) for rows in seen] == [1, 1]


def test_where_results_wait_for_time_a_place_is_closed_without_records(
    spark: SparkSession, log: LocalLog, tmp_path: Path
) -> None:
    """Once, also by a query that was stopped before it came to it."""
    checkpoint, options = tmp_path / "c", {"path": str(log.folder), "topic": "pageviews"}
    put_views(log, "ab")
    reader = spark.readStream.format("headrace").options(**options).name("input")
    seen, _ = run_available(reader.load(), checkpoint)
    assert [len(rows) for rows in seen] == [2]
    assert "closed" not in source_ends(checkpoint, 0)[0]
    closing = reader.option("closes", True).option("maxRowsPerTrigger", 1)
    run_available(closing.load(), checkpoint, seen)
    assert [len(rows) for rows in seen] == [2, 0]
    assert source_ends(checkpoint, 1)[0] == {**source_ends(checkpoint, 0)[0], "closed": True}
    put_views(log, "cde")
    run_available(closing.load(), checkpoint, seen)
    # While there is more to read, that comes first, for a second.
    assert [row["USERID"] for row in seen.all] == list("abcde")
    ends = [source_ends(checkpoint, number)[0] for number in range(len(seen.rows))]
    assert ends[-1] == {**ends[-2], "closed": True}
    run_available(closing.load(), checkpoint, seen)
    assert len(seen.rows) == len(ends)


def test_starting_with_what_comes(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    put_views(log, "abc")
    seen = Batches()
    query = (
        stream(spark, log, starting="latest")
        .writeStream.foreachBatch(seen)
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    wait_until(query, lambda: "Waiting for data" in query.status["message"], "the query to look for data")
    put_views(log, "de")
    wait_until(query, lambda: len(seen.all) >= 2, "two rows")
    query.stop()
    assert [row["USERID"] for row in seen.all] == ["d", "e"]


def test_only_frames_with_late_records(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    """One frame in ten holds a record more than a minute late: the others are neither planned nor read."""
    for number in range(30):
        now = 1_000_000 + number * 1000
        put(log, "plain", N=[number] * 2, time_=[now, now - (90_000 if number % 10 == 9 else 5_000)])
    options = {"path": str(log.folder), "topic": "plain"}
    frame = spark.readStream.format("headrace").options(**options, minLag="60000").name("late").load()
    seen, _ = run_available(frame, tmp_path / "c")
    assert [row["N"] for row in seen.all] == [9, 9, 19, 19, 29, 29]
    assert source_ends(tmp_path / "c", 0)[0]["partitions"] == {"0": 60}
    nothing = spark.read.format("headrace").options(**options, minLag="100000").load()
    assert nothing.rdd.getNumPartitions() == 0
    assert nothing.count() == 0


def test_lag_is_reported(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    put(log, "pageviews", USERID=list("abcde"), time_=[10, 20, 30, 20, 10])
    _, query = run_available(stream(spark, log, max_rows=3), tmp_path / "c")
    first, last = query.recentProgress[0]["sources"][0], query.recentProgress[-1]["sources"][0]
    assert first["metrics"] == {"lagRecords": "2", "streamTimeMs": "30"}
    assert last["metrics"]["lagRecords"] == "0"
    assert first["description"] == "headrace topic pageviews"


def test_a_deleted_past_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log", segment_bytes=2_000, retention_bytes=8_000)
    log.create_topic(PLAIN)
    put(log, "plain", N=[0])
    run_available(stream(spark, log, "plain"), tmp_path / "c")
    for number in range(400):
        put(log, "plain", N=[number])
    log.maintain()
    with pytest.raises(Exception, match="OFFSET_OUT_OF_RANGE topic `plain` partition 0: offset 1 was deleted"):
        run_available(stream(spark, log, "plain"), tmp_path / "c")
    log.close()


def test_a_topic_made_again_is_not_taken_for_the_old_one(spark: SparkSession, log: LocalLog, tmp_path: Path) -> None:
    put(log, "plain", N=[1, 2])
    run_available(stream(spark, log, "plain"), tmp_path / "c")
    log.delete_topic("plain")
    log.create_topic(PLAIN)
    log.append([Append("plain", batch(N=[3, 4, 5]))]).result(30)
    with pytest.raises(Exception, match="TOPIC_REPLACED topic `plain` was deleted and made again"):
        run_available(stream(spark, log, "plain"), tmp_path / "c")
