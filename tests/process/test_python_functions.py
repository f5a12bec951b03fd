"""Python functions in persistent queries: on Spark, over the real log."""

from __future__ import annotations

import json
import textwrap
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.coordinate.functions import deploy_functions
from headrace.functions.describe import describe
from headrace.process.batch import run_batch
from tests.process.pipeline import Pipeline

pytestmark = pytest.mark.spark

SOURCE = """
CREATE STREAM orders (id BIGINT KEY, customer VARCHAR, amount DOUBLE, tags VARCHAR)
  WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON');
"""
FUNCTIONS = """
from collections.abc import Iterator
from typing import Annotated
import pyarrow as pa
import pyarrow.compute as pc
from headrace import function

@function
def inverse(x: float) -> float:
    return 1 / x

@function
def doubled(x: Annotated[pa.Array, "DOUBLE"]) -> Annotated[pa.Array, "DOUBLE"]:
    if pc.any(pc.equal(x, 13.0)).as_py():
        raise ValueError("13 brings bad luck")
    return pc.multiply(x, 2.0)

@function
class Longest:
    def init(self): return {}
    def add(self, state, text: str):
        if text == "boom":
            raise ValueError(text)
        return {**state, text: state.get(text, 0) + 1}
    def undo(self, state, text: str):
        left = {**state, text: state[text] - 1}
        return {text: count for text, count in left.items() if count}
    def merge(self, left, right): return {key: left.get(key, 0) + right.get(key, 0) for key in left | right}
    def result(self, state) -> Annotated[dict, "STRUCT<text VARCHAR, of INTEGER>"]:
        return {"text": max(state, key=len, default=None), "of": sum(state.values())}

@function
def words(text: str) -> Iterator[str]:
    if text == "!":
        raise ValueError("no words")
    yield from text.split()
"""
ORDERS = [
    {"ID": 1, "CUSTOMER": "a", "AMOUNT": 4.0, "TAGS": "x y", "$time": 1},
    {"ID": 2, "CUSTOMER": "b", "AMOUNT": 0.0, "TAGS": "!", "$time": 2},
    {"ID": 3, "CUSTOMER": "a", "AMOUNT": None, "TAGS": "", "$time": 3},
    {"ID": 4, "CUSTOMER": "b", "AMOUNT": 13.0, "TAGS": None, "$time": 4},
    {"ID": 5, "CUSTOMER": "b", "AMOUNT": 0.0, "TAGS": "z", "$time": 5},
]


def pipeline(folder: Path, sql: str, functions: str = FUNCTIONS) -> Pipeline:
    (folder / "functions").mkdir()
    (folder / "functions" / "mine.py").write_text(textwrap.dedent(functions))
    made = Pipeline(folder, SOURCE)
    deployed = deploy_functions(folder, made.catalog, describe)
    assert [problem for one in deployed for problem in one.problems] == []
    made.executor.execute(sql)
    return made


def letters(made: Pipeline) -> list[tuple[str, str, Any]]:
    found = [
        (letter["TOPIC"], letter["REASON"], json.loads(letter["PAYLOAD"])["arguments"])
        for letter in made.records("_dead_letters")
    ]
    return sorted(found, key=repr)


def test_a_call_that_fails_is_null_and_a_dead_letter_and_the_query_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    sql = """CREATE STREAM found AS SELECT id, INVERSE(amount) AS i, DOUBLED(amount) AS d,
        CASE WHEN amount > 0 THEN INVERSE(amount - 4E0) END AS g, TRANSFORM(ARRAY[amount], x => INVERSE(x)) AS t
        FROM orders;"""
    with pipeline(tmp_path, sql) as made:
        made.put("orders", ORDERS)
        made.run(spark, "found")
        rows = [[record[name] for name in ("ID", "I", "D", "G", "T")] for record in made.records("FOUND")]
        assert rows == [
            [1, 0.25, 8.0, None, [0.25]],
            [2, None, 0.0, None, [None]],
            [3, None, None, None, [None]],
            [4, 1 / 13, None, 1 / 9, [1 / 13]],
            [5, None, 0.0, None, [None]],
        ]
        failed = "function `inverse` failed: ZeroDivisionError: float division by zero"
        assert letters(made) == [
            ("orders", "function `doubled` failed: ValueError: 13 brings bad luck", [13.0]),
            # Twice each: once as a column, once in the lambda; and the one that CASE did not keep away.
            *[("orders", failed, [0.0])] * 5,
        ]


def test_a_table_function_makes_rows_and_a_filter_asks_a_function(tmp_path: Path, spark: SparkSession) -> None:
    sql = "CREATE STREAM found AS SELECT id, WORDS(tags) AS word FROM orders WHERE INVERSE(amount) IS NULL OR id = 1;"
    with pipeline(tmp_path, sql) as made:
        made.put("orders", ORDERS)
        made.run(spark, "found")
        assert [(record["ID"], record["WORD"]) for record in made.records("FOUND")] == [(1, "x"), (1, "y"), (5, "z")]
        assert ("orders", "function `words` failed: ValueError: no words", ["!"]) in letters(made)


