"""GROUP BY."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.log.base import ARRIVAL, TIME, TOMBSTONE
from headrace.process.aggregates import Decomposed, decompose, kept_in_python, order_of, wants_order
from headrace.process.expressions import lower_expression
from headrace.process.lower.changes import SIGN, signed_changes
from headrace.process.lower.parts import Parts
from headrace.process.lower.python_aggregate import lower_python_aggregate, lower_python_parts
from headrace.process.lower.rows import LATE_ROW, PLACE, Rows, column
from headrace.process.lower.window import (
    CLOSES,
    NO_CLOCK,
    Clock,
    expand_windows,
    forget_closed_windows,
    is_late,
    window_columns,
    window_end,
    without_known_windows,
)
from headrace.sql.plan import Aggregate, Named
from headrace.sql.source import Window


def lower_aggregate_node(
    node: Aggregate, rows: Rows, final: bool = False, floor: DataFrame | None = None, clock: Clock = NO_CLOCK
) -> Rows:
    """One row per group that changed, with `$time` the largest event time of the group's rows. With `final`, one row
    per window, once it is closed. `floor` is `Inputs.floor`'s."""
    if node.over == "table":
        rows = signed_changes(node, rows)
    frame = _admitted(node, rows, final, floor, clock)
    sign = column(SIGN) if node.over == "table" else None
    if kept_in_python(node.aggregates, sign is not None):
        return lower_python_aggregate(node, frame, sign, final, clock)
    if sign is not None and wants_order(node.aggregates):
        groups = [lower_expression(key.expression) for key in node.keys]
        frame = frame.repartition(*groups).sortWithinPartitions(column(ARRIVAL), column(PLACE))
    decomposed = [decompose(named, order_of(frame), sign) for named in node.aggregates]
    grouped = _grouped(node, frame, decomposed)
    if final and node.window is not None:
        grouped = _closed_by_now(grouped, node.window, clock)
    return _results(node, grouped, decomposed, clock)


def lower_parts(node: Aggregate, rows: Rows) -> Parts:
    """The groups of a range of a stream's rows, with what is kept of their aggregates."""
    frame = _admitted(node, rows)
    if kept_in_python(node.aggregates, over_table=False):
        return lower_python_parts(node, frame)
    decomposed = [decompose(named, order_of(frame)) for named in node.aggregates]
    kept = _grouped(node, frame, decomposed)
    merges = [
        part.merge(column(name)).alias(name)
        for place, one in enumerate(decomposed)
        for number, part in enumerate(one.parts)
        for name in [part_name(place, number)]
    ]
    groups = [column(key_name(place)) for place in range(len(node.keys))] + _closes(node)

    def merge(several: DataFrame) -> DataFrame:
        found = several.groupBy(*groups).agg(*merges, F.max(column(TIME)).alias(TIME))
        return found.select(*(_narrowed(field).alias(field.name) for field in kept.schema.fields))

    return Parts(kept, merge, lambda whole: _results(node, whole, decomposed, NO_CLOCK))


def _narrowed(field: T.StructField) -> Column:
    """A sum of decimals has more digits than they have, and a sum of sums more again."""
    value = column(field.name)
    return value.cast(field.dataType) if isinstance(field.dataType, T.DecimalType) else value


def _admitted(
    node: Aggregate, rows: Rows, final: bool = False, floor: DataFrame | None = None, clock: Clock = NO_CLOCK
) -> DataFrame:
    """The rows that are grouped, each once for every window it is in."""
    frame = groupable(node, rows).frame
    if node.window is None:
        return frame
    admitted = expand_windows(frame, node.window).filter(~is_late(node.window))
    if final:
        admitted = without_known_windows(admitted, node.window, clock)
    return forget_closed_windows(admitted, node.window, clock, final, floor)


def _grouped(node: Aggregate, frame: DataFrame, decomposed: Sequence[Decomposed]) -> DataFrame:
    """Only what is grouped and aggregated; the keys under names no column of the input can have."""
    keys = [lower_expression(key.expression).alias(key_name(place)) for place, key in enumerate(node.keys)]
    parts = [
        part.aggregate().alias(part_name(place, number))
        for place, one in enumerate(decomposed)
        for number, part in enumerate(one.parts)
    ]
    return frame.groupBy(*keys, *_closes(node)).agg(*parts, F.max(column(TIME)).alias(TIME))


def _closes(node: Aggregate) -> list[Column]:
    return [column(CLOSES)] if node.window is not None else []


def _results(node: Aggregate, grouped: DataFrame, decomposed: Sequence[Decomposed], clock: Clock) -> Rows:
    bounds = _bounds(node.window, clock) if node.window is not None else []
    return Rows(
        grouped.select(
            *(column(key_name(place)).alias(key.name) for place, key in enumerate(node.keys)),
            *bounds,
            *results(node.aggregates, decomposed),
            column(TIME),
            F.lit(False).alias(TOMBSTONE),
        ),
        # A group that HAVING no longer admits has to leave the table.
        changelog=True,
    )


def _closed_by_now(grouped: DataFrame, window: Window, clock: Clock) -> DataFrame:
    """Over a range of offsets: windows that the last row's time has closed. A stream's watermark sees to it."""
    if grouped.isStreaming:
        return grouped
    last = (grouped if clock.times is None else clock.times).agg(F.max(column(TIME)).alias("$last"))
    closed = window_end(window, clock) + F.lit(window.grace_ms) <= column("$last")
    return grouped.crossJoin(F.broadcast(last)).filter(closed).drop(column("$last"))


def groupable(node: Aggregate, rows: Rows) -> Rows:
    """The rows that take part."""
    return Rows(rows.frame.filter(takes_part(node, rows)))


def takes_part(node: Aggregate, rows: Rows) -> Column:
    """No tombstones, no null in a key. The late ledger is made of the same ones. What came too late for a join below is
    no row of it."""
    conditions = [lower_expression(key.expression).isNotNull() for key in node.keys]
    if rows.late:
        conditions.append(column(LATE_ROW).isNull())
    if rows.tombstones:
        conditions.append(~column(TOMBSTONE))
    return reduce(Column.__and__, conditions, F.lit(True))


def results(aggregates: tuple[Named, ...], decomposed: Sequence[Decomposed], session: bool = False) -> list[Column]:
    """The aggregates' values out of columns with their merged parts."""
    found = []
    for place, (named, one) in enumerate(zip(aggregates, decomposed, strict=True)):
        merged = [column(part_name(place, number)) for number in range(len(one.parts))]
        result = (one.in_session or one.result) if session else one.result
        found.append(result(*merged).alias(named.name))
    return found


def _bounds(window: Window, clock: Clock) -> list[Column]:
    """Once for expressions, once for the key that the row is stored under."""
    end = window_end(window, clock)
    start = end - F.lit(window.size_ms)
    return window_columns(start, end)


def key_name(place: int) -> str:
    return f"$key{place}"


def part_name(place: int, number: int) -> str:
    return f"$part{place}_{number}"
