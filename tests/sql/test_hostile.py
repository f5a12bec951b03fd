"""Text that means harm, or nothing: an error that points at it, at once, and never a traceback."""

from __future__ import annotations

import time

import pytest

from headrace.errors import SqlError
from headrace.sql.api import parse, parse_expression, validate
from headrace.sql.walk import depth
from tests.sql.catalog import shop
from tests.sql.mutations import try_mutations


def test_mutated_statements_give_errors_that_point() -> None:
    assert try_mutations(2_000, seed=20261115) > 1_000


DEEP = 5_000
PATHOLOGICAL = {
    "brackets": "SELECT " + "(" * DEEP + "1",
    "closed brackets": "SELECT " + "(" * DEEP + "1" + ")" * DEEP + " FROM s",
    "minus": "SELECT " + "- " * DEEP + "a FROM s",
    "not": "SELECT " + "NOT " * DEEP + "a FROM s",
    "calls": "SELECT " + "f(" * DEEP,
    "arrays": "SELECT " + "ARRAY[" * DEEP,
    "cases": "SELECT " + "CASE WHEN " * DEEP,
    "casts": "SELECT " + "CAST(" * DEEP,
    "lambdas": "SELECT " + "x => " * DEEP,
    "structs": "SELECT " + "STRUCT(a := " * DEEP,
    "sums": "SELECT " + " + ".join(["1"] * DEEP) + " FROM s",
    "products": "SELECT " + " * ".join(["a"] * DEEP) + " FROM s",
    "fields": "SELECT a" + "->b" * DEEP + " FROM s",
    "subscripts": "SELECT a" + "[1]" * DEEP + " FROM s",
    "types": "CREATE STREAM s (a " + "ARRAY<" * DEEP,
    "struct types": "CREATE STREAM s (a " + "STRUCT<a " * DEEP,
    "alternating": "SELECT " + " OR ".join(["a AND (b"] * DEEP) + " FROM s",
    "between": "SELECT a BETWEEN " * DEEP,
    "subqueries": "SELECT a FROM s WHERE a IN (" * DEEP,
    "joins": "SELECT a FROM s" + " JOIN s ON a = a" * DEEP,
}


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_depth_has_a_limit(name: str) -> None:
    began = time.thread_time()
    with pytest.raises(SqlError) as caught:
        parse(PATHOLOGICAL[name])
    assert caught.value.line == 1
    assert time.thread_time() - began < 1


def test_what_is_within_the_limit_can_be_planned_and_evaluated() -> None:
    text = "SELECT " + "(" * 70 + "seconds" + " + 1)" * 70 + " AS x FROM pageviews;"
    [(_, meaning)] = validate(text, shop())
    assert meaning is not None


def test_a_deep_caller_gets_an_error_too() -> None:
    def dive(levels: int) -> None:
        if levels:
            dive(levels - 1)
        else:
            parse("SELECT " + "f(" * 70 + "1" + ")" * 70 + " FROM s;")

    with pytest.raises(SqlError, match="nested too deeply"):
        dive(900)


def test_many_statements_and_long_lists_take_linear_time() -> None:
    began = time.thread_time()
    assert len(parse("SHOW STREAMS;\n" * 5_000)) == 5_000
    assert depth(parse_expression(f"a IN ({', '.join(['1'] * 20_000)})")) == 2
    assert time.thread_time() - began < 5
