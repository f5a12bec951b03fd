"""On Kafka too the Python evaluation says what Spark says, however the input was cut into batches."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.log.base import WINDOW_END, WINDOW_START
from headrace.sql.functions.arrays import hashable
from headrace.views.evaluate import Evaluation, Question, answer
from headrace.views.late import row_reader
from headrace.views.subject import Subject, committed_cut, is_ordered, reading_of
from headrace.views.traced import Bounds
from tests.process.pipeline import Row
from tests.process.test_kafka import KafkaPipeline
from tests.process.test_operator_cuts import SOURCES, random_events
from tests.views.test_evaluate import TABLES

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ORDERED = ["plain", "computed", "hopping", "visits", "over_table", "side_by_side"]


def test_it_says_what_spark_says(tmp_path: Path, spark: SparkSession, kafka: str) -> None:
    chance = random.Random(11)
    statements = "".join(f"CREATE TABLE {name} AS {TABLES[name]};" for name in (*ORDERED, "met"))
    with KafkaPipeline(tmp_path, SOURCES + statements, kafka) as pipeline:
        for _ in range(2):
            for topic, row in random_events(chance, 80):
                # Some of both tables' keys are the same.
                pipeline.put(topic, [row | {"ID": row["ID"].replace("x", "a")} if topic == "f" else row])
            pipeline.run_all(spark, ORDERED, max_rows=50)
        for name in ORDERED:
            subject = subject_of(pipeline, name)
            expected = [without_time(row) for row in pipeline.table(name.upper())]
            assert expected, "nothing to compare with"
            assert ordered(ask(pipeline, subject)) == ordered(expected), name
            for row in expected[:6]:
                window = (row[WINDOW_START], row[WINDOW_END]) if subject.source.window else None
                key = tuple(hashable(row[column.name]) for column in subject.source.key)
                assert ask(pipeline, subject, key, window) == [row], name
        assert not is_ordered(pipeline.log, subject_of(pipeline, "met"))


def subject_of(pipeline: KafkaPipeline, name: str) -> Subject:
    spec = pipeline.spec(name)
    return Subject(spec.plan.sink, 1, spec.plan, spec.id, spec.version)


def ask(
    pipeline: KafkaPipeline, subject: Subject, key: tuple[object, ...] | None = None, window: Bounds | None = None
) -> list[Row]:
    cut = committed_cut(pipeline.log, subject, reading_of(pipeline.log, subject))
    assert isinstance(cut, dict)
    reader = row_reader(pipeline.log, subject, cut, window)
    found = []
    for row in answer(Evaluation(reader), Question(subject.query, key, window)):
        shown = dict(row.values)
        if row.window is not None:
            shown |= {WINDOW_START: row.window[0], WINDOW_END: row.window[1]}
        found.append(shown)
    return found


def without_time(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "$time"}


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: repr(sorted(row.items())))
