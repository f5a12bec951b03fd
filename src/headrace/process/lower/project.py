"""SELECT's expressions."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.log.base import ARRIVAL, HEADERS, TIME, TOMBSTONE, WINDOW_END, WINDOW_START
from headrace.process.expressions import lower_expression
from headrace.process.lower.rows import LATE_ROW, PLACE, Rows, column
from headrace.sql.plan import Named, Project, Rename


def lower_project(node: Project, rows: Rows) -> Rows:
    """Keys and values by name. The row keeps its event time, and its arrival, window and headers if it has them. A
    tombstone stays one: its values are null, whatever the expressions would make of nulls."""
    keys = [_named(named) for named in node.key]
    values = [_named(named, deleted=rows.tombstones) for named in node.value]
    carried = rows.carried(ARRIVAL, PLACE, WINDOW_START, WINDOW_END, LATE_ROW, HEADERS)
    return rows.with_frame(rows.frame.select(*keys, *values, *carried, column(TIME), column(TOMBSTONE)))


def _named(named: Named, deleted: bool = False) -> Column:
    value = lower_expression(named.expression)
    return (F.when(~column(TOMBSTONE), value) if deleted else value).alias(named.name)


def lower_rename(node: Rename, rows: Rows) -> Rows:
    """System columns keep their names, and columns that nobody needs are not there to be renamed."""
    names = {old.name: new for old, new in zip(node.input.columns, node.names, strict=True)}
    return rows.with_frame(
        rows.frame.select(*(column(name).alias(names.get(name, name)) for name in rows.frame.columns))
    )
