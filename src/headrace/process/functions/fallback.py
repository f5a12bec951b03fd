"""Functions that Spark lacks: the Python evaluator, run by Spark over Arrow batches. Slower, and always right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.functions.arrow_values import from_values, to_values
from headrace.process.functions.arguments import Arguments
from headrace.process.spark_types import spark_type
from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import ColumnRef, Expression, Lambda
from headrace.sql.walk import walk
from headrace.types import DataType


class InsideLambda(Exception):
    """Spark runs no Python inside a lambda: whatever the lambda belongs to has to run in Python as a whole."""


def lower_in_python(of: Arguments) -> Column:
    if of.scope:
        raise InsideLambda
    if any(isinstance(argument, Lambda) for argument in of.call.arguments):
        return _lower_whole(of)
    places = [ColumnRef(f"${place}", type=of.type(place)) for place in range(len(of))]
    return _evaluate(replace(of.call, arguments=tuple(places)), of.result, places, of.columns)


def _lower_whole(of: Arguments) -> Column:
    """Arguments, lambdas and all, over the columns they mention."""
    used = {part.name: part for part in walk(of.call) if isinstance(part, ColumnRef)}
    return _evaluate(of.call, of.result, list(used.values()), [of.lower(part, {}) for part in used.values()])


def _evaluate(
    expression: Expression, result: DataType, inputs: Sequence[ColumnRef], columns: Sequence[Column]
) -> Column:
    named = [(ref.name, ref.type) for ref in inputs if ref.type is not None]

    def evaluate(*arrays: pa.Array) -> pa.Array:
        return evaluate_arrays(expression, result, named, arrays)

    # Spark would try to make sense of the annotations; without any, it is a function from arrays to an array.
    evaluate.__annotations__ = {}
    # Spark wants a batch to know its length by; an expression without columns gets one.
    return F.arrow_udf(evaluate, spark_type(result))(*(columns or [F.lit(0)]))


def evaluate_arrays(
    expression: Expression, result: DataType, inputs: Sequence[tuple[str, DataType]], arrays: Sequence[pa.Array]
) -> pa.Array:
    """Runs in Spark's Python workers."""
    compute = compile_expression(expression)
    names = [name for name, _ in inputs]
    columns = [to_values(array, type_) for array, (_, type_) in zip(arrays, inputs, strict=False)]
    rows = zip(*columns, strict=True) if columns else ((),) * len(arrays[0])
    return from_values([compute(dict(zip(names, row, strict=True))) for row in rows], result)
