"""Lambda: a batch over what came before a cut, a stream from exactly there, and reads that show both as one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support import wait_for
from tests.views.live import Live, live

pytestmark = pytest.mark.spark

EVENTS = """CREATE STREAM events (k VARCHAR KEY, x INT, big BIGINT, d DOUBLE, m DECIMAL(9,2), s VARCHAR)
WITH (KAFKA_TOPIC='events', PARTITIONS=2);"""
EVERYTHING = """CREATE TABLE everything AS SELECT k, COUNT(*) AS n, COUNT(x) AS nx, SUM(x) AS sx, SUM(m) AS sm,
  SUM(big) AS sb, AVG(x) AS ax, AVG(big) AS ab, AVG(m) AS am, AVG(d) AS ad, MIN(d) AS lo, MAX(s) AS hi,
  COUNT_DISTINCT(s) AS ds, APPROX_COUNT_DISTINCT(s) AS ads, APPROX_QUANTILE(d, 0.5) AS med,
  EARLIEST_BY_OFFSET(s) AS first_s, LATEST_BY_OFFSET(x) AS last_x,
  LATEST_BY_OFFSET(x, FALSE) AS last_any, EARLIEST_BY_OFFSET(x, 3) AS firsts, LATEST_BY_OFFSET(s, 2) AS lasts,
  COLLECT_LIST(x) AS xs, COLLECT_SET(s) AS ss, TOPK(x, 3) AS t3, TOPKDISTINCT(x, 2) AS td, TOPK(x, s, 2) AS tss,
  STDDEV_SAMP(d) AS sd, ATTR(s) AS at, SUM(x) * 2 + COUNT(*) AS made
  FROM events GROUP BY k HAVING COUNT(*) > 1;"""


def events(seed: int, count: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    return [
        {
            "k": chance.choice("abcde"),
            "x": maybe(chance.randint(-5, 5)),
            "big": maybe(chance.choice([2**62, -(2**40), 7])),
            "d": maybe(chance.randint(0, 100) / 4),
            "m": maybe(str(chance.randint(-99, 99) / 100)),
            "s": maybe(chance.choice(["red", "green", "blue"])),
        }
        for _ in range(count)
    ]


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Iterator[Live]:
    kappa = EVERYTHING.replace("everything", "kappa")
    with live(tmp_path, spark, f"{EVENTS}\n{kappa}", "[views]\ncheck_every_seconds = 0\n") as running:
        yield running


def rounded(rows: list[list[Any]]) -> list[list[Any]]:
    """The last digits of a double depend on the order of addition."""
    return sorted([[round(v, 9) if isinstance(v, float) else v for v in row] for row in rows], key=str)


def test_every_aggregate_that_merges_is_what_a_replay_gives(project: Live) -> None:
    project.send("events", *events(1, 60))
    project.write(f"{project.files['pipelines/all.sql']}\n{EVERYTHING}")
    deployment = project.reaches(project.deploy(strategy="lambda"), "switched")
    assert deployment.strategy == "lambda"
    version = project.services.catalog.versions("EVERYTHING")[0]
    assert version.layers is not None
    assert version.layers.ends is not None
    assert sum(version.layers.ends.values()) == 5

    agree(project)
    project.send("events", *events(2, 60))
    agree(project)


def agree(project: Live) -> None:
    """Both views, at the same records."""

    def both() -> tuple[list[list[Any]], list[list[Any]]]:
        merged, replayed = (rounded(project.rows(f"SELECT * FROM {view};")) for view in ("everything", "kappa"))
        return merged, replayed

    try:
        wait_for(lambda: both()[0] == both()[1] != [], 60, "the views to agree")
    except TimeoutError:
        assert both()[0] == both()[1]
        raise
