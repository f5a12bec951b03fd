"""Aggregates that keep a sketch: approximate beyond a size, and mergeable."""

from __future__ import annotations

import decimal
from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.process.aggregates.base import Aggregated, Decomposed, Partial
from headrace.process.comparable import comparable
from headrace.process.texts import text_of
from headrace.sql.functions import sketches
from headrace.types import BYTES

# 2^12 hashes: up to 4,096 different values are counted exactly, more within about 1.6 %
# (docs/decisions/0004-count-distinct.md).
SKETCH_LOG_SIZE = sketches.HASHES_LOG_SIZE
MORE_ITEMS = 16


def lower_count_distinct(of: Aggregated) -> Decomposed:
    """A theta sketch: the 2^12 smallest hashes, which depend only on which values there were. A hash of 64 bits makes
    any type a number; two values sharing one is less likely than a disk lying. A session, which is short, keeps them
    all. Asked for as BYTES it is the sketch itself, for a layer of a Lambda view."""
    value = of.value()
    hashed = F.when(value.isNotNull(), F.xxhash64(comparable(value, of.type())))
    sketch = F.theta_sketch_agg(hashed, F.lit(SKETCH_LOG_SIZE))
    each = F.when(hashed.isNotNull(), F.array(hashed))
    return Decomposed(
        (Partial("set", each, sketch, lambda kept: F.theta_union_agg(kept, F.lit(SKETCH_LOG_SIZE))),),
        (lambda kept: kept) if of.call.type == BYTES else F.theta_sketch_estimate,
        lambda hashes: F.when(hashes.isNull(), 0).otherwise(F.size(hashes)),
    )


def lower_distinct_sketch(result: Callable[[Column], Column]) -> Callable[[Aggregated], Decomposed | None]:
    """Values by their text, as everywhere where such sketches are made."""

    def lower(of: Aggregated) -> Decomposed | None:
        sketch = F.hll_sketch_agg(text_of(of.value(), of.type()), F.lit(sketches.DISTINCT_LOG_SIZE))
        return _only_native(of, sketch, result, F.hll_union_agg)

    return lower


def lower_quantile_sketch(of: Aggregated) -> Decomposed | None:
    return _only_native(of, _quantiles(of), lambda sketch: sketch, _merge_quantiles)


def lower_quantile(of: Aggregated) -> Decomposed | None:
    fraction = of.literal(1)
    if not isinstance(fraction, int | float | decimal.Decimal) or not 0 <= fraction <= 1:
        return None

    def result(sketch: Column) -> Column:
        # Of nothing there is no quantile; to Spark that is an error, which would end the query.
        full = F.when(F.kll_sketch_get_n_double(sketch) > 0, sketch)
        return F.kll_sketch_get_quantile_double(full, F.lit(float(fraction)))

    return _only_native(of, _quantiles(of), result, _merge_quantiles)


def _quantiles(of: Aggregated) -> Column:
    return F.kll_sketch_agg_double(of.value(), F.lit(sketches.QUANTILE_SIZE))


def _merge_quantiles(kept: Column) -> Column:
    return F.kll_merge_agg_double(kept, F.lit(sketches.QUANTILE_SIZE))


def lower_top_k(of: Aggregated) -> Decomposed | None:
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


def _only_native(
    of: Aggregated, native: Column, result: Callable[[Column], Column], again: Callable[[Column], Column] | None = None
) -> Decomposed | None:
    """An aggregate that only Spark itself can keep, not a session."""
    return None if of.in_session else Decomposed((Partial("list", of.value(), native, again),), result)
