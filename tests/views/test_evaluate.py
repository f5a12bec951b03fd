"""The Python evaluation of a plan says what Spark says: over random events, some of them late, some out of order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.log.base import WINDOW_END, WINDOW_START
from headrace.sql.functions.arrays import hashable
from headrace.views.evaluate import Evaluation, Question, answer
from headrace.views.reading import Reader
from headrace.views.traced import Traced
from tests.process.pipeline import Pipeline, Row
from tests.process.test_operator_cuts import SOURCES, random_events

pytestmark = pytest.mark.spark

TABLES = {
    "plain": "SELECT k, COUNT(*) AS c, SUM(n) AS total, COLLECT_LIST(n) AS ns FROM s WHERE n % 3 <> 0 GROUP BY k",
    "computed": """SELECT UCASE(k) AS big, n % 2 AS odd, MAX(n) AS most FROM s GROUP BY UCASE(k), n % 2
        HAVING COUNT(*) > 2""",
    "tumbling": """SELECT k, COUNT(*) AS c, COUNT_DISTINCT(n % 4) AS d FROM s
        WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 3 SECONDS) GROUP BY k""",
    "hopping": """SELECT k, COUNT(*) AS c, AVG(n) AS mean, LATEST_BY_OFFSET(n) AS newest FROM s
        WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 4 SECONDS, GRACE PERIOD 2 SECONDS) GROUP BY k""",
    "visits": """SELECT k, COUNT(*) AS c, SUM(n) AS total, COLLECT_LIST(n) AS ns FROM s
        WINDOW SESSION (4 SECONDS, GRACE PERIOD 3 SECONDS) GROUP BY k""",
    "over_table": "SELECT v, COUNT(*) AS c, SUM(v) AS total, COLLECT_LIST(id) AS ids FROM t GROUP BY v",
    "refers": "SELECT f.id AS id, v FROM f LEFT JOIN t ON f.ref = t.id",
    "side_by_side": "SELECT ROWKEY AS id, v, ref FROM t FULL OUTER JOIN f ON t.id = f.id",
    "met": "SELECT v, COUNT(*) AS c, SUM(n) AS total FROM s JOIN t ON s.k = t.id GROUP BY v",
    "pairs": """SELECT s.k AS k, COUNT(*) AS c, SUM(n + m) AS total FROM s
        JOIN r WITHIN (20 SECONDS, 6 SECONDS) GRACE PERIOD 1 SECOND ON s.k = r.k GROUP BY s.k""",
    "flat": "SELECT w, COUNT(*) AS c FROM words GROUP BY w",
}
STREAMS = "CREATE STREAM words AS SELECT k, EXPLODE(ARRAY[n % 2, n % 3]) AS w FROM s;"


@pytest.mark.parametrize("name", TABLES)
def test_it_says_what_spark_says(name: str, tmp_path: Path, spark: SparkSession) -> None:
    chance = random.Random(name)
    with Pipeline(tmp_path, f"{SOURCES}{STREAMS}CREATE TABLE {name} AS {TABLES[name]};") as pipeline:
        for topic, row in random_events(chance, 120):
            # Some of both tables' keys are the same.
            pipeline.put(topic, [row | {"ID": row["ID"].replace("x", "a")} if topic == "f" else row])
        if name == "flat":
            pipeline.run(spark, "words")
        pipeline.run(spark, name)
        expected = pipeline.table(name.upper())
        assert expected, "nothing to compare with"
        query = pipeline.spec(name).plan
        cut = pipeline.log.snapshot().arrival

        def ask(question: Question) -> list[Row]:
            return _shown(answer(Evaluation(Reader(pipeline.log, cut)), question))

        assert _sorted(ask(Question(query))) == _sorted(expected)
        for row in expected:
            window = (row[WINDOW_START], row[WINDOW_END]) if query.sink.window else None
            key = tuple(hashable(row[column.name]) for column in query.sink.key)
            assert ask(Question(query, key, window)) == [row], "asking for one key and window narrows what is read"


def _shown(rows: list[Traced]) -> list[Row]:
    found = []
    for row in rows:
        shown: dict[str, Any] = {"$time": row.time, **row.values}
        if row.window is not None:
            shown |= {WINDOW_START: row.window[0], WINDOW_END: row.window[1]}
        found.append(shown)
    return found


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: repr(sorted(row.items())))
