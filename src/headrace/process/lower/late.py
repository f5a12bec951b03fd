"""The late ledger: the exact complement of what a windowed aggregate or a join admits."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.log.base import OFFSET, PARTITION, STREAM_TIME, TIME, WINDOW_END
from headrace.process.base import LATE_COLUMNS
from headrace.process.lower.rows import LATE_ROW, Rows, column
from headrace.process.lower.window import expand_windows, is_late, is_newest
from headrace.process.spark_types import spark_type
from headrace.sql.plan import Aggregate
from headrace.sql.source import Source
from headrace.types import display_name


def lower_late(node: Aggregate, rows: Rows, source: Source, grouped: Column) -> DataFrame:
    """One row per late record and window of those `rows` that are `grouped`, in `LATE_COLUMNS` and `$time`; and what
    was late for an operator below."""
    assert node.window is not None
    frame = expand_windows(rows.frame, node.window)
    late_here = grouped & is_late(node.window)
    if rows.late:
        # Once, in whichever of its windows.
        frame = frame.filter(late_here | (column(LATE_ROW).isNotNull() & is_newest(node.window)))
    else:
        frame = frame.filter(late_here)
    end = column(WINDOW_END)
    late = late_struct(
        topic=F.lit(source.topic),
        partition=column(PARTITION) if rows.has(PARTITION) else F.lit(None),
        offset=column(OFFSET) if rows.has(OFFSET) else F.lit(None),
        start=end - F.lit(node.window.size_ms),
        end=end,
        grace_ms=node.window.grace_ms,
        row=json_row(source, rows.frame.columns),
    )
    told = F.when(column(LATE_ROW).isNotNull(), column(LATE_ROW)).otherwise(late) if rows.late else late
    packed = frame.select(told.alias("late"), column(TIME))
    return packed.select("late.*", column(TIME))


def late_below(rows: Rows) -> DataFrame:
    """What came too late for an operator below, which has said so."""
    late = rows.frame.filter(column(LATE_ROW).isNotNull())
    return late.select(*(column(LATE_ROW).getField(c.name).alias(c.name) for c in LATE_COLUMNS), column(TIME))


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
    """The record as JSON, by the names people see: those of its columns that are there; of a joined row, all."""
    own = [c.name for c in source.columns if c.name in there]
    names = own or [name for name in there if not name.startswith("$")]
    shown = [column(name).alias(display_name(name)) for name in names]
    return F.to_json(F.struct(*shown), {"ignoreNullFields": "false"}) if shown else F.lit("{}")