def visits(made: Pipeline, rows: list[tuple[int, str, str | None, int]]) -> None:
    made.put("orders", [{"ID": i, "CUSTOMER": c, "AMOUNT": 1.0, "TAGS": t, "$time": at} for i, c, t, at in rows])


def test_an_aggregate_in_python_is_kept_per_group_whatever_the_batches(tmp_path: Path, spark: SparkSession) -> None:
    """Sums beside it are Python's too: integers wrap, and a decimal that has outgrown its type is null, alone."""
    sql = """CREATE TABLE found AS SELECT customer, LONGEST(tags) AS l, COUNT(*) AS n, SUM(amount) AS s,
        SUM(9223372036854775807) AS big, SUM(CAST(9.99 AS DECIMAL(3, 2))) AS exact FROM orders GROUP BY customer;"""
    with pipeline(tmp_path, sql) as made:
        visits(made, [(1, "a", "x", 1), (2, "b", "yyy", 2), (3, "a", "boom", 3)])
        made.run(spark, "found")
        visits(made, [(4, "a", "zz", 9), (5, "a", None, 5)])
        made.run(spark, "found", max_rows=1)
        rows = sorted(made.table("FOUND"), key=lambda row: str(row["CUSTOMER"]))
        names = ("CUSTOMER", "L", "N", "S", "$time", "BIG", "EXACT")
        assert [tuple(row[name] for name in names) for row in rows] == [
            ("a", {"TEXT": "zz", "OF": 2}, 4, 4.0, 9, -4, None),
            ("b", {"TEXT": "yyy", "OF": 1}, 1, 1.0, 2, 2**63 - 1, Decimal("9.99")),
        ]
        assert letters(made) == [("orders", "function `longest` failed: ValueError: boom", ["boom"])]


@pytest.mark.parametrize("emit", ["CHANGES", "FINAL"])
def test_in_windows_too(tmp_path: Path, spark: SparkSession, emit: str) -> None:
    sql = f"""CREATE TABLE found AS SELECT customer, LONGEST(tags)->text AS l FROM orders
        WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY customer EMIT {emit};"""
    with pipeline(tmp_path, sql) as made:
        visits(made, [(1, "a", "x", 1000), (2, "a", "yy", 9000), (3, "a", "zzz", 10_000)])
        made.run(spark, "found")
        visits(made, [(4, "a", "late", 9999), (5, "a", "w", 35_000)])
        made.run(spark, "found")
        found = sorted((row["$window_start"], row["L"]) for row in made.table("FOUND"))
        assert found == [(0, "yy"), (10_000, "zzz")] + ([(30_000, "w")] if emit == "CHANGES" else [])


def test_over_a_table_the_old_row_is_taken_away(tmp_path: Path, spark: SparkSession) -> None:
    sql = """CREATE TABLE people (id BIGINT PRIMARY KEY, town VARCHAR, name VARCHAR) WITH (KAFKA_TOPIC='people');
        CREATE TABLE found AS SELECT town, LONGEST(name) AS l, COLLECT_LIST(name) AS all_names FROM people
        GROUP BY town;"""
    with pipeline(tmp_path, sql) as made:
        names = ("ID", "TOWN", "NAME", "$time")
        made.put("people", [dict(zip(names, row, strict=True)) for row in [(1, "x", "anna", 1), (2, "x", "bo", 2)]])
        made.run(spark, "found")
        made.put("people", [dict(zip(names, row, strict=True)) for row in [(1, "y", "anna", 3), (3, "x", "cy", 4)]])
        made.run(spark, "found")
        assert sorted((row["TOWN"], row["L"]["TEXT"], row["ALL_NAMES"]) for row in made.table("FOUND")) == [
            ("x", "bo", ["bo", "cy"]),
            ("y", "anna", ["anna"]),
        ]


def test_in_sessions_and_in_a_batch(tmp_path: Path, spark: SparkSession) -> None:
    sql = """CREATE TABLE found AS SELECT customer, LONGEST(tags)->text AS l FROM orders
        WINDOW SESSION (5 SECONDS) GROUP BY customer;
        CREATE TABLE whole AS SELECT customer, LONGEST(tags)->text AS l FROM orders GROUP BY customer;"""
    with pipeline(tmp_path, sql) as made:
        visits(made, [(1, "a", "x", 1000), (2, "a", "yy", 4000), (3, "a", "z", 20_000)])
        made.run(spark, "found")
        assert sorted(row["L"] for row in made.table("FOUND")) == ["yy", "z"]
        whole = run_batch(spark, made.log_folder, made.topic, made.spec("whole").plan).collect()
        assert [(row["CUSTOMER"], row["L"]) for row in whole] == [("a", "yy")]
