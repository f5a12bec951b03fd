"""Functions as Spark's, under the names of the function table (`sql.functions`).

A function without an entry here runs its Python implementation over Arrow batches (`fallback`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import Column

from headrace.process.functions import collections, json, numbers, strings, times
from headrace.process.functions.arguments import Arguments, Lowering
from headrace.process.functions.fallback import lower_in_python

LOWERINGS: Mapping[str, Lowering] = MappingProxyType(
    strings.LOWERINGS | numbers.LOWERINGS | times.LOWERINGS | collections.LOWERINGS | json.LOWERINGS
)


def lower_call(arguments: Arguments) -> Column:
    """A lowering answers None where Spark's function means something else for these arguments."""
    lowering = LOWERINGS.get(arguments.name)
    found = lowering(arguments) if lowering is not None else None
    return lower_in_python(arguments) if found is None else found
