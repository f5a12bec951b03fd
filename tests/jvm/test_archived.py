"""Archived segments: Spark replays a topic over archive and live segments without a gap or a repeat."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headrace.log.local import LocalLog
from headrace.log.local.archive import read_manifest
from headrace.spark import read_topic
from tests.jvm.support import ALL_TYPES, Batches, Rows, batches, few, put_rows, python_rows, run_available, spark_topic
from tests.log.support import PLAIN, VIEWS, numbers, put
from tests.log.test_archive import archiving_log, fill, parquet

pytestmark = pytest.mark.spark


@few
@given(batches(), batches(max_batches=2), st.data())
def test_every_type_and_every_range(
    spark: SparkSession, archived: list[Rows], live: list[Rows], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(archiving_log(Path(folder))) as log:
        log.create_topic(ALL_TYPES)
        for rows in archived:
            put_rows(log, rows)
        log.archive_now(seal=True)
        for rows in live:
            put_rows(log, rows)
        wanted = python_rows(log)
        assert spark_topic(spark, log.folder) == wanted
        ends = [ends.end for ends in log.snapshot().ends[ALL_TYPES.name]]
        bounds = [sorted(data.draw(st.tuples(st.integers(0, end), st.integers(0, end)))) for end in ends]
        starting, ending = ({"partitions": {str(p): b[side] for p, b in enumerate(bounds)}} for side in (0, 1))
        assert spark_topic(spark, log.folder, starting=starting, ending=ending) == [
            row for row in wanted if bounds[row["$partition"]][0] <= row["$offset"] < bounds[row["$partition"]][1]
        ]
        first, after = sorted(data.draw(st.tuples(st.integers(0, len(wanted)), st.integers(0, len(wanted)))))
        assert (
            spark_topic(spark, log.folder, starting={"arrival": first}, ending={"arrival": after})
            == wanted[first:after]
        )


def views(log: LocalLog, count: int, first: int = 0) -> None:
    for n in range(first, first + count):
        put(log, "pageviews", USERID=["a", "b", "c"], N=[n, n, n])


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_micro_batches_replay_over_archive_and_segments(spark: SparkSession, tmp_path: Path, limit: int) -> None:
    """While the query stands still between two runs, what it has yet to read moves to the archive."""
    log = archiving_log(tmp_path)
    log.create_topic(VIEWS)
    views(log, 12)
    log.archive_now(seal=True)
    views(log, 4, 12)
    columns = ["$arrival", "$partition", "$offset", "USERID", "N"]
    frame = read_topic(spark, log.folder, "pageviews", stream=True, max_rows=limit, columns=columns)
    seen = Batches()
    run_available(frame, tmp_path / "checkpoint", seen)
    views(log, 6, 16)
    log.archive_now(seal=True)
    views(log, 2, 22)
    run_available(frame, tmp_path / "checkpoint", seen)
    assert seen.all == [{name: row[name] for name in columns} for row in python_rows(log, "pageviews")]
    assert max(len(rows) for rows in seen) <= limit
    log.close()


def test_row_groups_are_read_one_by_one(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.log.local.archiving.GROUP_ROWS", 20)
    log = archiving_log(tmp_path)
    log.create_topic(PLAIN)
    for first in range(0, 1000, 10):
        put(log, "plain", N=list(range(first, first + 10)))
    log.archive_now(seal=True)
    assert max(len(file.frames) for file in read_manifest(log.folder / "topics" / "plain" / "0").files) > 1
    for first, after in ((0, 1000), (37, 38), (49, 51), (120, 777), (999, 1000)):
        found = spark_topic(
            spark, log.folder, "plain", starting={"partitions": {"0": first}}, ending={"partitions": {"0": after}}
        )
        assert [row["N"] for row in found] == list(range(first, after))
    log.close()


def test_damage_in_the_archive_is_named_and_passed_over_once_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    log = archiving_log(tmp_path)
    log.create_topic(PLAIN)
    fill(log, 60)
    log.archive_now(seal=True)
    files = read_manifest(log.folder / "topics" / "plain" / "0").files
    victim, missing = parquet(tmp_path)[1], parquet(tmp_path)[3]
    content = bytearray(victim.read_bytes())
    content[100:600] = bytes(500)
    victim.write_bytes(content)
    with pytest.raises(Exception, match=f"CORRUPT_FRAME topic `plain` partition 0 offset {files[1].base}: archived"):
        spark_topic(spark, log.folder, "plain")
    log.quarantine("plain", 0, files[1].base)
    missing.unlink()
    with pytest.raises(Exception, match="the archived file is missing"):
        spark_topic(spark, log.folder, "plain")
    log.quarantine("plain", 0, files[3].base)
    gone = {*range(files[1].base, files[1].next), *range(files[3].base, files[3].next)}
    assert [row["N"] for row in spark_topic(spark, log.folder, "plain")] == [n for n in range(120) if n not in gone]
    assert numbers(log) == [n for n in range(120) if n not in gone]
    log.close()
