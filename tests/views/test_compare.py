"""Of which columns the last digits do not count, and how few they are."""

from __future__ import annotations

import math

import pytest

from headrace.sql.api import Draft, parse, plan_query, source_from
from headrace.sql.plan import PersistentQuery
from headrace.sql.statements import CreateAsSelect, CreateSource
from headrace.views.compare import differences, same, summed_columns

ORDERS = "CREATE STREAM orders (customer VARCHAR KEY, amount DOUBLE, n INT, at DOUBLE) WITH (KAFKA_TOPIC='orders');"
TOTALS = """CREATE TABLE totals AS SELECT customer, SUM(amount) AS total, AVG(n) AS mean, MAX(at) AS newest,
  SUM(n) AS n, ROUND(SUM(amount), 2) AS rounded, COLLECT_LIST(amount) AS each, LATEST_BY_OFFSET(EXP(at)) AS grown,
  MIN(amount) + STDDEV_SAMP(amount) AS apart FROM orders GROUP BY customer;"""
OVER = "CREATE TABLE over AS SELECT customer, total * 2 AS twice, newest, n, CAST(n AS DOUBLE) AS x FROM totals;"
JOINED = """CREATE TABLE joined AS SELECT t.customer AS customer, t.total AS total, o.x AS x
  FROM totals t JOIN over o ON t.customer = o.customer;"""
PLAIN = "CREATE STREAM plain AS SELECT customer, amount * 2 AS amount, EXP(at) AS grown FROM orders;"


def plans() -> dict[str, PersistentQuery]:
    draft, found = Draft(), {}
    for statement in parse("\n".join((ORDERS, TOTALS, OVER, JOINED, PLAIN))):
        if isinstance(statement, CreateSource):
            draft.add(source_from(statement, draft))
        else:
            assert isinstance(statement, CreateAsSelect)
            query = found[statement.name] = plan_query(statement, draft)
            draft.add(query.sink)
    return found


def test_the_last_digits_of_a_double_that_was_added_up_do_not_count() -> None:
    found = {name: sorted(summed_columns(query)) for name, query in plans().items()}
    # A table that is itself aggregated has columns that were added up; which, nobody knows further down.
    assert found == {
        "TOTALS": ["APART", "MEAN", "ROUNDED", "TOTAL"],
        "OVER": ["NEWEST", "TWICE"],
        "JOINED": ["TOTAL", "X"],
        "PLAIN": [],
    }


def test_computed_elsewhere_than_in_spark_a_function_may_differ_in_them_too() -> None:
    queries = plans()
    assert sorted(summed_columns(queries["PLAIN"], elsewhere=True)) == ["GROWN"]
    assert sorted(summed_columns(queries["TOTALS"], elsewhere=True)) == ["APART", "GROWN", "MEAN", "ROUNDED", "TOTAL"]
    row = {"AMOUNT": 1_700_000_000.0, "GROWN": math.e}
    assert differences(queries["PLAIN"], row, {"AMOUNT": 1_700_000_001.0, "GROWN": math.nextafter(math.e, 3)}) == [
        "AMOUNT"
    ]
    assert differences(queries["PLAIN"], row, {"AMOUNT": 1_700_000_000.0, "GROWN": math.e + 1e-9}) == ["GROWN"]


@pytest.mark.parametrize(
    ("one", "other", "summed", "expected"),
    [
        (0.1 + 0.2, 0.3, True, True),
        (0.1 + 0.2, 0.3, False, False),
        (5e9, 5e9 + 4, True, False),
        (3e-10, 9e-10, True, False),
        (math.nan, math.nan, False, True),
        (math.nan, math.nan, True, True),
        (math.nan, 0.0, True, False),
        (math.inf, math.inf, False, True),
        (math.inf, -math.inf, True, False),
        ([0.1 + 0.2], [0.3], True, True),
        ({"x": 0.1 + 0.2}, {"x": 0.3}, False, False),
        (1, True, True, False),
    ],
)
def test_how_few_digits_they_are(one: object, other: object, summed: bool, expected: bool) -> None:
    assert same(one, other, summed=summed) is expected
