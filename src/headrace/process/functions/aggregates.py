"""Aggregates that Spark lacks: the function's Python steps, over the list of one group's rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.functions.arrow_values import from_values, to_values
from headrace.process.letters import letter_box, tell_failures
from headrace.process.spark_types import spark_type
from headrace.sql.expressions import Call
from headrace.sql.functions import steps_of
from headrace.sql.functions.finish import finish
from headrace.types import INTEGER, Array, DataType, Struct


def lower_in_python(call: Call, entries: Column) -> Column:
    """`entries` are the rows in order: structs with `sign` and the arguments as a0, a1, …"""
    types = [argument.type for argument in call.arguments]
    result = call.type
    assert result is not None
    fields: list[tuple[str, DataType]] = [("sign", INTEGER)]
    fields += [(f"a{place}", type_) for place, type_ in enumerate(types) if type_ is not None]
    plain = F.transform(entries, lambda entry: F.struct(*(entry.getField(name).alias(name) for name, _ in fields)))
    listed, box = Array(Struct(tuple(fields))), letter_box()

    def evaluate(arrays: pa.Array) -> pa.Array:
        groups = to_values(arrays, listed)
        found = from_values([aggregate_rows(call, group) for group in groups], result)
        tell_failures(box)
        return found

    evaluate.__annotations__ = {}
    return F.arrow_udf(evaluate, spark_type(result))(plain)


def aggregate_rows(call: Call, rows: list[dict[str, Any]] | None) -> Any:
    """Runs in Spark's Python workers. What fails is null."""
    steps = steps_of(call)
    state = steps.init()
    try:
        for number, row in enumerate(rows or ()):
            arguments = [value for key, value in row.items() if key != "sign"]
            if arguments and arguments[0] is None and not steps.nulls:
                continue
            if steps.ordered:
                arguments = [number, *arguments]
            if row["sign"] > 0:
                state = steps.add(state, *arguments)
            elif steps.undo is not None:
                state = steps.undo(state, *arguments)
        return finish(call, steps.result(state))
    except Exception:
        return None
