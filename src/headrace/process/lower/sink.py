"""Rows → what the log's sink takes: one stream of columns, and routes that say which go to which topic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.errors import UsageError
from headrace.log.base import ARRIVAL, HEADERS, ROUTE, TIME, TOMBSTONE, WINDOW_END, WINDOW_START, Route
from headrace.process.base import LATE_COLUMNS
from headrace.process.lower.rows import LATE_ROW, Rows, column
from headrace.process.moments import parse_moments
from headrace.process.spark_types import spark_type
from headrace.sql.plan import Join, PersistentQuery, walk
from headrace.sql.source import Source
from headrace.types import BigInt, Timestamp, Varchar, display_name

MAIN, LATE = 0, 1
ORDER = "$order"


@dataclass(frozen=True, slots=True)
class Routed:
    frame: DataFrame
    routes: tuple[Route, ...]


def route_rows(
    query: PersistentQuery, rows: Rows, late: DataFrame | None, late_topic: str | None, in_order: bool = False
) -> Routed:
    """The table's changes, and with them, for the same transaction, what came too late for it. `in_order`: a stream's
    rows are written in the order in which what they were made of arrived, whichever task has them."""
    in_order = in_order and query.sink.kind == "stream" and rows.has(ARRIVAL)
    names = [column_.name for column_ in query.sink.key + query.sink.value]
    projected = [named.name for named in query.root.key + query.root.value]
    system = [TIME, TOMBSTONE, *([WINDOW_START, WINDOW_END] if query.sink.window else [])]
    system += [HEADERS] if rows.has(HEADERS) else []
    if rows.late and late_topic is None:
        rows = replace(rows, frame=rows.frame.filter(column(LATE_ROW).isNull()), late=False)
    main = rows.frame.select(
        *(column(theirs).alias(ours) for theirs, ours in zip(projected, names, strict=True)),
        *(column(name) for name in system),
        *rows.carried(*([LATE_ROW] if rows.late else [])),
        *([column(ARRIVAL).alias(ORDER)] if in_order else []),
    )
    if in_order and any(isinstance(node, Join) for node in walk(query.root)):
        # What reads and filters keeps the order of what it reads; a join has its rows key by key.
        main = main.sortWithinPartitions(column(ORDER))
    if query.sink.timestamp is not None:
        # A row whose time cannot be, as in KSQL, is not written; a deletion has no columns to take one from.
        own = F.when(column(TOMBSTONE), column(TIME)).otherwise(_event_time(query.sink))
        main = main.withColumn(TIME, own).filter(column(TIME) >= 0)
    main_route = Route(query.sink.topic, {name: name for name in names + system}, ORDER if in_order else None)
    if late_topic is None or (late is None and not rows.late):
        return Routed(main, (main_route,))
    late_route = Route(
        late_topic, {c.name: _late_name(c.name) for c in LATE_COLUMNS} | {TIME: TIME, TOMBSTONE: TOMBSTONE}
    )
    routes = (main_route, late_route)
    split = _split(main) if rows.late else _all_main(main)
    return Routed(split if late is None else _union(split, late), routes)


def _split(frame: DataFrame) -> DataFrame:
    """Rows that carry something for the ledger are for it alone."""
    others = [column(name) for name in frame.columns if name != LATE_ROW]
    late = [column(LATE_ROW).getField(c.name).alias(_late_name(c.name)) for c in LATE_COLUMNS]
    route = F.when(column(LATE_ROW).isNull(), MAIN).otherwise(LATE)
    return frame.select(*others, *late, route.alias(ROUTE))


def _event_time(sink: Source) -> Column:
    """WITH (TIMESTAMP='column'): the rows' own time, in milliseconds; null where there is none."""
    value = column(sink.timestamp or "")
    match {c.name: c.type for c in sink.key + sink.value}.get(sink.timestamp or ""):
        case BigInt():
            return value
        case Timestamp():
            return F.unix_millis(value)
        case Varchar():
            return parse_moments(value, sink.timestamp_format)
        case _:
            raise UsageError(
                f"`{display_name(sink.timestamp or '')}` cannot be the event time of `{display_name(sink.name)}`",
                hint="a column of type BIGINT (milliseconds), TIMESTAMP or VARCHAR with TIMESTAMP_FORMAT can",
            )


def _all_main(frame: DataFrame) -> DataFrame:
    nothing_late = [F.lit(None).cast(spark_type(c.type)).alias(_late_name(c.name)) for c in LATE_COLUMNS]
    return frame.select(*(column(name) for name in frame.columns), *nothing_late, F.lit(MAIN).alias(ROUTE))


def _union(left: DataFrame, late: DataFrame) -> DataFrame:
    """Side by side: each branch has nulls for the other's columns. Names cannot clash: `$late.` begins none of a
    table's."""
    own = {_late_name(c.name): column(c.name) for c in LATE_COLUMNS}
    own |= {TIME: column(TIME), TOMBSTONE: F.lit(False), ROUTE: F.lit(LATE)}
    right = late.select(
        *(own.get(field.name, F.lit(None).cast(field.dataType)).alias(field.name) for field in left.schema.fields)
    )
    return left.unionAll(right)


def _late_name(name: str) -> str:
    return f"$late.{name.lower()}"
