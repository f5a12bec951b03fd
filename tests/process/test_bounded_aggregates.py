"""Aggregates whose state is bounded: kept by Java, and the same as their Python steps, however the input is cut."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.sql.functions import FUNCTIONS
from tests.process.pipeline import Pipeline

pytestmark = pytest.mark.spark

SOURCE = """
CREATE STREAM sales (id BIGINT KEY, shop VARCHAR, item VARCHAR, price DOUBLE, parts ARRAY<INT>)
  WITH (KAFKA_TOPIC='sales', PARTITIONS=2);
"""
# In SQL, and the function's name and arguments.
AGGREGATES: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "TOP": ("TOPK(price, 3)", "TOPK", ("PRICE", 3)),
    "TOP_WITH": ("TOPK(price, item, 2)", "TOPK", ("PRICE", "ITEM", 2)),
    "TOP_DIFFERENT": ("TOPKDISTINCT(price, 3)", "TOPKDISTINCT", ("PRICE", 3)),
    "FIRST_TWO": ("EARLIEST_BY_OFFSET(item, 2)", "EARLIEST_BY_OFFSET", ("ITEM", 2)),
    "LAST_TWO": ("LATEST_BY_OFFSET(item, 2, FALSE)", "LATEST_BY_OFFSET", ("ITEM", 2, False)),
    "EVERY": ("COLLECT_LIST(item)", "COLLECT_LIST", ("ITEM",)),
    "DIFFERENT": ("COLLECT_SET(item)", "COLLECT_SET", ("ITEM",)),
    "COUNTS": ("HISTOGRAM(item)", "HISTOGRAM", ("ITEM",)),
    "SAME": ("ATTR(shop)", "ATTR", ("SHOP",)),
    "NOT_SAME": ("ATTR(item)", "ATTR", ("ITEM",)),
    "SPREAD": ("STDDEV_SAMP(price)", "STDDEV_SAMP", ("PRICE",)),
    "ALIKE": ("CORRELATION(price, CAST(id AS DOUBLE))", "CORRELATION", ("PRICE", "ID")),
    "PIECES": ("SUM_LIST(parts)", "SUM_LIST", ("PARTS",)),
    "USERS": ("APPROX_COUNT_DISTINCT(item)", "APPROX_COUNT_DISTINCT", ("ITEM",)),
    "MIDDLE": ("APPROX_QUANTILE(price, 0.5)", "APPROX_QUANTILE", ("PRICE", 0.5)),
    "OFTEN": ("APPROX_TOP_K(item, 2)", "APPROX_TOP_K", ("ITEM", 2)),
}
SELECTED = ", ".join(f"{text} AS {name}" for name, (text, _, _) in AGGREGATES.items())
# A sketch is one for Spark and for everybody else.
SKETCHES = "DISTINCT_SKETCH(item) AS d, QUANTILE_SKETCH(price) AS q"


def sales(count: int, seed: int) -> list[dict[str, Any]]:
    chosen = random.Random(seed)
    return [
        {
            "ID": number,
            "SHOP": chosen.choice("ab"),
            "ITEM": chosen.choice(["pen", "ink", "cap", None]),
            "PRICE": chosen.choice([1.0, 2.0, 2.0, 3.5, None, 8.25]),
            "PARTS": chosen.choice([[1, 2], [], None, [3, None]]),
            "$time": 1000 * number,
        }
        for number in range(count)
    ]


def expected(rows: Sequence[dict[str, Any]], name: str) -> Any:
    _, function, arguments = AGGREGATES[name]
    taken = [tuple(row[one] if isinstance(one, str) else one for one in arguments) for row in rows]
    return FUNCTIONS[function].evaluate(taken)


def same(found: Any, wanted: Any) -> bool:
    if isinstance(found, float) and isinstance(wanted, float):
        return math.isclose(found, wanted, rel_tol=1e-9) or (math.isnan(found) and math.isnan(wanted))
    return bool(found == wanted)


def check(found: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    differences = {name: (found[name], expected(rows, name)) for name in AGGREGATES}
    assert {name: pair for name, pair in differences.items() if not same(*pair)} == {}


def test_kept_by_group_over_several_batches(tmp_path: Path, spark: SparkSession) -> None:
    sql = f"CREATE TABLE found AS SELECT shop, {SELECTED}, {SKETCHES} FROM sales GROUP BY shop;"
    rows = sales(60, 1)
    with Pipeline(tmp_path, SOURCE + sql) as made:
        for part in (rows[:25], rows[25:26], rows[26:]):
            made.put("sales", part)
            made.run(spark, "found")
        for found in made.table("FOUND"):
            own = [row for row in rows if row["SHOP"] == found["SHOP"]]
            check(found, own)
            assert FUNCTIONS["DISTINCT_ESTIMATE"].evaluate(found["D"]) == 3
            assert FUNCTIONS["QUANTILE_ESTIMATE"].evaluate(found["Q"], 0.5) == expected(own, "MIDDLE")


def test_kept_by_session(tmp_path: Path, spark: SparkSession) -> None:
    sql = f"CREATE TABLE found AS SELECT shop, {SELECTED} FROM sales WINDOW SESSION (1 HOUR) GROUP BY shop;"
    rows = sales(30, 2)
    with Pipeline(tmp_path, SOURCE + sql) as made:
        for part in (rows[:12], rows[12:]):
            made.put("sales", part)
            made.run(spark, "found")
        found = made.table("FOUND")
        assert len(found) == 2
        for one in found:
            check(one, [row for row in rows if row["SHOP"] == one["SHOP"]])


def test_over_a_table_old_values_are_taken_away(tmp_path: Path, spark: SparkSession) -> None:
    names = ("EVERY", "COUNTS", "SAME", "NOT_SAME", "SPREAD", "PIECES")
    selected = ", ".join(f"{AGGREGATES[name][0]} AS {name}" for name in names)
    source = SOURCE.replace("CREATE STREAM", "CREATE TABLE").replace("BIGINT KEY", "BIGINT PRIMARY KEY")
    sql = f"CREATE TABLE found AS SELECT shop, {selected} FROM sales GROUP BY shop;"
    # One after the other, each row is there twice at most: as it was, and as it became.
    first, second = sales(12, 3), sales(6, 4)
    with Pipeline(tmp_path, source + sql) as made:
        for part in (first, second):
            made.put("sales", part)
            made.run(spark, "found")
        left = {row["ID"]: row for row in first} | {row["ID"]: row for row in second}
        for found in made.table("FOUND"):
            rows = [row for row in left.values() if row["SHOP"] == found["SHOP"]]
            counted = {name: (found[name], expected(rows, name)) for name in names if name != "EVERY"}
            assert {name: pair for name, pair in counted.items() if not same(*pair)} == {}
            assert sorted(map(str, found["EVERY"])) == sorted(str(row["ITEM"]) for row in rows)


def test_a_list_that_became_empty_fills_again(tmp_path: Path, spark: SparkSession) -> None:
    source = SOURCE.replace("CREATE STREAM", "CREATE TABLE").replace("BIGINT KEY", "BIGINT PRIMARY KEY")
    with Pipeline(
        tmp_path, source + "CREATE TABLE found AS SELECT shop, COLLECT_LIST(item) AS l FROM sales GROUP BY shop;"
    ) as made:
        for shop in ("a", "b", "a"):
            made.put("sales", [{"ID": 1, "SHOP": shop, "ITEM": "pen", "PRICE": None, "PARTS": None, "$time": 0}])
            made.run(spark, "found")
        assert {found["SHOP"]: found["L"] for found in made.table("FOUND")} == {"a": ["pen"], "b": []}
