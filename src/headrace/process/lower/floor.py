"""Spark's watermark where each partition has its own stream time: made of what all partitions have reached."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.process.lower.rows import column

FLOOR, _MARK = "$floor", "$mark"


def watermark_by_floor(frame: DataFrame, clock: str, delay_ms: int, floor: DataFrame) -> DataFrame:
    """The largest time seen says nothing about the slowest partition, so marks with the floor pass Spark's operator and
    records do not. The column's mark is that of the union's first part, so what is kept by `clock` is forgotten by the
    floor. The marks go no further; the filter names the watermark's column, or Spark would take them out before they
    are seen. A frame without the column gets it, and it says nothing."""
    moment = F.timestamp_millis(column(FLOOR)).alias(clock)
    marks = floor.select(moment, F.lit(True).alias(_MARK)).withWatermark(f"`{clock}`", f"{delay_ms} milliseconds")
    both = marks.unionByName(frame.withColumn(_MARK, F.lit(False)), allowMissingColumns=True)
    others = both.filter(~column(_MARK) | column(clock).isNull()).drop(_MARK)
    # In the order they were: operators go by place.
    return others.select(*(column(name) for name in [*frame.columns, *({clock} - set(frame.columns))]))
