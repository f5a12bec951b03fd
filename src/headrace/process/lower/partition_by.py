"""PARTITION BY: another key."""

from __future__ import annotations

from pyspark.sql import functions as F

from headrace.log.base import ARRIVAL
from headrace.process.expressions import lower_expression
from headrace.process.lower.rows import PLACE, Rows, column
from headrace.sql.plan import PartitionBy, scanned


def lower_partition_by(node: PartitionBy, rows: Rows) -> Rows:
    """The key's parts as columns. If the rows come from several partitions, those of one new key are brought together
    in order of arrival; the sink sends them to their partition anyway."""
    known = {column_.name for column_ in node.input.columns}
    frame = rows.frame
    for part in node.key:
        if part.name not in known or part.name not in frame.columns:
            frame = frame.withColumn(part.name, lower_expression(part.expression))
    if max(source.partitions for source in scanned(node)) > 1:
        order = [column(ARRIVAL), *rows.carried(PLACE)]
        frame = frame.repartition(F.hash(*(column(part.name) for part in node.key))).sortWithinPartitions(*order)
    return rows.with_frame(frame)
