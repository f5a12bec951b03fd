"""The function table: every function SQL knows, listed once. `process.functions` lists the Spark implementations under
the same names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.sql.functions import (
    aggregates,
    arrays,
    json_fields,
    json_texts,
    kept_values,
    maps,
    nulls,
    numbers,
    octets,
    patterns,
    sketches,
    strings,
    tables,
    times,
    trigonometry,
)
from headrace.sql.functions.function import Function, Steps
from headrace.types import DataType

if TYPE_CHECKING:
    from headrace.sql.expressions import Call

SECTIONS: Mapping[str, tuple[Function, ...]] = MappingProxyType(
    {
        "Text": strings.FUNCTIONS + patterns.FUNCTIONS,
        "Bytes": octets.FUNCTIONS,
        "Numbers": numbers.FUNCTIONS + trigonometry.FUNCTIONS,
        "Nulls and choices": nulls.FUNCTIONS,
        "Time": times.FUNCTIONS,
        "Arrays and maps": arrays.FUNCTIONS + maps.FUNCTIONS,
        "JSON and URLs": json_fields.FUNCTIONS + json_texts.FUNCTIONS,
        "Table functions": tables.FUNCTIONS,
        "Sketches": sketches.ESTIMATES,
        "Aggregates": aggregates.FUNCTIONS + kept_values.FUNCTIONS + sketches.FUNCTIONS,
    }
)
"""By what they are about, for documentation."""

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {function.name: function for functions in SECTIONS.values() for function in functions}
)


def function_of(call: Call) -> Function | None:
    """What is called: the Python function that the call was bound to, or the one of the table."""
    return call.function or FUNCTIONS.get(call.name)


def is_table_function(call: Call) -> bool:
    """Whether it makes several rows of one."""
    function = function_of(call)
    return function is not None and function.kind == "table"


def is_aggregate(call: Call) -> bool:
    function = function_of(call)
    return function is not None and function.kind == "aggregate"


def steps_of(call: Call) -> Steps:
    """How the aggregate that is called is kept."""
    function = function_of(call)
    assert function is not None
    if function.prepare is not None and call.type is not None:
        prepared: Steps = function.prepare(argument_types(call), call.type)
        return prepared
    assert function.steps is not None
    return function.steps


def argument_types(call: Call) -> tuple[DataType, ...]:
    return tuple(argument.type for argument in call.arguments if argument.type is not None)
