"""Table functions: one row becomes several."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.log.base import TOMBSTONE
from headrace.process.expressions import lower_expression
from headrace.process.functions.arguments import Arguments
from headrace.process.functions.fallback import lower_in_python
from headrace.process.lower.rows import LATE_ROW, PLACE, Rows, column
from headrace.process.spark_types import spark_type
from headrace.sql.expressions import Call
from headrace.sql.plan import FlatMap, Named
from headrace.types import Array

_ELEMENTS, _ELEMENT = "$elements", "$element"


def lower_flat_map(node: FlatMap, rows: Rows) -> Rows:
    """As many rows as the longest list has elements, shorter ones filled up with nulls. A record without a value has
    none; a late one passes."""
    lists = [_list_of(named).alias(named.name) for named in node.functions]
    frame = rows.frame.withColumn(_ELEMENTS, F.arrays_zip(*lists))
    others = [column(name) for name in rows.frame.columns if name != PLACE]
    # Rows that are there for the ledger only have one element, of which nobody sees anything.
    explode = F.posexplode_outer if rows.late else F.posexplode
    exploded = frame.select(*others, explode(column(_ELEMENTS)).alias(PLACE, _ELEMENT))
    if rows.late:
        exploded = exploded.filter(column(PLACE).isNotNull() | column(LATE_ROW).isNotNull())
    found = [column(_ELEMENT).getField(named.name).alias(named.name) for named in node.functions]
    return replace(rows, frame=exploded.select(*others, column(PLACE), *found))


def _list_of(named: Named) -> Column:
    call = named.expression
    assert isinstance(call, Call)
    assert call.type is not None
    type_ = Array(call.type)
    if call.name == "EXPLODE" and call.function is None:
        found = lower_expression(call.arguments[0])
    else:
        found = lower_in_python(Arguments(call, {}, lower_expression), type_)
    empty = F.array().cast(spark_type(type_))
    return F.when(~column(TOMBSTONE), F.coalesce(found, empty)).otherwise(empty)
