"""GROUP BY."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.errors import UsageError
from headrace.log.base import TIME, TOMBSTONE, WINDOW_END, WINDOW_START
from headrace.process.aggregates import lower_aggregate
from headrace.process.expressions import lower_expression
from headrace.process.lower.rows import Rows, column
from headrace.process.lower.window import WINDOW, expand_windows, is_late, window_end, window_start
from headrace.sql.plan import Aggregate
from headrace.sql.source import WINDOW_COLUMNS


def lower_aggregate_node(node: Aggregate, rows: Rows) -> Rows:
    """One row per group that changed, with `$time` the largest event time of the group's rows."""
    rows = groupable(node, rows)
    frame = rows.frame
    if node.window is not None:
        frame = expand_windows(frame, node.window).filter(~is_late(node.window))
    # Only what is grouped and aggregated; the keys under names no column of the input can have.
    keys = [lower_expression(key.expression).alias(_key_name(place)) for place, key in enumerate(node.keys)]
    window = [column(WINDOW)] if node.window is not None else []
    measures = [lower_aggregate(named).alias(named.name) for named in node.aggregates]
    grouped = frame.groupBy(*keys, *window).agg(*measures, F.max(column(TIME)).alias(TIME))
    bounds = _bounds() if node.window is not None else []
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


def _bounds() -> list[Column]:
    """Once for expressions, once for the key that the row is stored under."""
    start, end = (bound.name for bound in WINDOW_COLUMNS)
    return [
        window_start().alias(start),
        window_end().alias(end),
        window_start().alias(WINDOW_START),
        window_end().alias(WINDOW_END),
    ]


def _key_name(place: int) -> str:
    return f"$key{place}"
