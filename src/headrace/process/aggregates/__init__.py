"""Aggregate functions taken apart: partial results that can be merged, and the value made of them.

The same parts are kept by Spark's own aggregates and, for sessions, by the Java operator. Whatever way the input is cut
into batches, the result is the same, except for the last digits of sums of DOUBLE, where the order of addition shows.
Where the order of the rows matters it is that of their arrival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import UsageError
from headrace.process.aggregates import entries, sketched, sums
from headrace.process.aggregates.base import Aggregated, Decomposed, Lowering, Order, order_of
from headrace.process.spark_types import spark_type
from headrace.sql.expressions import Call
from headrace.sql.functions import function_of
from headrace.sql.plan import Named

__all__ = ["Decomposed", "decompose", "kept_in_python", "order_of", "wants_order"]

AGGREGATES: dict[str, Lowering] = {
    "COUNT": sums.lower_count,
    "COUNT_DISTINCT": sketched.lower_count_distinct,
    "SUM": sums.lower_sum,
    "AVG": sums.lower_average,
    "MIN": sums.lower_extreme("min"),
    "MAX": sums.lower_extreme("max"),
    "EARLIEST_BY_OFFSET": entries.lower_by_offset("first"),
    "LATEST_BY_OFFSET": entries.lower_by_offset("last"),
    "COLLECT_LIST": entries.lower_collect,
    "COLLECT_SET": entries.lower_collect_set,
    "TOPK": entries.lower_top(distinct=False),
    "TOPKDISTINCT": entries.lower_top(distinct=True),
    "HISTOGRAM": entries.lower_histogram,
    "ATTR": entries.lower_attribute,
    "STDDEV_SAMP": sums.lower_deviation,
    "STDDEV_SAMPLE": sums.lower_deviation,
    "CORRELATION": sums.lower_correlation,
    "SUM_LIST": sums.lower_sum_list,
    "APPROX_COUNT_DISTINCT": sketched.lower_distinct_sketch(F.hll_sketch_estimate),
    "DISTINCT_SKETCH": sketched.lower_distinct_sketch(lambda sketch: sketch),
    "APPROX_QUANTILE": sketched.lower_quantile,
    "QUANTILE_SKETCH": sketched.lower_quantile_sketch,
    "APPROX_TOP_K": sketched.lower_top_k,
}

# Over a table: sums of what comes and what goes.
_INVERTIBLE: dict[str, Lowering] = {
    "COUNT": sums.lower_count,
    "SUM": sums.lower_sum,
    "AVG": sums.lower_average,
    "SUM_LIST": sums.lower_sum_list,
    "CORRELATION": sums.lower_correlation,
    "COLLECT_LIST": entries.lower_collect,
    "HISTOGRAM": entries.lower_histogram,
    "ATTR": entries.lower_attribute,
    "STDDEV_SAMP": sums.lower_deviation,
    "STDDEV_SAMPLE": sums.lower_deviation,
}


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
        found = entries.keep_all_rows(of)
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
