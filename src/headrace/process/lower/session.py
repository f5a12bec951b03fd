"""Session windows."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.log.base import OFFSET, PARTITION, STREAM_TIME, TIME, TOMBSTONE
from headrace.process.aggregates import Decomposed, decompose, order_of
from headrace.process.expressions import lower_expression
from headrace.process.lower.aggregate import groupable, part_name, results
from headrace.process.lower.late import json_row, late_struct
from headrace.process.lower.rows import LATE_ROW, Rows, column
from headrace.process.lower.window import NO_CLOCK, Clock, window_columns
from headrace.process.operators import (
    FROM_LEFT,
    KEY,
    LEFT,
    RIGHT,
    SIDE,
    as_changes,
    from_group_key,
    group_key,
    sessions,
    until_now,
    with_clock,
)
from headrace.sql.plan import Aggregate, Named, scanned


def lower_sessions(
    node: Aggregate, rows: Rows, final: bool, floor: DataFrame | None = None, clock: Clock = NO_CLOCK
) -> Rows:
    """One row per session that changed, and one that deletes each session that is now part of another. `floor` is
    `Inputs.floor`'s."""
    window = node.window
    assert window is not None
    frame = groupable(node, rows).frame
    decomposed = [decompose(named, order_of(frame), in_session=True) for named in node.aggregates]
    parts = [
        (part.kind, part.value.alias(part_name(place, number)))
        for place, one in enumerate(decomposed)
        for number, part in enumerate(one.parts)
    ]
    key = F.struct(*(_grouped_by(key).alias(f"k{n}") for n, key in enumerate(node.keys)))
    # Only a row that is late by itself can be; for the others nobody writes down what they were.
    [source] = scanned(node)[:1]
    may_be_late = column(TIME) + F.lit(window.size_ms + window.grace_ms) < column(STREAM_TIME)
    late = late_struct(
        topic=F.lit(source.topic),
        partition=column(PARTITION) if rows.has(PARTITION) else F.lit(None),
        offset=column(OFFSET) if rows.has(OFFSET) else F.lit(None),
        start=column(TIME),
        end=column(TIME) + F.lit(window.size_ms),
        grace_ms=window.grace_ms,
        row=json_row(source, rows.frame.columns),
    )
    bounds = F.struct(column(TIME).alias("start"), column(TIME).alias("end"), F.when(may_be_late, late).alias(LATE_ROW))
    merged = F.struct(*(value for _, value in parts))
    changes = as_changes(frame, key, FROM_LEFT, bounds, merged)
    timed = changes if clock.below else with_clock(changes, floor=floor, known=clock.known)
    found = sessions(timed, window.size_ms, window.grace_ms, final, [kind for kind, _ in parts])
    if final:
        found = until_now(found, changes if clock.times is None else clock.times)
        if clock.known is not None:
            found = found.filter((column(SIDE) != FROM_LEFT) | (column(STREAM_TIME) > F.lit(clock.known.closed)))
    start, end = column(LEFT).getField("start"), column(LEFT).getField("end")
    spread = found.select(
        *(
            from_group_key(column(KEY).getField(f"k{place}"), named.column.type).alias(named.name)
            for place, named in enumerate(node.keys)
        ),
        *window_columns(start, end),
        *(column(RIGHT).getField(name).alias(name) for name in _part_names(decomposed)),
        column(TIME),
        column(TOMBSTONE),
        F.when(column(SIDE) != FROM_LEFT, column(LEFT).getField(LATE_ROW)).alias(LATE_ROW),
    )
    kept = [name for name in spread.columns if not name.startswith("$part")]
    values = results(node.aggregates, decomposed, session=True)
    return Rows(spread.select(*(column(name) for name in kept), *values), changelog=True, tombstones=True, late=True)


def _grouped_by(key: Named) -> Column:
    return group_key(lower_expression(key.expression), key.column.type)


def _part_names(decomposed: list[Decomposed]) -> list[str]:
    return [part_name(place, number) for place, one in enumerate(decomposed) for number in range(len(one.parts))]
