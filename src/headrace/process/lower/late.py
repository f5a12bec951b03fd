"""The late ledger: the exact complement of what a windowed aggregate admits."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.log.base import OFFSET, PARTITION, STREAM_TIME, TIME, WINDOW_END
from headrace.process.base import LATE_COLUMNS
from headrace.process.lower.aggregate import groupable
from headrace.process.lower.rows import Rows, column
from headrace.process.lower.window import expand_windows, is_late
from headrace.sql.plan import Aggregate
from headrace.sql.source import Source
from headrace.types import display_name


def lower_late(node: Aggregate, rows: Rows, source: Source) -> DataFrame:
    """One row per late record and window, in `LATE_COLUMNS` and `$time`. `LATE_BY` is how long after the window
    closed, by stream time, the record came: 0 is the first moment that is too late."""
    assert node.window is not None
    frame = expand_windows(groupable(node, rows).frame, node.window).filter(is_late(node.window))
    end = column(WINDOW_END)
    values = {
        "TOPIC": F.lit(source.topic),
        "PARTITION": column(PARTITION).cast("long"),
        "OFFSET": column(OFFSET),
        "STREAM_TIME": column(STREAM_TIME),
        "WINDOW_START": end - F.lit(node.window.size_ms),
        "WINDOW_END": end,
        "LATE_BY": column(STREAM_TIME) - end - F.lit(node.window.grace_ms),
        "ROW": _row(source),
    }
    return frame.select(*(values[late.name].alias(late.name) for late in LATE_COLUMNS), column(TIME))


def _row(source: Source) -> Column:
    """The record as JSON, by the names people see."""
    shown = [column(c.name).alias(display_name(c.name)) for c in source.columns]
    return F.to_json(F.struct(*shown), {"ignoreNullFields": "false"}) if shown else F.lit("{}")
