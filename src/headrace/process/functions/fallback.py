"""Functions that Spark lacks: the Python evaluator, run by Spark over Arrow batches. Slower, and always right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.functions.arrow_values import from_values, to_values
from headrace.process.functions.arguments import Arguments, Lower, Scope
from headrace.process.letters import letter_box, tell_failures
from headrace.process.spark_types import spark_type
from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import ColumnRef, Expression, Lambda
from headrace.sql.walk import walk
from headrace.types import DataType


class InsideLambda(Exception):
    """Spark runs no Python inside a lambda: whatever the lambda belongs to has to run in Python as a whole."""


def lower_in_python(of: Arguments, result: DataType | None = None) -> Column:
    """`result`: what comes out, where that is not the call's own type: a table function gives lists of it."""
    if of.scope:
        raise InsideLambda
    if any(isinstance(argument, Lambda) for argument in of.call.arguments):
        return _lower_whole(of)
    places = [ColumnRef(f"${place}", type=of.type(place)) for place in range(len(of))]
    return _evaluate(replace(of.call, arguments=tuple(places)), result or of.result, places, of.columns)


def lower_lazily(expression: Expression, scope: Scope, lower: Lower) -> Column:
    """A CASE, an AND or an OR with a Python function in it, as the evaluator does it: what need not be computed is not.
    Spark would call the function for every row first."""
    if scope:
        raise InsideLambda
    assert expression.type is not None
    used = {part.name: part for part in walk(expression) if isinstance(part, ColumnRef)}
    return _evaluate(expression, expression.type, list(used.values()), [lower(one, {}) for one in used.values()])


def _lower_whole(of: Arguments) -> Column:
    """Arguments, lambdas and all, over the columns they mention."""
    used = {part.name: part for part in walk(of.call) if isinstance(part, ColumnRef)}
    return _evaluate(of.call, of.result, list(used.values()), [of.lower(part, {}) for part in used.values()])


def _evaluate(
    expression: Expression, result: DataType, inputs: Sequence[ColumnRef], columns: Sequence[Column]
) -> Column:
    named = [(ref.name, ref.type) for ref in inputs if ref.type is not None]
    box = letter_box()

    def evaluate(*arrays: pa.Array) -> pa.Array:
        found = evaluate_arrays(expression, result, named, arrays)
        tell_failures(box)
        return found

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
