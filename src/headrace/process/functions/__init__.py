"""Functions as Spark's, under the names of the function table (`sql.functions`).

A function without an entry here runs its Python implementation over Arrow batches (`fallback`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import Column

from headrace.errors import UsageError
from headrace.process.functions import collections, json, numbers, strings, times
from headrace.process.functions.arguments import Arguments, Lowering
from headrace.process.functions.fallback import InsideLambda, lower_in_python
from headrace.process.functions.python import lower_python_function
from headrace.sql.functions import FUNCTIONS

LOWERINGS: Mapping[str, Lowering] = MappingProxyType(
    strings.LOWERINGS | numbers.LOWERINGS | times.LOWERINGS | collections.LOWERINGS | json.LOWERINGS
)


def lower_call(arguments: Arguments) -> Column:
    """A lowering answers None where Spark's function means something else for these arguments."""
    if arguments.call.function is not None:
        return lower_python_function(arguments)
    if arguments.name not in FUNCTIONS:
        raise UsageError(f"function `{arguments.name}` does not exist", hint="SHOW FUNCTIONS lists what does")
    lowering = LOWERINGS.get(arguments.name)
    try:
        found = lowering(arguments) if lowering is not None else None
    except InsideLambda:
        # A lambda of this call needs Python; if the call stands in another lambda, that one does too.
        found = None
    return lower_in_python(arguments) if found is None else found
