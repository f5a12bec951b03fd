"""Shapes that real projects have, through plan, deploy, diff and roll back: a database's changes as Debezium sends
them, a chain of tables over them, and an aggregate in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.views.change import Plan
from tests.views.live import Live, live

pytestmark = pytest.mark.spark

PRODUCTS = """
CREATE STREAM envelopes (id INT KEY, before STRUCT<name VARCHAR, price INT>, after STRUCT<name VARCHAR, price INT>,
  op VARCHAR) WITH (KAFKA_TOPIC='products', PARTITIONS=2);
CREATE TABLE products AS
  SELECT id, LATEST_BY_OFFSET(after->name) AS name, LATEST_BY_OFFSET(after->price) AS price
  FROM envelopes GROUP BY id HAVING LATEST_BY_OFFSET(op) <> 'd';
CREATE TABLE by_name AS SELECT name, COUNT(*) AS n, SUM(price) AS total FROM products GROUP BY name;
CREATE TABLE dear AS SELECT name, total FROM by_name WHERE total > 10;
CREATE TABLE swings AS SELECT id, swing(after->price) AS swing FROM envelopes WHERE op <> 'd' GROUP BY id;
"""
SWING = """
from headrace import function


@function
class Swing:
    def init(self):
        return []

    def add(self, state, price: int):
        return [*state, price]

    def merge(self, left, right):
        return left + right

    def result(self, state) -> int:
        return max(state) - min(state)
"""
FILE = "functions/swing.py"


def envelope(op: str, id_: int, before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    return {"id": id_, "before": before, "after": after, "op": op}


def product(name: str, price: int) -> dict[str, Any]:
    return {"name": name, "price": price}


CHANGES = [
    envelope("r", 1, None, product("tea", 5)),
    envelope("c", 2, None, product("tea", 8)),
    envelope("c", 3, None, product("milk", 2)),
    envelope("u", 1, product("tea", 5), product("tea", 7)),
    envelope("u", 3, product("milk", 2), product("cream", 4)),
    envelope("d", 2, product("tea", 8), None),
    envelope("c", 4, None, product("cream", 9)),
]
TABLES = ("PRODUCTS", "BY_NAME", "DEAR", "SWINGS")


def verdicts(plan: Plan) -> dict[str, str]:
    return {change.name: change.verdict for change in plan.pending}


def test_a_databases_changes_a_chain_and_a_python_aggregate_are_changed_and_changed_back(
    tmp_path: Path, spark: SparkSession
) -> None:
    with live(tmp_path, spark, PRODUCTS, functions={FILE: SWING}) as project:
        project.send("products", *CHANGES)
        project.eventually("SELECT * FROM products;", [[1, "tea", 7], [3, "cream", 4], [4, "cream", 9]])
        project.eventually("SELECT * FROM dear;", [["cream", 13]])
        project.eventually("SELECT * FROM swings;", [[1, 2], [2, 0], [3, 2], [4, 0]])
        # Nobody counts what is not there any more; a group that became empty stays.
        project.eventually("SELECT name, n FROM by_name WHERE n > 0;", [["tea", 1], ["cream", 2]])
        change_both(project)
        go_back(project)
        assert [one.stage for one in project.services.catalog.deployments()][-1] == "rolled back"


def change_both(project: Live) -> None:
    """The statement at the beginning of the chain, and the function, in one deployment."""
    deployments = project.services.deployments
    sql = PRODUCTS.replace("LATEST_BY_OFFSET(after->price)", "2 * LATEST_BY_OFFSET(after->price)")
    project.write(sql, {FILE: SWING.replace("max(state) - min(state)", "min(state)")})
    plan = deployments.plan(project.files)
    assert verdicts(plan) == dict.fromkeys(TABLES, "rebuilds")
    assert [(one.name, one.verdict, one.used_by) for one in plan.functions] == [("SWING", "changed", ("SWINGS",))]
    reasons = {change.name: change.reason for change in plan.pending}
    assert reasons["SWINGS"] == "`swing` is another function now"
    assert reasons["DEAR"] == "it reads `by_name`, which is rebuilt"

    deployment = project.reaches(project.deploy(), "waiting")
    found = {one["view"]: one for one in deployment.comparisons}
    assert (found["products"]["changed"], found["dear"]["changed"], found["dear"]["only_new"]) == (3, 1, 1)
    samples = {s["key"]["id"]: (s["old"]["swing"], s["new"]["swing"]) for s in found["swings"]["samples"]}
    # The lowest price of the third is also by how much it rose.
    assert (found["swings"]["same"], samples) == (1, {1: (2, 5), 2: (0, 8), 4: (0, 9)})
    assert sorted(project.rows("SELECT * FROM dear;")) == [["cream", 13]]

    deployments.approve(deployment.id)
    project.reaches(deployment, "switched")
    assert sorted(project.rows("SELECT * FROM dear;")) == [["cream", 26], ["tea", 14]]
    assert not deployments.plan(project.files).pending


def go_back(project: Live) -> None:
    """With what came in between: both versions have counted it, each in its own way."""
    project.send("products", envelope("u", 1, product("tea", 7), product("tea", 20)))
    project.eventually("SELECT * FROM dear;", [["cream", 26], ["tea", 40]])
    project.services.deployments.rollback("SWINGS")
    assert [project.serving(name) for name in TABLES] == [1, 1, 1, 1]
    project.eventually("SELECT * FROM dear;", [["cream", 13], ["tea", 20]])
    project.eventually("SELECT * FROM swings;", [[1, 15], [2, 0], [3, 2], [4, 0]])
    assert verdicts(project.services.deployments.plan(project.files)) == dict.fromkeys(TABLES, "serves again")
