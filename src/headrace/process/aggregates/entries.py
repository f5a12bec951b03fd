"""Aggregates that keep values: the first, the last, the largest, all of them up to a bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.process.aggregates.base import Aggregated, Decomposed, Partial
from headrace.process.expressions import lower_expression
from headrace.process.functions.aggregates import lower_in_python
from headrace.process.operators import merged
from headrace.process.spark_types import spark_type
from headrace.sql.functions.aggregates import MOST_COLLECTED
from headrace.types import BIGINT, DataType


def lower_by_offset(kind: Literal["first", "last"]) -> Callable[[Aggregated], Decomposed | None]:
    """The earliest or the latest value, in order of arrival; null is passed over unless the last argument says not."""

    def lower(of: Aggregated) -> Decomposed | None:
        given = [of.literal(place) for place in range(1, len(of.call.arguments))]
        if any(not isinstance(argument, bool) for argument in given):
            return _several_by_offset(kind == "last", of)
        value = of.value()
        placed = F.struct(*of.order, value.alias("value"))
        entry = placed if given == [False] else F.when(value.isNotNull(), placed)
        choose = F.min_by if kind == "first" else F.max_by

        def again(kept: Column) -> Column:
            order = F.struct(kept.getField("$arrival"), kept.getField("$place"))
            return choose(kept, F.when(kept.isNotNull(), order))

        native = choose(entry, F.when(entry.isNotNull(), F.struct(*of.order)))
        return Decomposed((Partial(kind, entry, native, again),), lambda found: found.getField("value"))

    return lower


def _several_by_offset(latest: bool, of: Aggregated) -> Decomposed | None:
    """The first or last n, as they arrived; nulls count only if the last argument says so."""
    count, *ignore = [of.literal(place) for place in range(1, len(of.call.arguments))]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return None
    nulls = ignore == [False]
    kind = f"{'latest' if latest else 'earliest'}:{count}"
    return _entries(of, kind, _values, None if nulls else of.value().isNotNull(), F.array())


def lower_collect(of: Aggregated) -> Decomposed:
    if of.sign is None:
        return _entries(of, f"earliest:{MOST_COLLECTED}", _values)
    sign = [("count", of.sign.cast("long"), BIGINT)]
    return _entries(of, "net:0", lambda kept: F.slice(_values(kept), 1, MOST_COLLECTED), more=sign)


def lower_collect_set(of: Aggregated) -> Decomposed:
    return _entries(of, f"distinct:{MOST_COLLECTED}", _values)


def lower_top(distinct: bool) -> Callable[[Aggregated], Decomposed | None]:
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


def lower_histogram(of: Aggregated) -> Decomposed:
    """The counts of the texts that came first. More are kept than are shown, because a batch by itself does not know
    which did."""
    one = [("count", of.signed(F.lit(1).cast("long")), BIGINT)]

    def result(entries: Column) -> Column:
        shown = F.slice(F.coalesce(entries, F.array()), 1, MOST_COLLECTED)
        return F.map_from_entries(F.transform(shown, lambda e: F.struct(e.getField("value"), e.getField("count"))))

    return _entries(of, f"counts:{10 * MOST_COLLECTED}", result, of.value().isNotNull(), more=one)


def lower_attribute(of: Aggregated) -> Decomposed:
    """The value that all rows have: two different ones are enough to know that there is none, unless one may go."""

    def result(entries: Column) -> Column:
        return F.when(F.size(entries) == 1, entries.getItem(0).getField("value"))

    if of.sign is None:
        return _entries(of, "distinct:2", result)
    return _entries(of, f"counts:{10 * MOST_COLLECTED}", result, more=[("count", of.sign.cast("long"), BIGINT)])


def keep_all_rows(of: Aggregated) -> Decomposed:
    """Every row's arguments, in order of arrival, given to the function's Python implementation. Right, but what is
    kept grows with the rows."""
    arguments = [lower_expression(argument).alias(f"a{place}") for place, argument in enumerate(of.call.arguments)]
    sign = (F.lit(1) if of.sign is None else of.sign).cast("int").alias("sign")
    entry = F.struct(*of.order, sign, *(arguments or [F.lit(0).alias("a0")]))
    part = Partial("list", F.array(entry), F.collect_list(entry), lambda kept: F.flatten(F.collect_list(kept)))
    return Decomposed((part,), lambda entries: lower_in_python(of.call, _sorted(entries)))


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
    again = partial(merged, type_=type_, kind=kind)
    aggregate = Partial(kind, value.cast(type_), again(value.cast(type_)), again)
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
