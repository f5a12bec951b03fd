"""Functions over JSON. Those over URLs run in Python: Java's URLs refuse what browsers send."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql.classic.column import Column as ClassicColumn

from headrace.process.functions.arguments import Arguments, Lowering
from headrace.sql.functions.json_fields import path_steps


def _extract(of: Arguments) -> Column | None:
    """By `JsonField.java`: Spark's own changes how numbers are written, and knows no difference between a null and
    nothing."""
    path = of.literal(1)
    steps = path_steps(path) if isinstance(path, str) else None
    if steps is None:
        return None
    context: Any = SparkContext._active_spark_context
    names = context._gateway.new_array(context._jvm.java.lang.String, len(steps))
    for place, step in enumerate(steps):
        names[place] = step
    text: Any = of[0]
    made: Column = ClassicColumn(context._jvm.dev.headrace.spark.JsonField.of(text._jc, names))
    return made


LOWERINGS: dict[str, Lowering] = {"EXTRACTJSONFIELD": _extract}
