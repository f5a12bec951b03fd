"""Aggregate functions as Spark's. Whatever way the input is cut into batches, the result is the same, except for the
last digits of sums of DOUBLE, where the order of addition shows."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.errors import UsageError
from headrace.process.comparable import comparable
from headrace.process.expressions import lower_expression
from headrace.process.spark_types import spark_type
from headrace.sql.expressions import Call, Expression
from headrace.sql.plan import Named
from headrace.types import BigInt, DataType, Decimal, Integer

# 2^12 hashes: up to 4,096 different values are counted exactly, more within about 1.6 %
# (docs/decisions/count-distinct.md).
SKETCH_LOG_SIZE = 12


def lower_aggregate(named: Named) -> Column:
    call = named.expression
    if not isinstance(call, Call) or call.name not in AGGREGATES:
        raise UsageError(f"`{getattr(call, 'name', call)}` is not an aggregate that Spark can run")
    assert call.type is not None
    return AGGREGATES[call.name](call.arguments).cast(spark_type(call.type))


def _argument(arguments: tuple[Expression, ...]) -> tuple[Column, DataType]:
    (argument,) = arguments
    assert argument.type is not None
    return lower_expression(argument), argument.type


def _count(arguments: tuple[Expression, ...]) -> Column:
    return F.count(lower_expression(arguments[0]) if arguments else F.lit(1))


def _count_distinct(arguments: tuple[Expression, ...]) -> Column:
    """A theta sketch: the 2^12 smallest hashes, which depend only on which values there were. A hash of 64 bits makes
    any type a number; two values sharing one is less likely than a disk lying."""
    value, type_ = _argument(arguments)
    hashed = F.when(value.isNotNull(), F.xxhash64(comparable(value, type_)))
    return F.theta_sketch_estimate(F.theta_sketch_agg(hashed, F.lit(SKETCH_LOG_SIZE)))


def _sum(arguments: tuple[Expression, ...]) -> Column:
    """Of nothing 0, as in KSQL. Integers wrap."""
    value, type_ = _argument(arguments)
    return F.coalesce(F.sum(value), F.lit(0).cast(spark_type(type_)))


def _average(arguments: tuple[Expression, ...]) -> Column:
    """Integers are summed exactly. A BIGINT's sum may need more than 64 bits, so its halves are summed apart."""
    value, type_ = _argument(arguments)
    match type_:
        case Integer():
            total = F.sum(value.cast("long")).cast("double")
        case BigInt():
            high = F.sum(F.shiftright(value, 32)).cast("double")
            total = high * F.lit(float(2**32)) + F.sum(value.bitwiseAND(F.lit(2**32 - 1))).cast("double")
        case Decimal():
            total = F.sum(value).cast("double")
        case _:
            return F.avg(value)
    return F.when(F.count(value) > 0, total / F.count(value))


def _plain(aggregate: Callable[[Column], Column]) -> Callable[[tuple[Expression, ...]], Column]:
    return lambda arguments: aggregate(_argument(arguments)[0])


AGGREGATES: dict[str, Callable[[tuple[Expression, ...]], Column]] = {
    "COUNT": _count,
    "COUNT_DISTINCT": _count_distinct,
    "SUM": _sum,
    "AVG": _average,
    "MIN": _plain(F.min),
    "MAX": _plain(F.max),
}
