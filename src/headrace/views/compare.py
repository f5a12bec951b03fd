"""Is a row that was computed again the same?"""

from __future__ import annotations

import decimal
import math
from collections.abc import Mapping
from typing import Any

from headrace.sql.expressions import Call, ColumnRef, Expression
from headrace.sql.functions import function_of, is_aggregate
from headrace.sql.plan import (
    Aggregate,
    Filter,
    FlatMap,
    Named,
    PartitionBy,
    PersistentQuery,
    PlanNode,
    Project,
    Rename,
    Scan,
    node_inputs,
)
from headrace.sql.walk import walk
from headrace.types import Array, DataType, Double, Map, Struct

EXACT_DISTINCT = 4096
"""Beyond it COUNT_DISTINCT is an estimate (docs/decisions/0004-count-distinct.md)."""
ESTIMATE = 0.06
LAST_DIGITS = 1e-11
"""Of a sum of doubles, relative and absolute: a million additions in another order make about a hundredth of it."""
ADDING = frozenset({"SUM", "SUM_LIST", "AVG", "STDDEV_SAMP", "STDDEV_SAMPLE", "CORRELATION"})


def differences(query: PersistentQuery, served: Mapping[str, Any] | None, again: Mapping[str, Any] | None) -> list[str]:
    """The value columns that differ; all of them if one of both rows is not there."""
    names = [column.name for column in query.sink.value]
    if served is None or again is None:
        return [] if served is again else names
    estimated, summed = estimated_columns(query), summed_columns(query, elsewhere=True)
    return [name for name in names if not same(served[name], again[name], name in estimated, name in summed)]


def estimated_columns(query: PersistentQuery) -> frozenset[str]:
    """The sink's columns that a COUNT_DISTINCT is in. What is computed here is not Spark's sketch; two versions that
    Spark has computed have the same one, however batches were cut."""
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
        if _mentions(named.expression, counts)
    )


def summed_columns(query: PersistentQuery, elsewhere: bool = False) -> frozenset[str]:
    """The sink's columns whose last digits depend on the order of addition, and so on how batches were cut: those with
    doubles in them that an aggregate of doubles goes into, here or in a table that is read. If it was computed
    `elsewhere` than in Spark, also those with a function in them: EXP and its like are not the same everywhere."""
    below = _summed(query.root.input, elsewhere)
    return frozenset(
        column.name
        for column, named in zip(query.sink.value, query.root.value, strict=True)
        if has_doubles(named.expression.type) and _is_made_of(named.expression, below, elsewhere)
    )


def _summed(node: PlanNode, elsewhere: bool) -> frozenset[str]:
    """The same of a node's columns, whatever their type: a double may be made of it again."""
    if isinstance(node, Scan):
        columns = node.source.columns if node.source.per_batch else ()
        return frozenset(column.name for column in columns if has_doubles(column.type))
    below = frozenset(name for input_ in node_inputs(node) for name in _summed(input_, elsewhere))
    named: tuple[Named, ...] = ()
    match node:
        case Rename():
            pairs = zip(node.input.columns, node.names, strict=True)
            return frozenset(name for column, name in pairs if column.name in below)
        case Aggregate():
            named = (*node.keys, *node.aggregates)
        case Project():
            named = (*node.key, *node.value)
        case PartitionBy():
            named = node.key
        case FlatMap():
            named = node.functions
    made = frozenset(one.name for one in named if _is_made_of(one.expression, below, elsewhere))
    return made if isinstance(node, Aggregate | Project) else below | made


def _is_made_of(expression: Expression, below: frozenset[str], elsewhere: bool) -> bool:
    calls = [part for part in walk(expression) if isinstance(part, Call) and has_doubles(part.type)]
    return _mentions(expression, below) or any(_adds(call) or (elsewhere and not is_aggregate(call)) for call in calls)


def _mentions(expression: Expression, names: frozenset[str] | set[str]) -> bool:
    return any(isinstance(part, ColumnRef) and part.name in names for part in walk(expression))


def _adds(call: Call) -> bool:
    """What a Python aggregate does with doubles nobody knows."""
    function = function_of(call)
    return call.name in ADDING or (function is not None and function.kind == "aggregate" and bool(function.origin))


def has_doubles(type_: DataType | None) -> bool:
    match type_:
        case Double():
            return True
        case Array(element):
            return has_doubles(element)
        case Map(key, value):
            return has_doubles(key) or has_doubles(value)
        case Struct(fields):
            return any(has_doubles(inner) for _, inner in fields)
        case _:
            return False


def same(one: Any, other: Any, estimated: bool = False, summed: bool = False) -> bool:
    """Equal values. Of what was `summed` up the last digits depend on the order of addition, and do not count."""
    match one, other:
        case (None, _) | (_, None):
            return one is other
        case (list(), list()):
            return len(one) == len(other) and all(same(a, b, summed=summed) for a, b in zip(one, other, strict=True))
        case (dict(), dict()):
            return one.keys() == other.keys() and all(same(one[key], other[key], summed=summed) for key in one)
        case (bool(), _) | (_, bool()):
            return one is other
        case (int() | float() | decimal.Decimal(), int() | float() | decimal.Decimal()):
            return _same_number(one, other, estimated, summed)
        case _:
            return bool(one == other)


def _same_number(one: Any, other: Any, estimated: bool, summed: bool) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        first, second = float(one), float(other)
        if math.isnan(first) or math.isnan(second):
            return math.isnan(first) and math.isnan(second)
        close = summed and math.isclose(first, second, rel_tol=LAST_DIGITS, abs_tol=LAST_DIGITS)
        return close or bool(one == other)
    if estimated and max(one, other) > EXACT_DISTINCT:
        return math.isclose(one, other, rel_tol=ESTIMATE)
    return bool(one == other)
