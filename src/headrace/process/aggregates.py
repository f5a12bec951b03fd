"""Aggregate functions taken apart: partial results that can be merged, and the value made of them.

The same parts are kept by Spark's own aggregates and, for sessions, by the Java operator. Whatever way the input is cut
into batches, the result is the same, except for the last digits of sums of DOUBLE, where the order of addition shows.
Where the order of the rows matters it is that of their arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.errors import UsageError
from headrace.process.comparable import comparable, has_map
from headrace.process.expressions import lower_expression
from headrace.process.functions.aggregates import lower_in_python
from headrace.process.lower.rows import column
from headrace.process.spark_types import spark_type
from headrace.sql.expressions import Call
from headrace.sql.expressions import Literal as LiteralExpression
from headrace.sql.functions import FUNCTIONS
from headrace.sql.plan import Named
from headrace.types import BigInt, DataType, Decimal, Integer

# 2^12 hashes: up to 4,096 different values are counted exactly, more within about 1.6 %
# (docs/decisions/count-distinct.md).
SKETCH_LOG_SIZE = 12
# ksqlDB's limit of COLLECT_LIST and COLLECT_SET.
MOST_COLLECTED = 1000

Kind = Literal["sum", "min", "max", "first", "last", "list", "set"]


@dataclass(frozen=True, slots=True)
class Partial:
    """What one row contributes (null: nothing) and how contributions are merged. `native` is Spark's aggregate where
    the kind alone does not say it."""

    kind: Kind
    value: Column
    native: Column | None = None

    def aggregate(self) -> Column:
        if self.native is not None:
            return self.native
        match self.kind:
            case "sum":
                return F.sum(self.value)
            case "min":
                return F.min(self.value)
            case "max":
                return F.max(self.value)
            case "first":
                return F.min(self.value)
            case "last":
                return F.max(self.value)
            case "list":
                return F.flatten(F.collect_list(self.value))
            case "set":
                return F.array_distinct(F.flatten(F.collect_list(self.value)))


@dataclass(frozen=True, slots=True)
class Decomposed:
    parts: tuple[Partial, ...]
    result: Callable[..., Column]
    """The value, given the merged parts."""
    in_session: Callable[..., Column] | None = None
    """The same where parts were merged by their kind alone, if that makes a difference."""


@dataclass(frozen=True, slots=True)
class Aggregated:
    """An aggregate's call over one row. `order` are the columns that tell which row came first; `sign` is 1 for a row
    that comes and -1 for one that goes, over a table; None over a stream."""

    call: Call
    order: tuple[Column, ...]
    sign: Column | None = None

    def value(self, place: int = 0) -> Column:
        return lower_expression(self.call.arguments[place])

    def type(self, place: int = 0) -> DataType:
        type_ = self.call.arguments[place].type
        assert type_ is not None
        return type_

    def literal(self, place: int) -> object:
        argument = self.call.arguments[place]
        return argument.value if isinstance(argument, LiteralExpression) else None

    def signed(self, value: Column) -> Column:
        return value if self.sign is None else value * self.sign.cast("int")


def decompose(named: Named, order: tuple[Column, ...], sign: Column | None = None) -> Decomposed:
    call = named.expression
    if not isinstance(call, Call) or call.name not in FUNCTIONS:
        raise UsageError(f"`{getattr(call, 'name', call)}` is not an aggregate that Spark can run")
    assert call.type is not None
    of = Aggregated(call, order, sign)
    lowering = _INVERTIBLE.get(call.name) if sign is not None else AGGREGATES.get(call.name)
    found = (lowering(of) if lowering is not None else None) or _in_python(of)
    type_ = spark_type(call.type)
    in_session = found.in_session or found.result
    return Decomposed(
        found.parts, lambda *parts: found.result(*parts).cast(type_), lambda *parts: in_session(*parts).cast(type_)
    )


def _count(of: Aggregated) -> Decomposed:
    one = of.signed(F.lit(1).cast("long"))
    counted = F.when(of.value().isNotNull(), one) if of.call.arguments else one
    return Decomposed((Partial("sum", counted),), lambda total: F.coalesce(total, F.lit(0)))


def _count_distinct(of: Aggregated) -> Decomposed:
    """A theta sketch: the 2^12 smallest hashes, which depend only on which values there were. A hash of 64 bits makes
    any type a number; two values sharing one is less likely than a disk lying. A session, which is short, keeps them
    all."""
    value = of.value()
    hashed = F.when(value.isNotNull(), F.xxhash64(comparable(value, of.type())))
    sketch = F.theta_sketch_agg(hashed, F.lit(SKETCH_LOG_SIZE))
    each = F.when(hashed.isNotNull(), F.array(hashed))
    return Decomposed(
        (Partial("set", each, sketch),),
        F.theta_sketch_estimate,
        lambda hashes: F.when(hashes.isNull(), 0).otherwise(F.size(hashes)),
    )


def _sum(of: Aggregated) -> Decomposed:
    """Of nothing 0, as in KSQL. Integers wrap."""
    type_ = of.type()
    value = of.value()
    if isinstance(type_, Decimal):
        value = value.cast(f"decimal(38,{type_.scale})")
    zero = F.lit(0).cast(spark_type(type_))
    return Decomposed((Partial("sum", of.signed(value)),), lambda total: F.coalesce(total, zero))


def _average(of: Aggregated) -> Decomposed:
    """Integers are summed exactly. A BIGINT's sum may need more than 64 bits, so its halves are summed apart."""
    value, type_ = of.value(), of.type()
    count = Partial("sum", F.when(value.isNotNull(), of.signed(F.lit(1).cast("long"))))
    if isinstance(type_, BigInt):
        high = Partial("sum", of.signed(F.shiftright(value, 32)))
        low = Partial("sum", of.signed(value.bitwiseAND(F.lit(2**32 - 1))))
        return Decomposed(
            (count, high, low),
            lambda n, a, b: _mean(a.cast("double") * F.lit(float(2**32)) + b.cast("double"), n),
        )
    if isinstance(type_, Integer):
        value = value.cast("long")
    if isinstance(type_, Decimal):
        value = value.cast(f"decimal(38,{type_.scale})")
    return Decomposed((count, Partial("sum", of.signed(value))), lambda n, total: _mean(total.cast("double"), n))


