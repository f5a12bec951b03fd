"""Is a row that was computed again the same?"""

from __future__ import annotations

import decimal
import math
from collections.abc import Mapping
from typing import Any

from headrace.sql.expressions import Call, ColumnRef
from headrace.sql.plan import Aggregate, Filter, PersistentQuery, Project
from headrace.sql.walk import walk

EXACT_DISTINCT = 4096
"""Beyond it COUNT_DISTINCT is an estimate (docs/decisions/0004-count-distinct.md)."""
ESTIMATE = 0.06


def differences(query: PersistentQuery, served: Mapping[str, Any] | None, again: Mapping[str, Any] | None) -> list[str]:
    """The value columns that differ; all of them if one of both rows is not there."""
    names = [column.name for column in query.sink.value]
    if served is None or again is None:
        return [] if served is again else names
    estimated = estimated_columns(query)
    return [name for name in names if not same(served[name], again[name], name in estimated)]


def estimated_columns(query: PersistentQuery) -> frozenset[str]:
    """The sink's columns that a COUNT_DISTINCT is in."""
    below = query.root.input
    while isinstance(below, Filter | Project):
        below = below.input
    if not isinstance(below, Aggregate):
        return frozenset()
    counts = {
        named.name
        for named in below.aggregates
        if isinstance(named.expression, Call) and named.expression.name == "COUNT_DISTINCT"
    }
    return frozenset(
        column.name
        for column, named in zip(query.sink.value, query.root.value, strict=True)
        if any(isinstance(part, ColumnRef) and part.name in counts for part in walk(named.expression))
    )


def same(one: Any, other: Any, estimated: bool = False) -> bool:
    """Equal values. Of doubles the last digits depend on the order of addition, and do not count."""
    match one, other:
        case (None, _) | (_, None):
            return one is other
        case (list(), list()):
            return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
        case (dict(), dict()):
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        case (bool(), _) | (_, bool()):
            return one is other
        case (int() | float() | decimal.Decimal(), int() | float() | decimal.Decimal()):
            return _same_number(one, other, estimated)
        case _:
            return bool(one == other)


def _same_number(one: Any, other: Any, estimated: bool) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        first, second = float(one), float(other)
        return (math.isnan(first) and math.isnan(second)) or math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-9)
    if estimated and max(one, other) > EXACT_DISTINCT:
        return math.isclose(one, other, rel_tol=ESTIMATE)
    return bool(one == other)
