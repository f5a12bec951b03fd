"""Python functions on Spark: over Arrow batches, in its Python workers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.functions.compiled import compile_function
from headrace.functions.direct import FAILURES, PythonFunction
from headrace.functions.vectors import call_arrays
from headrace.process.functions.arguments import Arguments
from headrace.process.functions.fallback import lower_in_python
from headrace.process.letters import letter_box, tell_failures
from headrace.process.spark_types import spark_type
from headrace.sql.functions import argument_types
from headrace.types import DataType


def lower_python_function(of: Arguments) -> Column:
    """One that takes rows goes the way of every function that Spark lacks; one that takes arrays gets Spark's own."""
    function = of.call.function
    assert function is not None
    prepared = function.prepare
    assert isinstance(prepared, PythonFunction)
    if prepared.described.style == "rows" or of.scope or not len(of):
        return lower_in_python(of)
    types, result, box = argument_types(of.call), of.result, letter_box()

    def evaluate(*arrays: pa.Array) -> pa.Array:
        found = _over_arrays(prepared, types, result, arrays)
        tell_failures(box)
        return found

    evaluate.__annotations__ = {}
    return F.arrow_udf(evaluate, spark_type(result))(*of.columns)


def _over_arrays(
    function: PythonFunction, types: tuple[DataType, ...], result: DataType, arrays: Sequence[pa.Array]
) -> pa.Array:
    """In a worker. Not inside `evaluate`, which is sent there with copies of what it names."""
    found, failures = call_arrays(compile_function(function, types, result), arrays, len(arrays[0]))
    FAILURES.extend(failures)
    return found
