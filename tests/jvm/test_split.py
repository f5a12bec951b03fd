"""A topic whose partitions are split while a query runs: its offsets grow, and it reads every record once, in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.spark import read_topic
from tests.jvm.support import Batches, python_rows, run_available, source_ends, spark_topic, wait_until
from tests.log.support import VIEWS, open_owner
from tests.log.test_reshape import USERS, write

pytestmark = pytest.mark.spark


def test_a_stream_takes_in_partitions_that_are_split_off(spark: SparkSession, tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(VIEWS)
    write(log, 0, 2)
    columns = ["$arrival", "$partition", "$offset", "USERID", "N"]
    frame = read_topic(spark, log.folder, "pageviews", stream=True, columns=columns, max_rows=25)
    seen = Batches()
    query = frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(query, lambda: len(seen.all) == 80, "the first records")
        log.split_partition("pageviews", 0)
        write(log, 2, 2)
        wait_until(query, lambda: len(seen.all) == 160, "the children's records")
    finally:
        query.stop()
    log.merge_partitions("pageviews", 2, 3)
    write(log, 4, 1)
    run_available(frame, tmp_path / "checkpoint", seen)
    wanted = [{name: row[name] for name in columns} for row in python_rows(log, "pageviews")]
    assert seen.all == wanted
    assert max(len(rows) for rows in seen) <= 25
    assert spark_topic(spark, log.folder, "pageviews", columns=columns) == wanted
    last = max(int(path.name) for path in (tmp_path / "checkpoint" / "offsets").iterdir() if path.name.isdigit())
    [end] = source_ends(tmp_path / "checkpoint", last)
    assert set(end["partitions"]) == {"0", "1", "2", "3", "4"}
    order: dict[str, list[int]] = {}
    for row in seen.all:
        order.setdefault(row["USERID"], []).append(row["N"])
    assert order == {user: list(range(5)) for user in USERS}
    log.close()
