"""A table's changelog as changes: what each row was before (contract 8)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.log.base import ARRIVAL, HEADERS, STREAM_TIME, TIME, TOMBSTONE
from headrace.process.lower.rows import Rows, column
from headrace.process.operators import FROM_RIGHT, LEFT, RIGHT, as_changes, group_key, table_changes
from headrace.sql.plan import Aggregate, PlanNode, primary_key

SIGN = "$sign"


def plan_columns(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if not name.startswith("$")]


def before_and_after(node: PlanNode, rows: Rows, more: Mapping[str, Column] | None = None) -> DataFrame:
    """Rows as operators have them: the row before on the left, the row after on the right, with `more` computed
    columns. `node` is a table's; rows with a null in its key are no rows of it."""
    names = primary_key(node)
    types = {column_.name: column_.type for column_ in node.columns}
    parts = [group_key(column(name), types[name]) for name in names]
    key = F.struct(*(part.alias(f"k{place}") for place, part in enumerate(parts)))
    frame = rows.frame
    for name in names:
        frame = frame.filter(column(name).isNotNull())
    computed = [value.alias(name) for name, value in (more or {}).items()]
    whole = F.struct(*(column(name) for name in plan_columns(frame)), *computed)
    nothing = F.lit(None).cast(frame.select(whole.alias("row")).schema["row"].dataType)
    return table_changes(as_changes(frame, key, FROM_RIGHT, nothing, whole, more=rows.carried(HEADERS)))


def signed_changes(node: Aggregate, rows: Rows) -> Rows:
    """Every change as up to two rows: the one that goes with `$sign` -1, the one that comes with 1."""
    names = plan_columns(rows.frame)
    changes = before_and_after(node.input, rows)
    both = F.array(
        F.struct(F.lit(-1).alias("sign"), column(LEFT).alias("row")),
        F.struct(F.lit(1).alias("sign"), column(RIGHT).alias("row")),
    )
    there = F.filter(both, lambda change: change.getField("row").isNotNull())
    exploded = changes.select(
        column(ARRIVAL), column(STREAM_TIME), column(TIME), F.posexplode(there).alias("$place", "$change")
    )
    row = column("$change").getField("row")
    return Rows(
        exploded.select(
            *(row.getField(name).alias(name) for name in names),
            column("$change").getField("sign").alias(SIGN),
            *(column(name) for name in (ARRIVAL, STREAM_TIME, TIME, "$place")),
            F.lit(False).alias(TOMBSTONE),
        )
    )
