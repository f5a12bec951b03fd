"""GROUP BY."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.errors import UsageError
from headrace.log.base import TIME, TOMBSTONE, WINDOW_END, WINDOW_START
from headrace.process.aggregates import lower_aggregate
from headrace.process.expressions import lower_expression
from headrace.process.lower.rows import Rows, column
from headrace.process.lower.window import CLOSES, expand_windows, forget_closed_windows, is_late
from headrace.sql.plan import Aggregate
from headrace.sql.source import WINDOW_COLUMNS, Window


def lower_aggregate_node(node: Aggregate, rows: Rows) -> Rows:
    """One row per group that changed, with `$time` the largest event time of the group's rows."""
    rows = groupable(node, rows)
    frame = rows.frame
    if node.window is not None:
        admitted = expand_windows(frame, node.window).filter(~is_late(node.window))
        frame = forget_closed_windows(admitted, node.window)
    # Only what is grouped and aggregated; the keys under names no column of the input can have.
    keys = [lower_expression(key.expression).alias(_key_name(place)) for place, key in enumerate(node.keys)]
    window = [column(CLOSES)] if node.window is not None else []
    measures = [lower_aggregate(named).alias(named.name) for named in node.aggregates]
    grouped = frame.groupBy(*keys, *window).agg(*measures, F.max(column(TIME)).alias(TIME))
    bounds = _bounds(node.window) if node.window is not None else []
    return Rows(
        grouped.select(
            *(column(_key_name(place)).alias(key.name) for place, key in enumerate(node.keys)),
            *bounds,
            *(column(named.name) for named in node.aggregates),
            column(TIME),
            F.lit(False).alias(TOMBSTONE),
        ),
        # A group that HAVING no longer admits has to leave the table.
        changelog=True,
    )


def groupable(node: Aggregate, rows: Rows) -> Rows:
    """The rows that take part: no tombstones, no null in a key. The late ledger is made of the same ones."""
    if rows.changelog:
        raise UsageError(
            "an aggregate over a table is not supported yet",
            hint="group the stream that the table was made from",
        )
    frame = rows.frame
    if rows.tombstones:
        frame = frame.filter(~column(TOMBSTONE))
    for key in node.keys:
        frame = frame.filter(lower_expression(key.expression).isNotNull())
    return Rows(frame)


def _bounds(window: Window) -> list[Column]:
    """Once for expressions, once for the key that the row is stored under."""
    end = F.unix_millis(column(CLOSES))
    start = end - F.lit(window.size_ms)
    visible_start, visible_end = (bound.name for bound in WINDOW_COLUMNS)
    return [start.alias(visible_start), end.alias(visible_end), start.alias(WINDOW_START), end.alias(WINDOW_END)]


def _key_name(place: int) -> str:
    return f"$key{place}"
