"""SELECT's expressions."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.log.base import ARRIVAL, TIME, TOMBSTONE, WINDOW_END, WINDOW_START
from headrace.process.expressions import lower_expression
from headrace.process.lower.rows import Rows, column
from headrace.sql.plan import Named, Project


def lower_project(node: Project, rows: Rows) -> Rows:
    """Keys and values by name. The row keeps its event time, and its arrival and window if it has them. A tombstone
    stays one: its values are null, whatever the expressions would make of nulls."""
    keys = [_named(named) for named in node.key]
    values = [_named(named, deleted=rows.tombstones) for named in node.value]
    carried = [column(name) for name in (ARRIVAL, WINDOW_START, WINDOW_END) if name in rows.frame.columns]
    return rows.with_frame(rows.frame.select(*keys, *values, *carried, column(TIME), column(TOMBSTONE)))


def _named(named: Named, deleted: bool = False) -> Column:
    value = lower_expression(named.expression)
    return (F.when(~column(TOMBSTONE), value) if deleted else value).alias(named.name)
