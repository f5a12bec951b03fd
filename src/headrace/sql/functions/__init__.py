"""The function table: every function SQL knows, listed once. `process.functions` lists the Spark implementations under
the same names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
    strings,
    tables,
    times,
    trigonometry,
)
from headrace.sql.functions.function import Function

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
        "Aggregates": aggregates.FUNCTIONS + kept_values.FUNCTIONS,
    }
)
"""By what they are about, for documentation."""

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {function.name: function for functions in SECTIONS.values() for function in functions}
)


def is_table_function(name: str) -> bool:
    """Whether a function of that name makes several rows of one."""
    return name in FUNCTIONS and FUNCTIONS[name].kind == "table"


def is_aggregate(name: str) -> bool:
    """Whether a function of that name is an aggregate."""
    return name in FUNCTIONS and FUNCTIONS[name].kind == "aggregate"
