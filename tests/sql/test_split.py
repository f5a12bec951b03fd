"""Aggregates in parts: what two layers kept, merged, is what one would have had."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sql.api import Draft, parse, plan_query, source_from
from headrace.sql.expressions import Call, Cast, ColumnRef, Expression, Literal
from headrace.sql.functions import steps_of
from headrace.sql.layered import layered_query
from headrace.sql.plan import Aggregate
from headrace.sql.split import SPLITS, split_call
from headrace.sql.statements import CreateAsSelect, CreateSource
from headrace.types import DOUBLE

EVENTS = """CREATE STREAM events (k VARCHAR KEY, x INT, big BIGINT, d DOUBLE, s VARCHAR, xs ARRAY<INT>, b BYTES)
WITH (KAFKA_TOPIC='events', PARTITIONS=1);"""

CALLS = (
    "COUNT(*)", "COUNT(x)", "SUM(x)", "SUM(d)", "AVG(x)", "AVG(big)", "AVG(d)", "MIN(x)", "MAX(s)", "MIN(d)",
    "EARLIEST_BY_OFFSET(x)", "LATEST_BY_OFFSET(s)", "EARLIEST_BY_OFFSET(x, FALSE)", "LATEST_BY_OFFSET(x, FALSE)",
    "EARLIEST_BY_OFFSET(x, 3)", "LATEST_BY_OFFSET(x, 3)", "LATEST_BY_OFFSET(x, 2, FALSE)", "COLLECT_LIST(x)",
    "COLLECT_SET(s)", "TOPK(x, 3)", "TOPKDISTINCT(x, 2)", "TOPK(x, s, 2)", "ATTR(s)", "STDDEV_SAMP(d)",
    "STDDEV_SAMPLE(x)", "SUM_LIST(xs)", "COUNT_DISTINCT(s)", "APPROX_COUNT_DISTINCT(s)", "APPROX_QUANTILE(d, 0.5)",
    "APPROX_TOP_K(s, 2)",
)  # fmt: skip

ROWS = st.lists(
    st.fixed_dictionaries({
        "X": st.none() | st.integers(-9, 9),
        "BIG": st.none() | st.integers(-(2**62), 2**62),
        "D": st.none() | st.integers(-40, 40).map(lambda n: n / 4),
        "S": st.none() | st.sampled_from(["red", "green", "blue"]),
        "XS": st.lists(st.integers(-9, 9), max_size=3),
    }),
    min_size=1,
    max_size=12,
)  # fmt: skip


def call_of(text: str) -> Call:
    draft = Draft()
    [declared] = parse(EVENTS)
    assert isinstance(declared, CreateSource)
    draft.add(source_from(declared, draft))
    [statement] = parse(f"CREATE TABLE t AS SELECT k, {text} AS v FROM events GROUP BY k;")
    assert isinstance(statement, CreateAsSelect)
    query = plan_query(statement, draft)
    layered_query(query)
    aggregate = query.root.input
    assert isinstance(aggregate, Aggregate)
    [named] = aggregate.aggregates
    assert isinstance(named.expression, Call)
    return named.expression


def argument(expression: Expression, row: dict[str, Any]) -> Any:
    match expression:
        case Literal():
            return expression.value
        case ColumnRef():
            return row[expression.name]
        case Cast():
            value = argument(expression.operand, row)
            return float(value) if value is not None and expression.target == DOUBLE else value
        case _:
            raise AssertionError(expression)


def over(call: Call, rows: list[tuple[int, dict[str, Any]]]) -> Any:
    """By the function's own steps."""
    steps = steps_of(call)
    state = steps.init()
    for arrival, row in rows:
        values = [argument(one, row) for one in call.arguments]
        if steps.nulls or not values or values[0] is not None:
            state = steps.add(state, *((arrival,) if steps.ordered else ()), *values)
    return steps.result(state)


@pytest.mark.parametrize("text", CALLS)
@settings(max_examples=40, deadline=None)
@given(earlier=ROWS, later=ROWS)
def test_two_layers_are_one(text: str, earlier: list[dict[str, Any]], later: list[dict[str, Any]]) -> None:
    call = call_of(text)
    split = split_call(call)
    assert split is not None
    rows = list(enumerate(earlier + later))
    layers = [tuple(over(part, side) for part in split.parts) for side in (rows[: len(earlier)], rows[len(earlier) :])]
    merged = split.result(*split.merge(*layers))
    whole = over(call, rows)
    if isinstance(whole, float):
        assert math.isclose(merged, whole, rel_tol=1e-9, abs_tol=1e-9)
    elif not (merged is None and text.startswith("APPROX")):
        assert merged == whole


def test_every_merge_is_tried() -> None:
    tried = {text.partition("(")[0] for text in CALLS}
    sketches = {f"{kind}_SKETCH" for kind in ("DISTINCT", "QUANTILE", "TOP_K")}
    merges = {f"MERGE_{kind}" for kind in ("DISTINCT", "QUANTILES", "TOP_K")}
    assert tried | sketches | merges == set(SPLITS)
