"""Small changelogs, made by hand: what a follower would read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.log.base import ARRIVAL, TIME, TOMBSTONE, WINDOW_END, WINDOW_START, Records
from headrace.log.schema import arrow_type
from headrace.sql.source import Source, Window
from headrace.store.base import Position, ViewStore
from headrace.types import BIGINT, VARCHAR, Column

COUNTS = Source("COUNTS", "table", "counts", (Column("PAGE", VARCHAR),), (Column("VIEWS", BIGINT),))
PER_MINUTE = Source(
    "PER_MINUTE",
    "table",
    "per_minute",
    (Column("PAGE", VARCHAR),),
    (Column("VIEWS", BIGINT),),
    window=Window("tumbling", 60_000, 60_000, 0),
)


def records(
    source: Source,
    rows: Sequence[dict[str, Any]],
    *,
    arrival: int = 1,
    partition: int = 0,
    offset: int = 0,
    arrivals: Sequence[int] | None = None,
) -> Records:
    """Rows by column name; `$time`, `$tombstone`, `$window_start` and `$window_end` may be among them."""
    numbers = list(arrivals) if arrivals else list(range(arrival, arrival + len(rows)))
    columns: dict[str, pa.Array] = {
        ARRIVAL: pa.array(numbers, pa.int64()),
        TIME: pa.array([row.get(TIME, 0) for row in rows], pa.int64()),
        TOMBSTONE: pa.array([row.get(TOMBSTONE, False) for row in rows], pa.bool_()),
    }
    if source.window:
        for name in (WINDOW_START, WINDOW_END):
            columns[name] = pa.array([row[name] for row in rows], pa.int64())
    for column in source.key + source.value:
        columns[column.name] = pa.array([row.get(column.name) for row in rows], arrow_type(column.type))
    return Records(source.topic, partition, offset, pa.record_batch(columns))


def apply(view: ViewStore, *rows: dict[str, Any], partition: int = 0) -> int:
    """As the next records of one partition."""
    position = view.position()
    offset, arrival = position.offsets.get(partition, 0), max(1, position.arrival)
    batch = records(view.source, rows, arrival=arrival, partition=partition, offset=offset)
    offsets = {**position.offsets, partition: offset + len(rows)}
    return view.apply([batch], Position(arrival + len(rows), offsets))


def everything(view: ViewStore) -> list[tuple[Any, ...]]:
    """All rows, by key."""
    names = [column.name for column in view.source.columns]
    order = [(column.name, False) for column in view.source.columns if column not in view.source.value]
    found, residual = view.select(names, order=order)
    assert residual is None
    return found.rows
