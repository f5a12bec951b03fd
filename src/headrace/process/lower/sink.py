"""Rows → what the log's sink takes: one stream of columns, and routes that say which go to which topic."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.log.base import ROUTE, TIME, TOMBSTONE, WINDOW_END, WINDOW_START, Route
from headrace.process.base import LATE_COLUMNS
from headrace.process.lower.rows import Rows, column
from headrace.process.spark_types import spark_type
from headrace.sql.plan import PersistentQuery

MAIN, LATE = 0, 1


@dataclass(frozen=True, slots=True)
class Routed:
    frame: DataFrame
    routes: tuple[Route, ...]


def route_rows(query: PersistentQuery, rows: Rows, late: DataFrame | None, late_topic: str | None) -> Routed:
    """The table's changes, and with them, for the same transaction, what came too late for it."""
    names = [column_.name for column_ in query.sink.key + query.sink.value]
    projected = [named.name for named in query.root.key + query.root.value]
    system = [TIME, TOMBSTONE, *([WINDOW_START, WINDOW_END] if query.sink.window else [])]
    main = rows.frame.select(
        *(column(theirs).alias(ours) for theirs, ours in zip(projected, names, strict=True)),
        *(column(name) for name in system),
    )
    main_route = Route(query.sink.topic, {name: name for name in names + system})
    if late is None or late_topic is None:
        return Routed(main, (main_route,))
    late_route = Route(
        late_topic, {c.name: _late_name(c.name) for c in LATE_COLUMNS} | {TIME: TIME, TOMBSTONE: TOMBSTONE}
    )
    return Routed(_union(main, late), (main_route, late_route))


def _union(main: DataFrame, late: DataFrame) -> DataFrame:
    """Side by side: each branch has nulls for the other's columns. Names cannot clash: `$late.` begins none of a
    table's."""
    nothing_late = [F.lit(None).cast(spark_type(c.type)).alias(_late_name(c.name)) for c in LATE_COLUMNS]
    left = main.select(*(column(name) for name in main.columns), *nothing_late, F.lit(MAIN).alias(ROUTE))
    own = {_late_name(c.name): column(c.name) for c in LATE_COLUMNS}
    own |= {TIME: column(TIME), TOMBSTONE: F.lit(False), ROUTE: F.lit(LATE)}
    right = late.select(
        *(own.get(field.name, F.lit(None).cast(field.dataType)).alias(field.name) for field in left.schema.fields)
    )
    return left.unionAll(right)


def _late_name(name: str) -> str:
    return f"$late.{name.lower()}"
