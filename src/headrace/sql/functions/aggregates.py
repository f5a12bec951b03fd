"""Aggregates, each as steps: begin, add a row, merge two states, take a row away, give the result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

from headrace.sql.functions import sketches
from headrace.sql.functions.arrays import hashable
from headrace.sql.functions.function import Steps, aggregate
from headrace.sql.numeric import minus, plus
from headrace.types import BYTES


def _plus(left: Any, right: Any) -> Any:
    return right if left is None else left if right is None else plus(left, right)


# COUNT

COUNT = Steps(
    init=lambda: 0,
    add=lambda state, *arguments: state + 1,
    undo=lambda state, *arguments: state - 1,
    merge=lambda left, right: left + right,
    result=lambda state: state,
)

# COUNT_DISTINCT: the different values

_DISTINCT = Steps(
    init=frozenset,
    add=lambda state, value: state | {hashable(value)},
    merge=lambda left, right: left | right,
    result=len,
)

# SUM: None before the first value, whose kind of number is not known yet

_SUM = Steps(
    init=lambda: None,
    add=_plus,
    undo=lambda state, value: minus(0 if state is None else state, value),
    merge=_plus,
    result=lambda state: 0 if state is None else state,
)


def _total(values: list[Any]) -> Any:
    return reduce(plus, (value for value in values if value is not None), type(next(iter(values), 0) or 0)(0))


_SUM_LIST = Steps(
    init=lambda: None,
    add=lambda state, values: _plus(state, _total(values)),
    undo=lambda state, values: minus(0 if state is None else state, _total(values)),
    merge=_plus,
    result=lambda state: 0 if state is None else state,
)

# AVG: sum and count

_AVERAGE = Steps(
    init=lambda: (0, 0),
    add=lambda state, value: (plus(state[0], value), state[1] + 1),
    undo=lambda state, value: (minus(state[0], value), state[1] - 1),
    merge=lambda left, right: (plus(left[0], right[0]), left[1] + right[1]),
    result=lambda state: float(state[0]) / state[1] if state[1] else 0.0,
)


def _extreme(choose: Callable[[Any, Any], Any]) -> Steps:
    def either(left: Any, right: Any) -> Any:
        return right if left is None else left if right is None else choose(left, right)

    return Steps(init=lambda: None, add=either, merge=either, result=lambda state: state)


# STDDEV_SAMP: count, mean and the sum of squared differences from it, which stays exact where sums of squares do not

Moments = tuple[int, float, float]


def _add_moment(state: Moments, value: Any) -> Moments:
    count, mean, squares = state
    difference = float(value) - mean
    mean += difference / (count + 1)
    return count + 1, mean, squares + difference * (float(value) - mean)


def _undo_moment(state: Moments, value: Any) -> Moments:
    count, mean, squares = state
    if count <= 1:
        return 0, 0.0, 0.0
    before = (count * mean - float(value)) / (count - 1)
    return count - 1, before, max(squares - (float(value) - mean) * (float(value) - before), 0.0)


def _merge_moments(left: Moments, right: Moments) -> Moments:
    count = left[0] + right[0]
    if not count:
        return 0, 0.0, 0.0
    difference = right[1] - left[1]
    mean = left[1] + difference * right[0] / count
    return count, mean, left[2] + right[2] + difference**2 * left[0] * right[0] / count


_DEVIATION = Steps(
    init=lambda: (0, 0.0, 0.0),
    add=_add_moment,
    undo=_undo_moment,
    merge=_merge_moments,
    result=lambda state: math.sqrt(state[2] / (state[0] - 1)) if state[0] > 1 else 0.0,
)

# CORRELATION: count, sums, sums of squares and of products

Sums = tuple[float, ...]


def _products(x: Any, y: Any, sign: int) -> Sums:
    x, y = float(x), float(y)
    return tuple(sign * part for part in (1, x, y, x * x, y * y, x * y))


def _add_sums(left: Sums, right: Sums) -> Sums:
    return tuple(a + b for a, b in zip(left, right, strict=True))


def _correlation(state: Sums) -> float:
    count, x, y, xx, yy, xy = state
    spread = (count * xx - x * x) * (count * yy - y * y)
    return (count * xy - x * y) / math.sqrt(spread) if spread > 0 else math.nan


_CORRELATION = Steps(
    init=lambda: (0.0,) * 6,
    add=lambda state, x, y: state if y is None else _add_sums(state, _products(x, y, 1)),
    undo=lambda state, x, y: state if y is None else _add_sums(state, _products(x, y, -1)),
    merge=_add_sums,
    result=_correlation,
)

# HISTOGRAM: how often each text

MOST_COLLECTED = 1000
"""ksqlDB's limit, of COLLECT_LIST and COLLECT_SET too: whoever keeps what they collect stops here."""


