"""The function table: every function SQL knows, listed once. `process.functions` lists the Spark implementations under
the same names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headrace.sql.functions import aggregates, arrays, json_fields, nulls, numbers, strings, tables, times
from headrace.sql.functions.function import Function

_MODULES = (strings, numbers, nulls, times, arrays, json_fields, aggregates, tables)

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {function.name: function for module in _MODULES for function in module.FUNCTIONS}
)


def is_table_function(name: str) -> bool:
    """Whether a function of that name makes several rows of one."""
    return name in FUNCTIONS and FUNCTIONS[name].kind == "table"


def is_aggregate(name: str) -> bool:
    """Whether a function of that name is an aggregate."""
    return name in FUNCTIONS and FUNCTIONS[name].kind == "aggregate"
