"""Approximate aggregates: near enough, however the rows are divided, and merged as if they had not been."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.sql.functions import FUNCTIONS
from headrace.sql.functions.function import Steps
from tests.sql.catalog import value


def steps(name: str) -> Steps:
    found = FUNCTIONS[name].steps
    assert found is not None
    return found


def kept(name: str, rows: Sequence[tuple[Any, ...]]) -> Any:
    """The state after all rows, sent somewhere else in the middle."""
    one = steps(name)
    state = one.init()
    for number, row in enumerate(rows):
        state = one.add(state, *row)
        if number == len(rows) // 2:
            state = pickle.loads(pickle.dumps(state))
    return state


USERS = [(number % 20_000,) for number in range(30_000)]
AMOUNTS = [float((number * 7919) % 10_000) for number in range(10_000)]
PAGES = [f"/{min(number % 100, number % 7)}" for number in range(5_000)]


def test_distinct_values_are_counted_within_a_few_percent() -> None:
    count = steps("APPROX_COUNT_DISTINCT")
    assert count.result(kept("APPROX_COUNT_DISTINCT", USERS)) == pytest.approx(20_000, rel=0.05)
    assert count.result(count.init()) == 0
    halves = [kept("APPROX_COUNT_DISTINCT", part) for part in (USERS[:15_000], USERS[15_000:])]
    whole = count.result(kept("APPROX_COUNT_DISTINCT", USERS))
    assert count.result(count.merge(*halves)) == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.99, 1.0])
def test_a_quantile_has_about_its_rank(fraction: float) -> None:
    quantile = steps("APPROX_QUANTILE")
    state = kept("APPROX_QUANTILE", [(amount, fraction) for amount in AMOUNTS])
    assert quantile.result(state) == pytest.approx(fraction * 10_000, abs=300)
    halves = [kept("APPROX_QUANTILE", [(a, fraction) for a in part]) for part in (AMOUNTS[:5000], AMOUNTS[5000:])]
    assert quantile.result(quantile.merge(*halves)) == pytest.approx(fraction * 10_000, abs=300)


def test_of_nothing_or_beyond_the_ends_there_is_no_quantile() -> None:
    quantile = steps("APPROX_QUANTILE")
    assert quantile.result(quantile.init()) is None
    assert quantile.result(quantile.add(quantile.init(), 1.0, 1.5)) is None


def test_the_most_frequent_come_first_and_few_are_counted_exactly() -> None:
    top = steps("APPROX_TOP_K")
    exact = sorted(((PAGES.count(page), page) for page in set(PAGES)), key=lambda one: (-one[0], one[1]))[:3]
    assert top.result(kept("APPROX_TOP_K", [(page, 3) for page in PAGES])) == [
        {"ITEM": page, "COUNT": count} for count, page in exact
    ]
    assert top.result(top.init()) == []


@pytest.mark.parametrize(
    ("sketch", "merge", "estimate", "rows"),
    [
        ("DISTINCT_SKETCH", "MERGE_DISTINCT", "DISTINCT_ESTIMATE", USERS),
        ("QUANTILE_SKETCH", "MERGE_QUANTILES", "QUANTILE_ESTIMATE", [(amount,) for amount in AMOUNTS]),
        ("TOP_K_SKETCH", "MERGE_TOP_K", "TOP_K_ESTIMATE", [(page,) for page in PAGES]),
    ],
)
def test_sketches_are_merged_later_and_what_is_none_is_passed_over(
    sketch: str, merge: str, estimate: str, rows: list[tuple[Any, ...]]
) -> None:
    half = len(rows) // 2
    parts = [steps(sketch).result(kept(sketch, part)) for part in (rows[:half], rows[half:])]
    merged = steps(merge).result(kept(merge, [(parts[0],), (b"no sketch",), (parts[1],)]))
    asked = {"DISTINCT_ESTIMATE": (), "QUANTILE_ESTIMATE": (0.5,), "TOP_K_ESTIMATE": (1,)}[estimate]
    found = FUNCTIONS[estimate].evaluate(merged, *asked)
    whole = FUNCTIONS[estimate].evaluate(steps(sketch).result(kept(sketch, rows)), *asked)
    assert found == (whole if estimate == "TOP_K_ESTIMATE" else pytest.approx(whole, rel=0.05))
    assert value(f"{estimate}(TO_BYTES('none', 'utf8'){', 1' if asked else ''})") is None