def _count_text(state: dict[str, int], text: str, by: int = 1) -> dict[str, int]:
    if text not in state and (by < 0 or len(state) >= MOST_COLLECTED):
        return state
    counted = {**state, text: state.get(text, 0) + by}
    return {key: count for key, count in counted.items() if count > 0}


def _merge_counts(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    for text, count in right.items():
        left = _count_text(left, text, count)
    return left


_HISTOGRAM = Steps(
    init=dict,
    add=_count_text,
    undo=lambda state, text: _count_text(state, text, -1),
    merge=_merge_counts,
    result=lambda state: state,
)

# ATTR: the value all rows have in common, else null. Values by what makes them equal, with their counts.


def _tally(state: tuple[Any, ...], value: Any, by: int) -> tuple[Any, ...]:
    counts = {hashable(known): (known, count) for known, count in state}
    key = hashable(value)
    counts[key] = (value, counts.get(key, (value, 0))[1] + by)
    return tuple(pair for pair in counts.values() if pair[1] > 0)


def _merge_tallies(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    for value, count in right:
        left = _tally(left, value, count)
    return left


_ATTRIBUTE = Steps(
    init=tuple,
    add=lambda state, value: _tally(state, value, 1),
    undo=lambda state, value: _tally(state, value, -1),
    merge=_merge_tallies,
    result=lambda state: state[0][0] if len(state) == 1 else None,
    nulls=True,
)


FUNCTIONS = (
    aggregate(
        "COUNT",
        ("() -> BIGINT", "(T) -> BIGINT"),
        COUNT,
        "How many rows, or how many where the argument is not null.",
        "COUNT(*)",
    ),
    replace(
        aggregate("COUNT_DISTINCT", "(T) -> BIGINT", _DISTINCT, "How many different values.", "COUNT_DISTINCT(userid)"),
        # A layer of a Lambda view keeps the sketch, which it asks for by the type.
        prepare=lambda types, result: sketches.HASHES if result == BYTES else _DISTINCT,
    ),
    aggregate(
        "SUM",
        "(N) -> N",
        _SUM,
        "The sum, of the argument's type; 0 of nothing. A sum of INTEGER has 32 bits and wraps, as in ksqlDB: where it "
        "may be larger, take `SUM(CAST(amount AS BIGINT))`.",
        "SUM(amount)",
    ),
    aggregate(
        "SUM_LIST", "(ARRAY<N>) -> N", _SUM_LIST, "The sum of all elements of all arrays.", "SUM_LIST(ARRAY[amount])"
    ),
    aggregate("AVG", "(N) -> DOUBLE", _AVERAGE, "The mean; 0 of nothing.", "AVG(amount)"),
    aggregate("MIN", "(C) -> C", _extreme(min), "The smallest.", "MIN(amount)"),
    aggregate("MAX", "(C) -> C", _extreme(max), "The largest.", "MAX(amount)"),
    aggregate(
        "STDDEV_SAMP",
        "(DOUBLE) -> DOUBLE",
        _DEVIATION,
        "The standard deviation of a sample; 0 of a single value.",
        "STDDEV_SAMP(amount)",
    ),
    aggregate("STDDEV_SAMPLE", "(DOUBLE) -> DOUBLE", _DEVIATION, "The same as STDDEV_SAMP.", "STDDEV_SAMPLE(amount)"),
    aggregate(
        "CORRELATION",
        "(DOUBLE, DOUBLE) -> DOUBLE",
        _CORRELATION,
        "Pearson's correlation of two columns, where neither is null; NaN if one does not vary.",
        "CORRELATION(amount, LEN(product))",
    ),
    aggregate(
        "HISTOGRAM",
        "(VARCHAR) -> MAP<VARCHAR, BIGINT>",
        _HISTOGRAM,
        "How often each value; at most 1,000 different ones.",
        "HISTOGRAM(product)",
    ),
    aggregate("ATTR", "(T) -> T", _ATTRIBUTE, "The value all rows have, or null if they differ.", "ATTR(product)"),
)
