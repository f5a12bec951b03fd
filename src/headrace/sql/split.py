"""Aggregates taken apart into others whose values can be kept in a table, merged by key, and made into the value.

What was computed over the earlier records of a group and what was computed over the later ones give, merged, what
would have been computed over all of them. Each entry of `SPLITS` says how: for Lambda views, whose batch layer has the
earlier records and whose speed layer has the later ones. Values are the evaluator's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal as Exact
from typing import Any

from headrace.sql.expressions import Call, Cast, Literal
from headrace.sql.functions import sketches
from headrace.sql.functions.aggregates import MOST_COLLECTED
from headrace.sql.functions.arrays import hashable
from headrace.sql.numeric import fit_decimal, plus, wrap_bigint, wrap_integer
from headrace.types import BIGINT, BYTES, DOUBLE, Array, BigInt, DataType, Decimal, Integer

WIDEST = 38

Merge = Callable[[Any, Any], Any]
"""Of the value over the earlier records and the one over the later, that over all."""


@dataclass(frozen=True, slots=True)
class Split:
    parts: tuple[Call, ...]
    merge: Merge
    """Of tuples with the parts."""
    result: Callable[..., Any]
    """The value, given the merged parts."""


def split_call(call: Call) -> Split | None:
    """None if the aggregate's values cannot be merged."""
    if call.function is not None:
        return None
    split = SPLITS.get(call.name)
    return split(call) if split is not None else None


def _whole(merge: Merge) -> Callable[[Call], Split]:
    """Its own value is all that is needed."""
    return lambda call: Split((call,), _each(merge), lambda value: value)


def _each(*merges: Merge) -> Merge:
    """Parts that do not need each other."""
    return lambda left, right: tuple(merge(a, b) for merge, a, b in zip(merges, left, right, strict=True))


def _plus(type_: DataType | None) -> Merge:
    """Integers wrap, as they do within a layer."""
    match type_:
        case Integer():
            return _either(lambda left, right: wrap_integer(left + right))
        case BigInt():
            return _either(lambda left, right: wrap_bigint(left + right))
        case _:
            return _either(plus)


def _either(both: Merge) -> Merge:
    """Null is nothing."""

    def merge(left: Any, right: Any) -> Any:
        return right if left is None else left if right is None else both(left, right)

    return merge


def _sum(call: Call) -> Split:
    type_ = call.type
    if not isinstance(type_, Decimal):
        return _whole(_plus(type_))(call)
    # A layer's sum may need more digits than the whole, if the other one is negative.
    part = replace(call, arguments=(_as(call.arguments[0], Decimal(WIDEST, type_.scale)),))
    part = replace(part, type=Decimal(WIDEST, type_.scale))
    return Split(
        (part,),
        _each(_plus(part.type)),
        lambda total: None if total is None else fit_decimal(total, type_.precision, type_.scale),
    )


def _as(argument: Any, type_: DataType) -> Any:
    return argument if argument.type == type_ else Cast(argument, type_, type=type_)


def _average(call: Call) -> Split:
    [argument] = call.arguments
    match argument.type:
        case Integer():
            wide: DataType = BIGINT
        case BigInt():
            wide = Decimal(WIDEST, 0)
        case Decimal(_, scale):
            wide = Decimal(WIDEST, scale)
        case _:
            wide = DOUBLE
    count = Call("COUNT", (argument,), type=BIGINT)
    total = Call("SUM", (_as(argument, wide),), type=wide)

    def result(counted: int, summed: Any) -> float:
        return float(summed) / counted if counted else 0.0

    return Split((count, total), _each(_plus(BIGINT), _plus(wide)), result)


def _extreme(largest: bool) -> Callable[[Call], Split]:
    def choose(left: Any, right: Any) -> Any:
        if _order(right) == _order(left):
            return left
        return right if (_order(right) > _order(left)) is largest else left

    return _whole(_either(choose))


def _order(value: Any) -> tuple[bool, Any]:
    """NaN is larger than all numbers, as in Spark."""
    if isinstance(value, float) and math.isnan(value):
        return True, 0.0
    return False, value


def _by_offset(latest: bool) -> Callable[[Call], Split | None]:
    """All records of the one layer came before those of the other."""

    def split(call: Call) -> Split | None:
        options = [argument.value for argument in call.arguments[1:] if isinstance(argument, Literal)]
        if len(options) < len(call.arguments) - 1:
            return None
        if options and not isinstance(options[0], bool):
            kept = slice(-options[0], None) if latest else slice(options[0])
            return _whole(_either(lambda left, right: (left + right)[kept]))(call)
        if options == [False]:
            return _whole(lambda left, right: right if latest else left)(call)
        return _whole(_either(lambda left, right: right if latest else left))(call)

    return split


def _first_ones(entries: list[Any]) -> list[Any]:
    found: dict[Any, Any] = {}
    for entry in entries:
        found.setdefault(hashable(entry), entry)
    return list(found.values())


_merge_sets = _either(lambda left, right: _first_ones(left + right)[:MOST_COLLECTED])


