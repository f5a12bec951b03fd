"""The late ledger: the exact complement of what a windowed aggregate or a join admits."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.log.base import OFFSET, PARTITION, STREAM_TIME, TIME, WINDOW_END
from headrace.process.base import LATE_COLUMNS
from headrace.process.lower.rows import Rows, column
from headrace.process.lower.window import expand_windows, is_late
from headrace.process.spark_types import spark_type
from headrace.sql.plan import Aggregate
from headrace.sql.source import Source
from headrace.types import display_name


def lower_late(node: Aggregate, rows: Rows, source: Source) -> DataFrame:
    """One row per late record and window of `rows`, which are what is grouped, in `LATE_COLUMNS` and `$time`."""
    assert node.window is not None
    frame = expand_windows(rows.frame, node.window).filter(is_late(node.window))
    end = column(WINDOW_END)
    late = late_struct(
        topic=F.lit(source.topic),
        partition=column(PARTITION),
        offset=column(OFFSET),
        start=end - F.lit(node.window.size_ms),
        end=end,
        grace_ms=node.window.grace_ms,
        row=json_row(source, rows.frame.columns),
    )
    packed = frame.select(late.alias("late"), column(TIME))
    return packed.select("late.*", column(TIME))


def late_struct(
    topic: Column, partition: Column, offset: Column, start: Column, end: Column, grace_ms: int, row: Column
) -> Column:
    """A row of the ledger. `LATE_BY` is how long after the window closed, by stream time, the record came: 0 is the
    first moment that is too late."""
    values = {
        "TOPIC": topic,
        "PARTITION": partition,
        "OFFSET": offset,
        "STREAM_TIME": column(STREAM_TIME),
        "WINDOW_START": start,
        "WINDOW_END": end,
        "LATE_BY": column(STREAM_TIME) - end - F.lit(grace_ms),
        "ROW": row,
    }
    return F.struct(*(values[late.name].cast(spark_type(late.type)).alias(late.name) for late in LATE_COLUMNS))


def json_row(source: Source, there: Collection[str]) -> Column:
    """The record as JSON, by the names people see: those of its columns that are there."""
    shown = [column(c.name).alias(display_name(c.name)) for c in source.columns if c.name in there]
    return F.to_json(F.struct(*shown), {"ignoreNullFields": "false"}) if shown else F.lit("{}")
