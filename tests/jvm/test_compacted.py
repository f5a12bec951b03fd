"""Frames that are compressed, and frames with gaps: Spark reads what Python reads, range by range, batch by batch."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headrace.log.base import TopicConfig
from headrace.log.local import LocalLog
from headrace.spark import read_topic
from tests.jvm.support import ALL_TYPES, Rows, batches, few, put_rows, python_rows, run_available, spark_topic
from tests.log.support import VIEWS, manual_clock, open_owner, put

pytestmark = pytest.mark.spark

COMPACTED = replace(VIEWS, config=TopicConfig(compacted=True, tombstone_ms=0, compression="zstd"))
HISTORY = st.lists(st.text("abcdefghij", min_size=1, max_size=60), min_size=4, max_size=40)


def compacted(folder: Path, history: list[str]) -> LocalLog:
    log = open_owner(folder, manual_clock(), segment_bytes=6_000, segment_seconds=10, frame_rows=40)
    log.create_topic(COMPACTED)
    for number, users in enumerate(history):
        size = len(users)
        deleted = [number % 3 == 0 and user < "d" for user in users]
        put(log, "pageviews", USERID=list(users), N=list(range(size)), tombstone_=deleted)
    log.maintain()
    log.clock.advance(20_000)  # type: ignore[attr-defined]
    log.maintain()
    put(log, "pageviews", USERID=["z"], N=[1])
    return log


@few
@given(HISTORY, st.data())
def test_gaps_read_the_same_range_by_range(spark: SparkSession, history: list[str], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(compacted(Path(folder), history)) as log:
        wanted = python_rows(log, "pageviews")
        assert spark_topic(spark, log.folder, "pageviews") == wanted
        ends = [ends.end for ends in log.snapshot().ends["pageviews"]]
        bounds = [sorted(data.draw(st.tuples(st.integers(0, end), st.integers(0, end)))) for end in ends]
        starting, ending = ({"partitions": {str(p): b[side] for p, b in enumerate(bounds)}} for side in (0, 1))
        inside = [
            row for row in wanted if bounds[row["$partition"]][0] <= row["$offset"] < bounds[row["$partition"]][1]
        ]
        assert spark_topic(spark, log.folder, "pageviews", starting=starting, ending=ending) == inside
        arrivals = st.integers(0, log.snapshot().arrival)
        first, after = sorted(data.draw(st.tuples(arrivals, arrivals)))
        assert spark_topic(spark, log.folder, "pageviews", starting={"arrival": first}, ending={"arrival": after}) == [
            row for row in wanted if first <= row["$arrival"] < after
        ]


@few
@given(HISTORY, st.integers(1, 15))
def test_gaps_are_cut_into_micro_batches_by_rows(spark: SparkSession, history: list[str], limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(compacted(Path(folder) / "log", history)) as log:
        columns = ["$arrival", "$partition", "$offset", "USERID", "N"]
        frame = read_topic(spark, log.folder, "pageviews", stream=True, max_rows=limit, columns=columns)
        seen, _ = run_available(frame, Path(folder) / "checkpoint")
        assert seen.all == [{name: row[name] for name in columns} for row in python_rows(log, "pageviews")]
        assert max(len(rows) for rows in seen) <= limit


def test_a_stream_goes_on_over_what_was_compacted_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    """Its offset lies in a gap by then."""
    log = open_owner(tmp_path / "log", manual_clock(), segment_bytes=3_000, segment_seconds=10)
    log.create_topic(replace(COMPACTED, partitions=1))
    frame = read_topic(spark, log.folder, "pageviews", stream=True, columns=["$offset", "$arrival", "N"])
    for n in range(100):
        put(log, "pageviews", USERID=["a"], N=[n])
    seen, _ = run_available(frame, tmp_path / "checkpoint")
    assert [row["N"] for row in seen.all] == list(range(100))
    for n in range(100, 200):
        put(log, "pageviews", USERID=["ab"[n % 2]], N=[n])
    log.clock.advance(20_000)  # type: ignore[attr-defined]
    log.maintain()
    log.maintain()
    put(log, "pageviews", USERID=["c"], N=[200])
    seen, _ = run_available(frame, tmp_path / "checkpoint", seen)
    assert [(row["$offset"], row["N"]) for row in seen.all[100:]] == [(198, 198), (199, 199), (200, 200)]
    log.close()


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@few
@given(written=batches(max_rows=40), repeat=st.integers(1, 60))
def test_every_type_compressed(
    spark: SparkSession, compression: Literal["lz4", "zstd"], written: list[Rows], repeat: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(open_owner(Path(folder), segment_bytes=60_000)) as log:
        log.create_topic(replace(ALL_TYPES, config=TopicConfig(compression=compression)))
        for rows in written:
            unnamed: list[dict[str, Any]] = [row | {"$id": None} for row in rows]
            put_rows(log, unnamed * repeat)
        wanted = python_rows(log)
        assert spark_topic(spark, log.folder) == wanted
        log.maintain()
        assert spark_topic(spark, log.folder) == wanted


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_large_compressed_frames(spark: SparkSession, tmp_path: Path, compression: Literal["lz4", "zstd"]) -> None:
    """Blocks that refer back to others, long repeats, bytes that do not compress."""
    import random

    draw = random.Random(7)
    log = open_owner(tmp_path)
    log.create_topic(replace(VIEWS, config=TopicConfig(compression=compression)))
    texts = [draw.randbytes(draw.randrange(300)).hex() if n % 3 else "x" * draw.randrange(5_000) for n in range(8_000)]
    put(log, "pageviews", USERID=[f"u{n % 50}" for n in range(8_000)], PAGEID=texts, N=[n * 7919 for n in range(8_000)])
    assert spark_topic(spark, tmp_path, "pageviews") == python_rows(log, "pageviews")
    log.close()
