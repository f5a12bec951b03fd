"""Aggregates over lists of values: the same meaning as their steps, at a list's speed where that matters.

A fold takes the argument tuples of many rows at once. What is not listed here goes through the function's own steps.
"""

from __future__ import annotations

import decimal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from headrace.sql.expressions import Call
from headrace.sql.functions import steps_of
from headrace.sql.functions.arrays import hashable
from headrace.sql.functions.finish import finish
from headrace.sql.functions.function import Steps
from headrace.sql.numeric import EXACT

Arguments: TypeAlias = tuple[Any, ...]


class Fold(ABC):
    """The state of one aggregate of one group. `growth` is what it holds beyond a fixed size, in values."""

    growth = 0

    @abstractmethod
    def add(self, rows: Sequence[Arguments], first: int) -> None:
        """`first` is the number of the first of these rows, in order of arrival."""

    @abstractmethod
    def result(self) -> Any: ...


class CountRows(Fold):
    def __init__(self) -> None:
        self._count = 0

    def add(self, rows: Sequence[Arguments], first: int) -> None:
        self._count += len(rows)

    def result(self) -> Any:
        return self._count


class CountValues(CountRows):
    def add(self, rows: Sequence[Arguments], first: int) -> None:
        self._count += sum(row[0] is not None for row in rows)


class Total(Fold):
    """Integers wrap, as they do in Spark, and decimals have an end: it is enough to see to it in the end."""

    def __init__(self, call: Call) -> None:
        self._total: Any = None
        self._call = call

    def add(self, rows: Sequence[Arguments], first: int) -> None:
        values = [row[0] for row in rows if row[0] is not None]
        if values:
            # Not from 0: a sum of decimals keeps their scale.
            self._total = _sum(values[1:], values[0]) if self._total is None else _sum(values, self._total)

    def result(self) -> Any:
        return finish(self._call, 0 if self._total is None else self._total)


def _sum(values: Sequence[Any], start: Any) -> Any:
    """Decimals with all their digits."""
    if not values or not isinstance(values[0], decimal.Decimal):
        return sum(values, start)
    with decimal.localcontext(EXACT):
        return sum(values, start)


class Mean(Fold):
    def __init__(self) -> None:
        self._total: Any = 0
        self._count = 0

    def add(self, rows: Sequence[Arguments], first: int) -> None:
        values = [row[0] for row in rows if row[0] is not None]
        self._total, self._count = _sum(values, self._total), self._count + len(values)

    def result(self) -> Any:
        return float(self._total) / self._count if self._count else 0.0


class Extreme(Fold):
    def __init__(self, choose: Callable[[Sequence[Any]], Any]) -> None:
        self._choose = choose
        self._best: Any = None

    def add(self, rows: Sequence[Arguments], first: int) -> None:
        values = [row[0] for row in rows if row[0] is not None]
        if self._best is not None:
            values.insert(0, self._best)
        if values:
            self._best = self._choose(values)

    def result(self) -> Any:
        return self._best


class Different(Fold):
    def __init__(self) -> None:
        self._seen: set[Any] = set()

    def add(self, rows: Sequence[Arguments], first: int) -> None:
        before = len(self._seen)
        self._seen.update(hashable(row[0]) for row in rows if row[0] is not None)
        self.growth = len(self._seen) - before

    def result(self) -> Any:
        return len(self._seen)


class Collected(Fold):
    """All values as they came; `once`: the first of equal ones."""

    def __init__(self, once: bool) -> None:
        self._once = once
        self._values: list[Any] = []
        self._seen: set[Any] = set()

    def add(self, rows: Sequence[Arguments], first: int) -> None:
        before = len(self._values)
        for (value,) in rows:
            if self._once:
                known = hashable(value)
                if known in self._seen:
                    continue
                self._seen.add(known)
            self._values.append(value)
        self.growth = len(self._values) - before

    def result(self) -> Any:
        return list(self._values)


class Stepped(Fold):
    """Any other: step by step."""

    def __init__(self, call: Call, steps: Steps) -> None:
        self._call, self._steps, self._state = call, steps, steps.init()

    def add(self, rows: Sequence[Arguments], first: int) -> None:
        steps, state = self._steps, self._state
        for number, row in enumerate(rows, first):
            if steps.nulls or not row or row[0] is not None:
                state = steps.add(state, *((number,) if steps.ordered else ()), *row)
        self._state = state

    def result(self) -> Any:
        return finish(self._call, self._steps.result(self._state))


_FAST: dict[str, Callable[[], Fold]] = {
    "AVG": Mean,
    "MIN": lambda: Extreme(min),
    "MAX": lambda: Extreme(max),
    "COUNT_DISTINCT": Different,
    "COLLECT_LIST": lambda: Collected(once=False),
    "COLLECT_SET": lambda: Collected(once=True),
}


def fold_of(call: Call) -> Callable[[], Fold]:
    """What makes the empty state of an aggregate."""
    if call.function is None and call.name == "SUM":
        return lambda: Total(call)
    fast = _FAST.get(call.name) if call.function is None else None
    if call.function is None and call.name == "COUNT":
        return CountValues if call.arguments else CountRows
    if fast is not None:
        return fast
    steps = steps_of(call)
    return lambda: Stepped(call, steps)
