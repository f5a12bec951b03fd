"""Time windows: which a record belongs to, and whether it is too late for one."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.errors import UsageError
from headrace.log.base import STREAM_TIME, TIME
from headrace.process.lower.rows import column
from headrace.sql.source import Window

EVENT_TIME = "$event_time"
WINDOW = "$window"

# 9999-12-31T23:59:59.999Z. Collectors refuse later event times; a record that has one all the same must not stop the
# query.
LAST_TIME_MS = 253_402_300_799_999


def expand_windows(frame: DataFrame, window: Window, free_state: bool = True) -> DataFrame:
    """One row per record and window it belongs to, with `$window` (start, end as timestamps).

    With `free_state`, Spark may forget a window once its watermark, the largest event time of *earlier* batches minus
    grace, has reached the window's end. What `is_late` admits is never below that: the watermark is at most the
    record's stream time minus grace."""
    if window.kind == "session":
        raise UsageError("session windows are not supported yet", hint="use WINDOW TUMBLING or WINDOW HOPPING")
    timed = frame.withColumn(EVENT_TIME, F.timestamp_millis(F.least(column(TIME), F.lit(LAST_TIME_MS))))
    if free_state:
        # Spark parses the name as SQL.
        timed = timed.withWatermark(f"`{EVENT_TIME}`", _milliseconds(window.grace_ms))
    expanded = timed.withColumn(
        WINDOW, F.window(column(EVENT_TIME), _milliseconds(window.size_ms), _milliseconds(window.advance_ms))
    )
    # As in Kafka, no window begins before 1970; a hopping window of an event in the first minutes would.
    return expanded if window.advance_ms == window.size_ms else expanded.filter(window_start() >= 0)


def window_start() -> Column:
    return F.unix_millis(column(WINDOW).getField("start"))


def window_end() -> Column:
    return F.unix_millis(column(WINDOW).getField("end"))


def is_late(window: Window) -> Column:
    """Contract 4: the window's end plus grace is not after the stream time that the record was stamped with."""
    return window_end() + F.lit(window.grace_ms) <= column(STREAM_TIME)


def _milliseconds(count: int) -> str:
    return f"{count} milliseconds"