def _mean(total: Column, count: Column) -> Column:
    return F.when(count > 0, total / count)


def _extreme(kind: Literal["min", "max"]) -> Callable[[Aggregated], Decomposed]:
    return lambda of: Decomposed((Partial(kind, of.value()),), lambda best: best)


def _by_offset(kind: Literal["first", "last"]) -> Callable[[Aggregated], Decomposed | None]:
    """The earliest or the latest value, in order of arrival; null is passed over unless the last argument says not."""

    def lower(of: Aggregated) -> Decomposed | None:
        given = [of.literal(place) for place in range(1, len(of.call.arguments))]
        if any(not isinstance(argument, bool) for argument in given):
            return None
        value = of.value()
        placed = F.struct(*of.order, value.alias("value"))
        entry = placed if given == [False] else F.when(value.isNotNull(), placed)
        native = (F.min_by if kind == "first" else F.max_by)(entry, F.when(entry.isNotNull(), F.struct(*of.order)))
        return Decomposed((Partial(kind, entry, native),), lambda found: found.getField("value"))

    return lower


def _collect(of: Aggregated) -> Decomposed:
    return Decomposed((_listed(of),), lambda entries: F.slice(_values(entries), 1, MOST_COLLECTED))


def _collect_set(of: Aggregated) -> Decomposed | None:
    if has_map(of.type()):
        return None
    distinct = Decomposed((_listed(of),), lambda entries: F.array_distinct(_values(entries)))
    return Decomposed(distinct.parts, lambda entries: F.slice(distinct.result(entries), 1, MOST_COLLECTED))


def _listed(of: Aggregated) -> Partial:
    entry = F.struct(*of.order, of.value().alias("value"))
    return Partial("list", F.array(entry), F.collect_list(entry))


def _values(entries: Column) -> Column:
    """In order of arrival."""
    return F.transform(_sorted(entries), lambda entry: entry.getField("value"))


def _sorted(entries: Column) -> Column:
    """By arrival alone: what comes after it may be a map, which has no order."""

    def compare(one: Column, other: Column) -> Column:
        a, b = (F.struct(entry.getField("$arrival"), entry.getField("$place")) for entry in (one, other))
        return F.when(a < b, -1).when(a > b, 1).otherwise(0)

    return F.array_sort(entries, compare)


def _in_python(of: Aggregated) -> Decomposed:
    """Every row's arguments, in order of arrival, given to the function's Python implementation. Right, but what is
    kept grows with the rows."""
    arguments = [lower_expression(argument).alias(f"a{place}") for place, argument in enumerate(of.call.arguments)]
    sign = (F.lit(1) if of.sign is None else of.sign).cast("int").alias("sign")
    entry = F.struct(*of.order, sign, *(arguments or [F.lit(0).alias("a0")]))
    part = Partial("list", F.array(entry), F.collect_list(entry))
    return Decomposed((part,), lambda entries: lower_in_python(of.call, _sorted(entries)))


AGGREGATES: dict[str, Callable[[Aggregated], Decomposed | None]] = {
    "COUNT": _count,
    "COUNT_DISTINCT": _count_distinct,
    "SUM": _sum,
    "AVG": _average,
    "MIN": _extreme("min"),
    "MAX": _extreme("max"),
    "EARLIEST_BY_OFFSET": _by_offset("first"),
    "LATEST_BY_OFFSET": _by_offset("last"),
    "COLLECT_LIST": _collect,
    "COLLECT_SET": _collect_set,
}

# Over a table: sums of what comes and what goes.
_INVERTIBLE: dict[str, Callable[[Aggregated], Decomposed | None]] = {"COUNT": _count, "SUM": _sum, "AVG": _average}


def order_of(frame_columns: list[str]) -> tuple[Column, ...]:
    """Which row came first: by arrival, and by place among those of one record."""
    place = column("$place") if "$place" in frame_columns else F.lit(0)
    return (column("$arrival").alias("$arrival"), place.alias("$place"))
