"""A batch layer that is computed stretch by stretch is what it is as a whole, however often it is cut short."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.coordinate.planning import cut_offsets
from headrace.coordinate.topics import late_spec, sink_spec
from headrace.log.base import TIME
from headrace.process import layer as layers
from headrace.process.base import LayerSpec
from headrace.process.layer import BatchLayer, write_layer
from headrace.process.stretches import ACCOUNT
from headrace.sql.layered import layered_query
from headrace.sql.plan import may_be_late
from tests.process.pipeline import Pipeline

pytestmark = pytest.mark.spark

SQL = """
CREATE STREAM events (k VARCHAR KEY, x INT, big BIGINT, d DOUBLE, m DECIMAL(9,2), s VARCHAR, l ARRAY<INT>)
  WITH (KAFKA_TOPIC='events', PARTITIONS=3);
CREATE TABLE names (k VARCHAR PRIMARY KEY, name VARCHAR) WITH (KAFKA_TOPIC='names', PARTITIONS=2);
CREATE TABLE kept AS SELECT k, COUNT(*) AS n, COUNT(x) AS nx, SUM(x) AS sx, SUM(m) AS sm, SUM(big) AS sb,
  AVG(x) AS ax, AVG(big) AS ab, AVG(m) AS am, AVG(d) AS ad, MIN(d) AS lo, MAX(s) AS hi, SUM_LIST(l) AS sl,
  COUNT_DISTINCT(s) AS ds, APPROX_COUNT_DISTINCT(s) AS ads, APPROX_QUANTILE(d, 0.5) AS med,
  EARLIEST_BY_OFFSET(s) AS first_s, LATEST_BY_OFFSET(x) AS last_x, LATEST_BY_OFFSET(x, FALSE) AS last_any,
  EARLIEST_BY_OFFSET(x, 3) AS firsts, LATEST_BY_OFFSET(s, 2) AS lasts, COLLECT_LIST(x) AS xs, COLLECT_SET(s) AS ss,
  TOPK(x, 3) AS t3, TOPKDISTINCT(x, 2) AS td, TOPK(x, s, 2) AS tss, STDDEV_SAMP(d) AS sd, ATTR(s) AS at
  FROM events GROUP BY k;
CREATE TABLE in_python AS SELECT k, APPROX_TOP_K(s, 2) AS top, LATEST_BY_OFFSET(x) AS last_x, COUNT(*) AS n
  FROM events GROUP BY k;
CREATE TABLE minutes AS SELECT k, COUNT(*) AS n, SUM(x) AS total FROM events
  WINDOW HOPPING (SIZE 1 MINUTE, ADVANCE BY 30 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY k;
CREATE TABLE late_too WITH (BATCH_COUNTS_LATE=TRUE) AS SELECT k, COUNT(*) AS n FROM events
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY k;
CREATE TABLE named AS SELECT n.name AS name, COUNT(*) AS n FROM events e JOIN names n ON e.k = n.k GROUP BY n.name;
CREATE TABLE short AS SELECT k, name FROM names WHERE LEN(name) < 4;
"""
SINKS = ("kept", "in_python", "minutes", "late_too", "named", "short")
EVENTS, NAMES, AT_ONCE = 80, 20, 20


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Pipeline(tmp_path_factory.mktemp("stretches [a]"), SQL) as made:
        chance = random.Random(6)

        def maybe(value: Any) -> Any:
            return None if chance.random() < 0.2 else value

        for at in range(EVENTS):
            late = chance.choice((0, 0, 0, 20_000, 200_000))
            made.put("events", [_event(chance, maybe) | {TIME: 1_700_000_000_000 + at * 9_000 - late}])
            if at % (EVENTS // NAMES) == 0:
                row = {"K": chance.choice("abc"), "NAME": chance.choice(("al", "bo", "cecilia"))}
                made.put("names", [row | ({"$tombstone": True} if chance.random() < 0.2 else {})])
        yield made


def _event(chance: random.Random, maybe: Any) -> dict[str, Any]:
    return {
        "K": chance.choice("abcd"),
        "X": maybe(chance.randint(-5, 5)),
        "BIG": maybe(chance.choice([2**62, -(2**40), 7])),
        "D": maybe(chance.randint(0, 100) / 4),
        "S": maybe(chance.choice(["red", "green", "blue"])),
        "L": maybe([chance.randint(0, 9), None]),
    }


def spec_of(pipeline: Pipeline, sink: str, number: str, folder: Path | None) -> LayerSpec:
    whole = pipeline.spec(sink).plan
    plan = layered_query(replace(whole, sink=replace(whole.sink, topic=f"{sink}_{number}")))
    cut = pipeline.log.snapshot().arrival
    pipeline.log.create_topic(sink_spec(plan.partial.sink))
    late = late_spec(f"{sink}_{number}") if may_be_late(plan.partial.root) else None
    if late is not None:
        pipeline.log.create_topic(late)
    return LayerSpec(
        f"BATCH_{sink}_{number}",
        plan.partial,
        {source.topic: cut_offsets(pipeline.log, source.topic, cut) for source in plan.partial.inputs},
        cut,
        late.name if late is not None else None,
        from_beginning=plan.from_beginning,
        folder=folder,
    )


def written(pipeline: Pipeline, spec: LayerSpec) -> list[list[Any]]:
    """The layer's rows, once each, and what was late for it."""
    rows = pipeline.records(spec.plan.sink.topic)
    assert len(rows) == len(pipeline.table(spec.plan.sink.topic))
    late = pipeline.records(spec.late_topic) if spec.late_topic else []
    return sorted([_plain(row) for row in rows + late], key=str)


def _plain(row: dict[str, Any]) -> list[Any]:
    """Without where in the log it is; the last digits of a double depend on the order of addition, and what bytes
    have is a sketch, which does too."""
    own = {name: value for name, value in row.items() if name in (TIME, "$window_start") or not name.startswith("$")}
    return [(name, round(v, 9) if isinstance(v, float) else v) for name, v in own.items() if not isinstance(v, bytes)]


@pytest.mark.parametrize("sink", SINKS)
def test_stretches_give_what_the_whole_does(
    spark: SparkSession, pipeline: Pipeline, sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = spec_of(pipeline, sink, "whole", None)
    write_layer(spark, pipeline.log_folder, pipeline.topic, whole)
    expected = written(pipeline, whole)
    assert expected

    # So that what is kept is merged on the way, too.
    monkeypatch.setattr(layers, "MOST_KEPT", 2)
    folder = tmp_path / "kept [b]"
    spec = spec_of(pipeline, sink, "stretched", folder)
    begun = BatchLayer(spark, pipeline.log_folder, pipeline.topic, spec)
    done = 0
    while (ends := begun.stretches.next(AT_ONCE)) is not None:
        if done == 0:
            # Cut short after its rows were written: they do not count, and somebody else computes the same stretch.
            begun.stretches.plan(ends)
            account = (folder / ACCOUNT).read_bytes()
            begun.keep(ends)
            (folder / ACCOUNT).write_bytes(account)
        begun = BatchLayer(spark, pipeline.log_folder, pipeline.topic, spec)
        begun.keep(ends)
        done += 1
    assert done >= (3 if sink not in ("named", "short") else 2 if sink == "named" else 0)
    for _ in range(2):
        # Again, as after a kill: it is there once.
        BatchLayer(spark, pipeline.log_folder, pipeline.topic, spec).commit()
        # Who was killed in it did what whoever comes again does, and told the same dead letters.
        assert BatchLayer(spark, pipeline.log_folder, pipeline.topic, spec).stretches.next(1) is None
    assert written(pipeline, spec) == expected
