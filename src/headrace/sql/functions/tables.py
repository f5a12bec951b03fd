"""Table functions: several rows from one."""

from __future__ import annotations

from itertools import product
from typing import Any

from headrace.sql.functions.function import table

_WIDEST_CUBE = 20


def cube(values: list[Any]) -> list[list[Any]]:
    """Every way to replace elements by null, each once, those with more nulls in front first."""
    if len(values) > _WIDEST_CUBE:
        raise ValueError(f"there are too many ways to choose from more than {_WIDEST_CUBE} elements")
    choices = [(None,) if value is None else (None, value) for value in values]
    return [list(row) for row in product(*choices)]


FUNCTIONS = (
    table("EXPLODE", "(ARRAY<T>) -> T", list, "One row per element.", "EXPLODE(ARRAY[1, 2])"),
    table(
        "CUBE_EXPLODE",
        "(ARRAY<T>) -> ARRAY<T>",
        cube,
        "One row for every way to replace some of the elements by null.",
        "CUBE_EXPLODE(ARRAY['a', 'b'])",
    ),
)
