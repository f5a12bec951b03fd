"""Every aggregate: its value over rows, whatever they are cut into, and within what its type holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from headrace.sql.expressions import Call
from headrace.sql.functions import FUNCTIONS, sketches
from headrace.sql.functions.finish import finish
from headrace.sql.functions.function import Steps
from headrace.types import BIGINT, DOUBLE, INTEGER, DataType
from headrace.types import Decimal as DecimalType

# Rows (several arguments as tuples), the value over them, and that over none.
AGGREGATES: dict[str, tuple[list[Any], Any, Any]] = {
    "COUNT": ([3, None, 1, 3], 3, 0),
    "COUNT_DISTINCT": ([3, None, 1, 3], 2, 0),
    "SUM": ([3, None, 1, 3], 7, 0),
    "SUM_LIST": ([[3, None], None, [1, 3], []], 7, 0),
    "AVG": ([3, None, 1, 3], 7 / 3, 0.0),
    "MIN": ([3, None, 1, 3], 1, None),
    "MAX": ([3, None, 1, 3], 3, None),
    "STDDEV_SAMP": ([2, None, 4, 6], 2.0, 0.0),
    "STDDEV_SAMPLE": ([2, None, 4, 6], 2.0, 0.0),
    "CORRELATION": ([(1, 2), (2, 4), (None, 1), (1, None), (3, 6)], 1.0, math.nan),
    "TOPK": ([(3, 2), (None, 2), (1, 2), (3, 2)], [3, 3], []),
    "TOPKDISTINCT": ([(3, 2), (None, 2), (1, 2), (3, 2)], [3, 1], []),
    "LATEST_BY_OFFSET": ([(3, 2), (1, 2), (None, 2), (2, 2)], [1, 2], None),
    "EARLIEST_BY_OFFSET": ([(None, False), (1, False)], None, None),
    "COLLECT_LIST": ([3, None, 1, 3], [3, None, 1, 3], []),
    "COLLECT_SET": ([3, None, 1, 3], [3, None, 1], []),
    "HISTOGRAM": (["a", None, "b", "a"], {"a": 2, "b": 1}, {}),
    "ATTR": (["a", "a"], "a", None),
}


def test_aggregates_over_lists() -> None:
    for name, (rows, expected, nothing) in AGGREGATES.items():
        assert FUNCTIONS[name].evaluate(rows) == expected, name
        assert repr(FUNCTIONS[name].evaluate([])) == repr(nothing), name
    sketched = {one.name for one in sketches.FUNCTIONS}  # tests/sql/test_sketches.py
    assert set(AGGREGATES) | sketched == {name for name in FUNCTIONS if FUNCTIONS[name].kind == "aggregate"}


def test_aggregates_do_not_depend_on_how_rows_are_cut() -> None:
    """Adding one by one, merging two halves, and undoing what was added too much give the same."""
    for name, (rows, expected, _) in AGGREGATES.items():
        steps = FUNCTIONS[name].steps
        assert steps is not None
        for cut in range(len(rows) + 1):
            halves = [_state(steps, list(enumerate(rows))[part]) for part in (slice(cut), slice(cut, None))]
            assert steps.result(steps.merge(*halves)) == pytest.approx(expected), (name, cut)
        if steps.undo is not None:
            state = _state(steps, list(enumerate([*rows, *rows])))
            for arrival, row in enumerate(rows):
                state = _apply(steps, steps.undo, state, arrival, row)
            assert steps.result(state) == pytest.approx(expected), name


def _state(steps: Steps, rows: list[tuple[int, Any]]) -> Any:
    state = steps.init()
    for arrival, row in rows:
        state = _apply(steps, steps.add, state, arrival, row)
    return state


def _apply(steps: Steps, step: Callable[..., Any], state: Any, arrival: int, row: Any) -> Any:
    arguments = row if isinstance(row, tuple) else (row,)
    if arguments[0] is None and not steps.nulls:
        return state
    return step(state, *((arrival,) if steps.ordered else ()), *arguments)


@pytest.mark.parametrize("name", ["SUM", "SUM_LIST", "AVG"])
def test_sums_of_decimals_keep_all_their_digits(name: str) -> None:
    """Python's own arithmetic stops at 28; a DECIMAL has 38. Whatever was added can be taken away again."""
    large, small = Decimal("1234567890123456789012345678901234.56"), Decimal("0.01")
    steps = FUNCTIONS[name].steps
    assert steps is not None
    assert steps.undo is not None
    values: list[Any] = [[large], [small]] if name == "SUM_LIST" else [large, small]
    one, other = (steps.add(steps.init(), value) for value in values)
    both = steps.merge(one, other)
    total = both[0] if name == "AVG" else both
    assert total == Decimal("1234567890123456789012345678901234.57")
    left = steps.undo(both, values[0])
    assert steps.result(left) == (0.01 if name == "AVG" else small)
    alone = steps.undo(steps.init(), values[0])
    assert (alone[0] if name == "AVG" else alone) == large.copy_negate()


def test_what_an_aggregate_hands_out_is_what_its_type_holds() -> None:
    def finished(type_: DataType, value: Any) -> Any:
        return finish(Call("SUM", (), type=type_), value)

    assert finished(INTEGER, 2**31) == -(2**31)
    assert finished(BIGINT, 2**64 + 5) == 5
    assert finished(BIGINT, None) is None
    assert finished(DecimalType(4, 2), Decimal("99.99")) == Decimal("99.99")
    assert finished(DecimalType(4, 2), Decimal("100.00")) is None
    assert finished(DecimalType(4, 2), 0) == 0
    assert finished(DOUBLE, 1e308) == 1e308
