"""Aggregate functions taken apart: partial results that can be merged, and the value made of them.

The same parts are kept by Spark's own aggregates and, for sessions, by the Java operator. Whatever way the input is cut
into batches, the result is the same, except for the last digits of sums of DOUBLE, where the order of addition shows.
Where the order of the rows matters it is that of their arrival.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import UsageError
from headrace.process.comparable import comparable
from headrace.process.expressions import lower_expression
from headrace.process.functions.aggregates import lower_in_python
from headrace.process.lower.rows import column
from headrace.process.operators import merged
from headrace.process.spark_types import spark_type
from headrace.process.texts import text_of
from headrace.sql.expressions import Call
from headrace.sql.expressions import Literal as LiteralExpression
from headrace.sql.functions import function_of, sketches
from headrace.sql.plan import Named
from headrace.types import BIGINT, BYTES, BigInt, DataType, Decimal, Integer

# 2^12 hashes: up to 4,096 different values are counted exactly, more within about 1.6 %
# (docs/decisions/count-distinct.md).
SKETCH_LOG_SIZE = sketches.HASHES_LOG_SIZE
# ksqlDB's limit of COLLECT_LIST and COLLECT_SET.
MOST_COLLECTED = 1000
MORE_ITEMS = 16


@dataclass(frozen=True, slots=True)
class Partial:
    """What one row contributes (null: nothing) and how contributions are merged. `native` is Spark's aggregate where
    the kind alone does not say it."""

    kind: str
    """As `Partials` in Java has them."""
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
            case "set":
                return F.array_distinct(F.flatten(F.collect_list(self.value)))
            case _:
                return F.flatten(F.collect_list(self.value))


@dataclass(frozen=True, slots=True)
class Decomposed:
    parts: tuple[Partial, ...]
    result: Callable[..., Column]
    """The value, given the merged parts."""
    in_session: Callable[..., Column] | None = None
    """The same where parts were merged by their kind alone, if that makes a difference."""


@dataclass(frozen=True, slots=True)
class Order:
    """Which row came first: by arrival, and by place among those of one record. An arrival is a number, or on Kafka
    several (`Partials.compare` in Java)."""

    columns: tuple[Column, ...]
    arrival: T.DataType


@dataclass(frozen=True, slots=True)
class Aggregated:
    """An aggregate's call over one row. `order` are the columns that tell which row came first; `sign` is 1 for a row
    that comes and -1 for one that goes, over a table; None over a stream."""

    call: Call
    order: tuple[Column, ...]
    arrival_type: T.DataType
    sign: Column | None = None
    in_session: bool = False

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


def decompose(named: Named, order: Order, sign: Column | None = None, in_session: bool = False) -> Decomposed:
    call = named.expression
    if not isinstance(call, Call) or function_of(call) is None:
        raise UsageError(f"`{getattr(call, 'name', call)}` is not an aggregate that Spark can run")
    assert call.type is not None
    of = Aggregated(call, order.columns, order.arrival, sign, in_session)
    lowering = None if call.function is not None else (_INVERTIBLE if sign is not None else AGGREGATES).get(call.name)
    found = lowering(of) if lowering is not None else None
    if found is None or (isinstance(order.arrival, T.StructType) and any(":" in part.kind for part in found.parts)):
        # Spark cannot hand a batch with such lists to the sink on Kafka: all rows are kept there, and counted anew.
        found = _in_python(of)
    type_ = spark_type(call.type)
    of_session = found.in_session or found.result
    return Decomposed(
        found.parts, lambda *parts: found.result(*parts).cast(type_), lambda *parts: of_session(*parts).cast(type_)
    )


def kept_in_python(aggregates: Sequence[Named], over_table: bool) -> bool:
    """Whether an aggregate is written in Python, or is one that Spark lacks; over a table, one that is not a sum of
    changes and so must see them in their order."""
    native = _INVERTIBLE if over_table else AGGREGATES
    calls = [named.expression for named in aggregates if isinstance(named.expression, Call)]
    return any(call.function is not None or not _lowers(call, native) for call in calls)


def wants_order(aggregates: Sequence[Named]) -> bool:
    """Whether rows of a table must be added and taken away in their order."""
    return any(isinstance(named.expression, Call) and named.expression.name == "COLLECT_LIST" for named in aggregates)


def _lowers(call: Call, native: Mapping[str, Lowering]) -> bool:
    """Whether Spark can keep this one: some need their arguments written in the statement."""
    lowering = native.get(call.name)
    if lowering is None:
        return False
    order = (F.lit(0).cast("long").alias("$arrival"), F.lit(0).alias("$place"))
    return lowering(Aggregated(call, order, T.LongType())) is not None


def _count(of: Aggregated) -> Decomposed:
    one = of.signed(F.lit(1).cast("long"))
    counted = F.when(of.value().isNotNull(), one) if of.call.arguments else one
    return Decomposed((Partial("sum", counted),), lambda total: F.coalesce(total, F.lit(0)))


def _count_distinct(of: Aggregated) -> Decomposed:
    """A theta sketch: the 2^12 smallest hashes, which depend only on which values there were. A hash of 64 bits makes
    any type a number; two values sharing one is less likely than a disk lying. A session, which is short, keeps them
    all. Asked for as BYTES it is the sketch itself, for a layer of a Lambda view."""
    value = of.value()
    hashed = F.when(value.isNotNull(), F.xxhash64(comparable(value, of.type())))
    sketch = F.theta_sketch_agg(hashed, F.lit(SKETCH_LOG_SIZE))
    each = F.when(hashed.isNotNull(), F.array(hashed))
    return Decomposed(
        (Partial("set", each, sketch),),
        (lambda kept: kept) if of.call.type == BYTES else F.theta_sketch_estimate,
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
            return _several_by_offset(kind == "last", of)
        value = of.value()
        placed = F.struct(*of.order, value.alias("value"))
        entry = placed if given == [False] else F.when(value.isNotNull(), placed)
        native = (F.min_by if kind == "first" else F.max_by)(entry, F.when(entry.isNotNull(), F.struct(*of.order)))
        return Decomposed((Partial(kind, entry, native),), lambda found: found.getField("value"))

    return lower


def _collect(of: Aggregated) -> Decomposed:
    if of.sign is None:
        return _entries(of, f"earliest:{MOST_COLLECTED}", _values)
    sign = [("count", of.sign.cast("long"), BIGINT)]
    return _entries(of, "net:0", lambda kept: F.slice(_values(kept), 1, MOST_COLLECTED), more=sign)


def _collect_set(of: Aggregated) -> Decomposed:
    return _entries(of, f"distinct:{MOST_COLLECTED}", _values)


def _several_by_offset(latest: bool, of: Aggregated) -> Decomposed | None:
    """The first or last n, as they arrived; nulls count only if the last argument says so."""
    count, *ignore = [of.literal(place) for place in range(1, len(of.call.arguments))]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return None
    nulls = ignore == [False]
    kind = f"{'latest' if latest else 'earliest'}:{count}"
    return _entries(of, kind, _values, None if nulls else of.value().isNotNull(), F.array())


def _top(distinct: bool) -> Callable[[Aggregated], Decomposed | None]:
    """The largest, largest first; with further columns, structures of all of them."""

    def lower(of: Aggregated) -> Decomposed | None:
        count, others = of.literal(len(of.call.arguments) - 1), range(1, len(of.call.arguments) - 1)
        if not isinstance(count, int) or count < 1:
            return None
        more = [(f"col{place - 1}", of.value(place), of.type(place)) for place in others]

        def result(entries: Column) -> Column:
            def one(entry: Column) -> Column:
                value = entry.getField("value")
                rest = [entry.getField(name).alias(name) for name, _, _ in more]
                return F.struct(value.alias("sort_col"), *rest) if more else value

            return F.transform(F.coalesce(entries, F.array()), one)

        kind = f"top_distinct:{count}" if distinct else f"top:{count}"
        return _entries(of, kind, result, of.value().isNotNull(), more=more)

    return lower


def _histogram(of: Aggregated) -> Decomposed:
    """The counts of the texts that came first. More are kept than are shown, because a batch by itself does not know
    which did."""
    one = [("count", of.signed(F.lit(1).cast("long")), BIGINT)]

    def result(entries: Column) -> Column:
        shown = F.slice(F.coalesce(entries, F.array()), 1, MOST_COLLECTED)
        return F.map_from_entries(F.transform(shown, lambda e: F.struct(e.getField("value"), e.getField("count"))))

    return _entries(of, f"counts:{10 * MOST_COLLECTED}", result, of.value().isNotNull(), more=one)


def _attribute(of: Aggregated) -> Decomposed:
    """The value that all rows have: two different ones are enough to know that there is none, unless one may go."""

    def result(entries: Column) -> Column:
        return F.when(F.size(entries) == 1, entries.getItem(0).getField("value"))

    if of.sign is None:
        return _entries(of, "distinct:2", result)
    return _entries(of, f"counts:{10 * MOST_COLLECTED}", result, more=[("count", of.sign.cast("long"), BIGINT)])


def _deviation(of: Aggregated) -> Decomposed:
    """Over a table by sums, which can be taken away again; else by moments, which stay exact where sums do not."""
    value = of.value().cast("double")
    if of.sign is not None:
        sums = (F.when(value.isNotNull(), F.lit(1.0)), value, value * value)
        return Decomposed(tuple(Partial("sum", of.signed(one)) for one in sums), _spread_of_sums)
    parts = (F.lit(1.0).alias("count"), value.alias("mean"), F.lit(0.0).alias("squares"))
    type_ = T.StructType([T.StructField(name, T.DoubleType()) for name in ("count", "mean", "squares")])
    moments = F.when(value.isNotNull(), F.struct(*parts))

    def result(kept: Column) -> Column:
        count, squares = kept.getField("count"), kept.getField("squares")
        return F.when(count > 1, F.sqrt(squares / (count - 1))).otherwise(F.lit(0.0))

    return Decomposed((Partial("moments", moments, merged(moments, type_, "moments")),), result)


def _spread_of_sums(count: Column, total: Column, squares: Column) -> Column:
    spread = F.greatest(squares - total * total / count, F.lit(0.0))
    return F.when(count > 1, F.sqrt(spread / (count - 1))).otherwise(F.lit(0.0))


def _correlation(of: Aggregated) -> Decomposed:
    x, y = of.value().cast("double"), of.value(1).cast("double")
    both = x.isNotNull() & y.isNotNull()
    values = (F.lit(1.0), x, y, x * x, y * y, x * y)

    def result(n: Column, x: Column, y: Column, xx: Column, yy: Column, xy: Column) -> Column:
        spread = (n * xx - x * x) * (n * yy - y * y)
        found = F.when(spread > 0, (n * xy - x * y) / F.sqrt(spread)).otherwise(F.lit(float("nan")))
        return F.when(n > 0, found)

    return Decomposed(tuple(Partial("sum", of.signed(F.when(both, value))) for value in values), result)


def _sum_list(of: Aggregated) -> Decomposed | None:
    type_ = of.call.type
    assert type_ is not None
    wide = f"decimal(38,{type_.scale})" if isinstance(type_, Decimal) else spark_type(type_).simpleString()
    zero = F.lit(0).cast(wide)
    total = F.aggregate(of.value(), zero, lambda sum_, one: (sum_ + F.coalesce(one.cast(wide), zero)).cast(wide))
    return Decomposed((Partial("sum", of.signed(total)),), lambda found: F.coalesce(found, zero))


def _distinct_sketch(result: Callable[[Column], Column]) -> Callable[[Aggregated], Decomposed | None]:
    """Values by their text, as everywhere where such sketches are made."""

    def lower(of: Aggregated) -> Decomposed | None:
        sketch = F.hll_sketch_agg(text_of(of.value(), of.type()), F.lit(sketches.DISTINCT_LOG_SIZE))
        return _only_native(of, sketch, result)

    return lower


def _quantile_sketch(of: Aggregated) -> Decomposed | None:
    return _only_native(of, F.kll_sketch_agg_double(of.value(), F.lit(sketches.QUANTILE_SIZE)), lambda sketch: sketch)


def _quantile(of: Aggregated) -> Decomposed | None:
    fraction = of.literal(1)
    if not isinstance(fraction, int | float | decimal.Decimal) or not 0 <= fraction <= 1:
        return None

    def result(sketch: Column) -> Column:
        # Of nothing there is no quantile; to Spark that is an error, which would end the query.
        full = F.when(F.kll_sketch_get_n_double(sketch) > 0, sketch)
        return F.kll_sketch_get_quantile_double(full, F.lit(float(fraction)))

    return _only_native(of, F.kll_sketch_agg_double(of.value(), F.lit(sketches.QUANTILE_SIZE)), result)


def _top_k(of: Aggregated) -> Decomposed | None:
    count = of.literal(1)
    if not isinstance(count, int) or not 1 <= count <= sketches.MOST_ITEMS:
        return None
    # Some more are asked for: Spark counts nulls too, and of equals it gives any.
    most = min(count + MORE_ITEMS, sketches.MOST_ITEMS)
    found = F.call_function("approx_top_k", of.value(), F.lit(most), F.lit(sketches.MOST_ITEMS))

    def result(counted: Column) -> Column:
        items = F.filter(counted, lambda one: one.getField("item").isNotNull())
        ranked = F.transform(
            items, lambda one: F.struct((-one.getField("count")).alias("rank"), one.getField("item").alias("item"))
        )
        shown = F.transform(
            F.array_sort(ranked),
            lambda one: F.struct(one.getField("item").alias("ITEM"), (-one.getField("rank")).alias("COUNT")),
        )
        return F.coalesce(F.slice(shown, 1, count), F.array())

    return _only_native(of, found, result)


def _only_native(of: Aggregated, native: Column, result: Callable[[Column], Column]) -> Decomposed | None:
    """An aggregate that only Spark itself can keep, not a session."""
    return None if of.in_session else Decomposed((Partial("list", of.value(), native),), result)


def _entries(
    of: Aggregated,
    kind: str,
    result: Callable[[Column], Column],
    counts: Column | None = None,
    empty: Column | None = None,
    more: Sequence[tuple[str, Column, DataType]] = (),
) -> Decomposed:
    """A list of entries that is kept short (`Entries` in Java): arrival, place, value, and `more`. Only rows for which
    `counts` holds; `empty` is the value of none at all."""
    arrival, place = of.order
    fields = [
        (arrival.alias("$arrival"), of.arrival_type),
        (place.cast("int").alias("$place"), T.IntegerType()),
        (of.value().alias("value"), spark_type(of.type())),
        *((value.alias(name), spark_type(type_)) for name, value, type_ in more),
    ]
    names = ["$arrival", "$place", "value", *(name for name, _, _ in more)]
    entry = T.StructType([T.StructField(name, type_) for name, (_, type_) in zip(names, fields, strict=True)])
    type_ = T.ArrayType(entry)
    value = F.array(F.struct(*(column_ for column_, _ in fields)))
    value = value if counts is None else F.when(counts, value)
    aggregate = Partial(kind, value.cast(type_), merged(value.cast(type_), type_, kind))
    return Decomposed((aggregate,), result if empty is None else lambda entries: F.coalesce(result(entries), empty))


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


Lowering = Callable[[Aggregated], Decomposed | None]

AGGREGATES: dict[str, Lowering] = {
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
    "TOPK": _top(distinct=False),
    "TOPKDISTINCT": _top(distinct=True),
    "HISTOGRAM": _histogram,
    "ATTR": _attribute,
    "STDDEV_SAMP": _deviation,
    "STDDEV_SAMPLE": _deviation,
    "CORRELATION": _correlation,
    "SUM_LIST": _sum_list,
    "APPROX_COUNT_DISTINCT": _distinct_sketch(F.hll_sketch_estimate),
    "DISTINCT_SKETCH": _distinct_sketch(lambda sketch: sketch),
    "APPROX_QUANTILE": _quantile,
    "QUANTILE_SKETCH": _quantile_sketch,
    "APPROX_TOP_K": _top_k,
}

# Over a table: sums of what comes and what goes.
_INVERTIBLE: dict[str, Lowering] = {
    "COUNT": _count,
    "SUM": _sum,
    "AVG": _average,
    "SUM_LIST": _sum_list,
    "CORRELATION": _correlation,
    "COLLECT_LIST": _collect,
    "HISTOGRAM": _histogram,
    "ATTR": _attribute,
    "STDDEV_SAMP": _deviation,
    "STDDEV_SAMPLE": _deviation,
}


def order_of(frame: DataFrame) -> Order:
    place = column("$place") if "$place" in frame.columns else F.lit(0)
    return Order((column("$arrival").alias("$arrival"), place.alias("$place")), frame.schema["$arrival"].dataType)