def _attribute(call: Call) -> Split:
    """Two different values are enough to know that they have none in common."""
    assert call.type is not None
    values = Call("COLLECT_SET", call.arguments, type=Array(call.type))
    return Split((values,), _each(_merge_sets), lambda found: found[0] if found and len(found) == 1 else None)


def _top(distinct: bool) -> Callable[[Call], Split | None]:
    def split(call: Call) -> Split | None:
        count = call.arguments[-1].value if isinstance(call.arguments[-1], Literal) else None
        if not isinstance(count, int):
            return None
        several = len(call.arguments) > 2

        def merge(left: list[Any], right: list[Any]) -> list[Any]:
            entries = _first_ones(left + right) if distinct else left + right
            rank = (lambda entry: _order(entry["sort_col"])) if several else _order
            return sorted(entries, key=rank, reverse=True)[:count]

        return _whole(_either(merge))(call)

    return split


def _deviation(call: Call) -> Split:
    """By moments: count, mean and deviation, whose square times one less than the count is the sum of squares."""
    count = Call("COUNT", call.arguments, type=BIGINT)
    mean = Call("AVG", call.arguments, type=DOUBLE)
    moments = Call("STDDEV_SAMP", call.arguments, type=DOUBLE)
    return Split((count, mean, moments), _merge_deviations, lambda counted, mean, deviation: deviation)


def _merge_deviations(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    if not left[0] or not right[0]:
        return left if left[0] else right
    count = left[0] + right[0]
    difference = right[1] - left[1]
    squares = [(parts[2] or 0.0) ** 2 * (parts[0] - 1) for parts in (left, right)]
    spread = squares[0] + squares[1] + difference**2 * left[0] * right[0] / count
    return count, left[1] + difference * right[0] / count, math.sqrt(spread / (count - 1)) if count > 1 else 0.0


def _sketched(
    kind: sketches.Kind, name: str, result: Callable[[Call], Callable[[Any], Any] | None]
) -> Callable[[Call], Split | None]:
    """By the sketch that the estimate is made from."""

    def split(call: Call) -> Split | None:
        estimate = result(call)
        if estimate is None:
            return None
        part = Call(name, call.arguments[:1], type=BYTES)
        return Split((part,), _each(_either(_merger(kind))), estimate)

    return split


def _merger(kind: sketches.Kind) -> Merge:
    return lambda left, right: sketches.merge_bytes(kind, left, right)


def _sketch(kind: sketches.Kind) -> Callable[[Call], Split]:
    return _whole(_either(_merger(kind)))


def _asked(estimate: Callable[[bytes, Any], Any]) -> Callable[[Call], Callable[[Any], Any] | None]:
    """What is asked of the sketch must be written in the statement."""

    def result(call: Call) -> Callable[[Any], Any] | None:
        asked = call.arguments[1]
        value = asked.value if isinstance(asked, Literal) else None
        if not isinstance(value, int | float | Exact):
            return None
        return lambda sketch: None if sketch is None else estimate(sketch, value)

    return result


def _of_sketch(estimate: Callable[[bytes], Any]) -> Callable[[Call], Callable[[Any], Any]]:
    return lambda call: lambda sketch: 0 if sketch is None else estimate(sketch)


def _count_distinct(call: Call) -> Split:
    """Asked for as BYTES, Spark gives the sketch that it counts with."""
    part = replace(call, type=BYTES)
    return Split((part,), _each(_either(sketches.merge_hashes)), _of_sketch(sketches.estimate_hashes)(call))


SPLITS: Mapping[str, Callable[[Call], Split | None]] = {
    "COUNT": _whole(_plus(BIGINT)),
    "SUM": _sum,
    "SUM_LIST": lambda call: _whole(_plus(call.type))(call),
    "AVG": _average,
    "MIN": _extreme(largest=False),
    "MAX": _extreme(largest=True),
    "EARLIEST_BY_OFFSET": _by_offset(latest=False),
    "LATEST_BY_OFFSET": _by_offset(latest=True),
    "COLLECT_LIST": _whole(_either(lambda left, right: (left + right)[:MOST_COLLECTED])),
    "COLLECT_SET": _whole(_merge_sets),
    "ATTR": _attribute,
    "TOPK": _top(distinct=False),
    "TOPKDISTINCT": _top(distinct=True),
    "STDDEV_SAMP": _deviation,
    "STDDEV_SAMPLE": _deviation,
    "COUNT_DISTINCT": _count_distinct,
    "APPROX_COUNT_DISTINCT": _sketched("distinct", "DISTINCT_SKETCH", _of_sketch(sketches.distinct_estimate)),
    "APPROX_QUANTILE": _sketched("quantiles", "QUANTILE_SKETCH", _asked(sketches.quantile_estimate)),
    "APPROX_TOP_K": _sketched("top", "TOP_K_SKETCH", _asked(sketches.top_estimate)),
    "DISTINCT_SKETCH": _sketch("distinct"),
    "QUANTILE_SKETCH": _sketch("quantiles"),
    "TOP_K_SKETCH": _sketch("top"),
    "MERGE_DISTINCT": _sketch("distinct"),
    "MERGE_QUANTILES": _sketch("quantiles"),
    "MERGE_TOP_K": _sketch("top"),
}
