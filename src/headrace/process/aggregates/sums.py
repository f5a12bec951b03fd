"""Aggregates that are sums, extremes, or made of a few of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.process.aggregates.base import Aggregated, Decomposed, Partial
from headrace.process.operators import merged
from headrace.process.spark_types import spark_type
from headrace.types import BigInt, Decimal, Integer


def lower_count(of: Aggregated) -> Decomposed:
    one = of.signed(F.lit(1).cast("long"))
    counted = F.when(of.value().isNotNull(), one) if of.call.arguments else one
    return Decomposed((Partial("sum", counted),), lambda total: F.coalesce(total, F.lit(0)))


def lower_sum(of: Aggregated) -> Decomposed:
    """Of nothing 0, as in KSQL. Integers wrap."""
    type_ = of.type()
    value = of.value()
    if isinstance(type_, Decimal):
        value = value.cast(f"decimal(38,{type_.scale})")
    zero = F.lit(0).cast(spark_type(type_))
    return Decomposed((Partial("sum", of.signed(value)),), lambda total: F.coalesce(total, zero))


def lower_average(of: Aggregated) -> Decomposed:
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
    """Of nothing 0, as in KSQL."""
    return F.when(count > 0, total / count).otherwise(F.lit(0.0))


def lower_extreme(kind: Literal["min", "max"]) -> Callable[[Aggregated], Decomposed]:
    return lambda of: Decomposed((Partial(kind, of.value()),), lambda best: best)


def lower_deviation(of: Aggregated) -> Decomposed:
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

    again = partial(merged, type_=type_, kind="moments")
    return Decomposed((Partial("moments", moments, again(moments), again),), result)


def _spread_of_sums(count: Column, total: Column, squares: Column) -> Column:
    spread = F.greatest(squares - total * total / count, F.lit(0.0))
    return F.when(count > 1, F.sqrt(spread / (count - 1))).otherwise(F.lit(0.0))


def lower_correlation(of: Aggregated) -> Decomposed:
    x, y = of.value().cast("double"), of.value(1).cast("double")
    both = x.isNotNull() & y.isNotNull()
    values = (F.lit(1.0), x, y, x * x, y * y, x * y)

    def result(n: Column, x: Column, y: Column, xx: Column, yy: Column, xy: Column) -> Column:
        spread = (n * xx - x * x) * (n * yy - y * y)
        return F.when(spread > 0, (n * xy - x * y) / F.sqrt(spread)).otherwise(F.lit(float("nan")))

    return Decomposed(tuple(Partial("sum", of.signed(F.when(both, value))) for value in values), result)


def lower_sum_list(of: Aggregated) -> Decomposed | None:
    type_ = of.call.type
    assert type_ is not None
    wide = f"decimal(38,{type_.scale})" if isinstance(type_, Decimal) else spark_type(type_).simpleString()
    zero = F.lit(0).cast(wide)
    total = F.aggregate(of.value(), zero, lambda sum_, one: (sum_ + F.coalesce(one.cast(wide), zero)).cast(wide))
    return Decomposed((Partial("sum", of.signed(total)),), lambda found: F.coalesce(found, zero))
