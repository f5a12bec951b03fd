"""WHERE and HAVING."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from headrace.log.base import TOMBSTONE
from headrace.process.expressions import lower_expression
from headrace.process.lower.rows import LATE_ROW, Rows, column
from headrace.sql.plan import Filter


def lower_filter(node: Filter, rows: Rows) -> Rows:
    """A stream's rows that do not pass are gone. A table's row that does not (or no longer) pass becomes a tombstone,
    because an earlier value of its key may have passed. A tombstone passes no condition."""
    predicate = lower_expression(node.predicate)
    if not rows.changelog:
        passes = predicate & ~column(TOMBSTONE) if rows.tombstones else predicate
        passes = passes | column(LATE_ROW).isNotNull() if rows.late else passes
        return replace(rows, frame=rows.frame.filter(passes), tombstones=False)
    gone = ~F.coalesce(predicate, F.lit(False))
    if rows.tombstones:
        gone = column(TOMBSTONE) | gone
    return replace(rows, frame=rows.frame.withColumn(TOMBSTONE, gone), tombstones=True)
