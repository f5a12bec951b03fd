"""Functions over arrays and maps."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.process.comparable import comparable, has_map
from headrace.process.functions.arguments import Arguments, Lowering
from headrace.process.functions.failing import elements_fail, fails_with, may_fail
from headrace.process.spark_types import spark_type
from headrace.process.texts import text_of
from headrace.sql.expressions import Lambda
from headrace.types import Array, BigInt, Boolean, Date, Decimal, Double, Integer, Map, Varchar

# Elements whose text does not depend on more than the value.
PLAIN = (Boolean, Integer, BigInt, Double, Decimal, Varchar, Date)


def _contains(of: Arguments) -> Column:
    """A null may be contained, and no array contains nothing. Without a lambda over what is looked for: that may need
    Python."""
    values, wanted = comparable(of[0], of.type(0)), comparable(of[1], of.type(1))
    has_null = F.exists(values, lambda element: element.isNull())
    found = F.when(wanted.isNull(), has_null).otherwise(F.array_contains(values, wanted))
    return F.coalesce(found, F.lit(False))


def _distinct(of: Arguments) -> Column | None:
    return None if has_map(of.type(0)) else F.array_distinct(of[0])


def _join(of: Arguments) -> Column | None:
    array_type = of.type(0)
    assert isinstance(array_type, Array)
    if not isinstance(array_type.element, PLAIN):
        return None
    texts = F.transform(of[0], lambda element: text_of(element, array_type.element))
    delimiter = F.coalesce(of[1], F.lit("")) if len(of) == 2 else F.lit(",")
    return F.call_function("array_join", texts, delimiter, F.lit("null"))


def _sort(of: Arguments) -> Column | None:
    if len(of) == 1:
        return F.array_sort(of[0])
    direction = of.literal(1)
    if not isinstance(direction, str) or direction.upper() not in ("ASC", "ASCENDING", "DESC", "DESCENDING"):
        return None
    return F.array_sort(of[0]) if direction.upper().startswith("A") else F.sort_array(of[0], asc=False)


def _slice(of: Arguments) -> Column:
    values, size = of[0], F.array_size(of[0])
    first, last = F.coalesce(of[1], F.lit(1)), F.coalesce(of[2], size)
    inside = (first > 0) & (first <= last + 1) & (last <= size)
    # Spark computes both sides where one is enough, and refuses a start of 0.
    return F.when(inside, F.slice(values, F.greatest(first, F.lit(1)), F.greatest(last - first + 1, F.lit(0))))


def _transform(of: Arguments) -> Column:
    if isinstance(of.type(0), Map):
        keys, values = of.function(1), of.function(2)
        changed = F.transform(
            F.map_entries(of[0]),
            lambda entry: F.struct(
                keys(entry.getField("key"), entry.getField("value")).alias("key"),
                values(entry.getField("key"), entry.getField("value")).alias("value"),
            ),
        )
        # A map has no null key: such an entry makes the whole null, as it makes Python's result no map of the log.
        whole = F.when(~F.exists(changed, lambda entry: entry.getField("key").isNull()), F.map_from_entries(changed))
        return _unless_one_fails(of, whole)
    return _unless_one_fails(of, F.transform(of[0], of.function(1)))


def _filter(of: Arguments) -> Column:
    keep = of.function(1)
    return _unless_one_fails(of, F.map_filter(of[0], keep) if isinstance(of.type(0), Map) else F.filter(of[0], keep))


def _unless_one_fails(of: Arguments, result: Column) -> Column:
    fails = elements_fail(of.call, of.scope, of.lower)
    return result if fails is None else F.when(~fails, result)


def _reduce(of: Arguments) -> Column:
    """Over nothing, or null, the initial value; a null initial value stays null. Beside the value goes whether
    computing it has failed."""
    combine, function, type_ = of.function(2), of.call.arguments[2], spark_type(of.result)
    assert isinstance(function, Lambda)
    initial = of[1].cast(type_)
    of_map = isinstance(of.type(0), Map)

    def step(so_far: Column, part: Column) -> Column:
        parts = (part.getField("key"), part.getField("value")) if of_map else (part,)
        given = (so_far.getField("value"), *parts)
        failed = fails_with(function, given, of.scope, of.lower) if may_fail(function) else F.lit(False)
        return F.struct(
            combine(*given).cast(type_).alias("value"), (so_far.getField("failed") | failed).alias("failed")
        )

    start = F.struct(initial.alias("value"), F.lit(False).alias("failed"))
    parts = F.map_entries(of[0]) if of_map else of[0]
    reduced = F.aggregate(
        parts, start, step, lambda end: F.when(~end.getField("failed"), end.getField("value")).cast(type_)
    )
    return F.when(of[1].isNotNull(), F.when(of[0].isNotNull(), reduced).otherwise(initial))


LOWERINGS: dict[str, Lowering] = {
    "ARRAY_CONTAINS": _contains,
    "ARRAY_LENGTH": lambda of: F.array_size(of[0]),
    "ARRAY_DISTINCT": _distinct,
    "ARRAY_MAX": lambda of: F.array_max(of[0]),
    "ARRAY_MIN": lambda of: F.array_min(of[0]),
    "ARRAY_JOIN": _join,
    "ARRAY_SORT": _sort,
    "SLICE": _slice,
    "MAP_KEYS": lambda of: F.map_keys(of[0]),
    "MAP_VALUES": lambda of: F.map_values(of[0]),
    "TRANSFORM": _transform,
    "FILTER": _filter,
    "REDUCE": _reduce,
}
