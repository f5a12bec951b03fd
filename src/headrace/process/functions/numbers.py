"""Functions over numbers, and those that choose among values."""

from __future__ import annotations

import math
from decimal import Decimal as NumberOf

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.process.functions.arguments import Arguments, Lowering
from headrace.process.spark_types import spark_type
from headrace.types import DataType, Decimal, Double

# Above this a double has no fraction.
WHOLE = float(2**52)
MOST_DIGITS = 38


def is_double(type_: DataType) -> bool:
    return isinstance(type_, Double)


def _round(of: Arguments) -> Column | None:
    value, type_ = of[0], of.type(0)
    if is_double(type_):
        # Half up is floor(x + 1/2); Spark's floor of a double is a BIGINT that saturates, as in Java.
        return F.floor(value + F.lit(0.5)).cast(spark_type(of.result)) if len(of) == 1 else None
    places = 0 if len(of) == 1 else of.literal(1)
    if not isinstance(places, int):
        return None
    scale, precision = (type_.scale, type_.precision) if isinstance(type_, Decimal) else (0, 0)
    if places >= scale:
        return value.cast(spark_type(of.result))
    if precision == MOST_DIGITS:
        return None
    # Spark rounds the middle away from zero, ksqlDB upwards. So a negative number is moved up by its last digit first:
    # -2.5 is rounded as -2.4 is, and -2.6 as -2.5, which is no other result than before.
    moved = value + F.lit(NumberOf(1).scaleb(-scale) if scale else 1)
    return F.when(value < 0, F.round(moved, places)).otherwise(F.round(value, places)).cast(spark_type(of.result))


def _truncate(of: Arguments) -> Column | None:
    value, type_ = of[0], of.type(0)
    if len(of) > 1:
        return None
    if isinstance(type_, Decimal):
        return F.when(value < 0, F.ceil(value)).otherwise(F.floor(value)).cast(spark_type(of.result))
    return value.cast(spark_type(of.result))


def _towards(name: str) -> Lowering:
    """Spark's CEIL and FLOOR of a double are a BIGINT; ours are a double, of any size."""

    def lower(of: Arguments) -> Column:
        value, type_ = of[0], of.type(0)
        moved = F.call_function(name, value).cast(spark_type(of.result))
        return F.when(F.abs(value) < WHOLE, moved).otherwise(value) if is_double(type_) else moved

    return lower


def _sign(of: Arguments) -> Column:
    value = of[0]
    positive = (value > 0) & ~F.isnan(value) if is_double(of.type(0)) else value > 0
    return F.when(positive, 1).when(value < 0, -1).when(value.isNotNull(), 0)


def natural_logarithm(value: Column) -> Column:
    """Spark's is null where Java's is not a number."""
    return (
        F.when(F.isnan(value) | (value < 0), F.lit(math.nan)).when(value == 0, F.lit(-math.inf)).otherwise(F.ln(value))
    )


def _log(of: Arguments) -> Column:
    if len(of) == 1:
        return natural_logarithm(of[0])
    base = of[0]
    quotient = divide_doubles(natural_logarithm(of[1]), natural_logarithm(base))
    return F.when(((base <= 0) | (base == 1)) & of[1].isNotNull(), F.lit(math.nan)).otherwise(quotient)


def divide_doubles(left: Column, right: Column) -> Column:
    """Division by zero is infinite or not a number, as in Java; Spark's is null. The power keeps the zero's sign."""
    return F.when(right == 0, left * F.pow(right, F.lit(-1.0))).otherwise(left / right)


def remainder_doubles(left: Column, right: Column) -> Column:
    return F.when((right == 0) & left.isNotNull(), F.lit(math.nan)).otherwise(left % right)


def _choose(name: str) -> Lowering:
    return lambda of: F.call_function(name, *of.columns) if len(of) > 1 else of[0]


def _nullif(of: Arguments) -> Column:
    return F.when(of[0] == of[1], F.lit(None)).otherwise(of[0])


LOWERINGS: dict[str, Lowering] = {
    "ABS": lambda of: F.abs(of[0]),
    "ROUND": _round,
    "TRUNC": _truncate,
    "CEIL": _towards("ceil"),
    "FLOOR": _towards("floor"),
    "SIGN": _sign,
    "SQRT": lambda of: F.sqrt(of[0]),
    "POWER": lambda of: F.pow(of[0], of[1]),
    "EXP": lambda of: F.exp(of[0]),
    "LN": lambda of: natural_logarithm(of[0]),
    "LOG": _log,
    "COALESCE": lambda of: F.coalesce(*of.columns),
    "IFNULL": lambda of: F.coalesce(*of.columns),
    "NULLIF": _nullif,
    "GREATEST": _choose("greatest"),
    "LEAST": _choose("least"),
    "AS_VALUE": lambda of: of[0],
}
