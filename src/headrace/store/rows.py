"""Expressions over rows that are tuples: the evaluator wants them by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import ColumnRef, Expression, Lambda
from headrace.sql.walk import rebuild, walk
from headrace.types import Column

Row: TypeAlias = tuple[Any, ...]


def names_of(columns: Iterable[Column]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def over_rows(expression: Expression, names: Sequence[str]) -> Callable[[Row], Any]:
    """A function from a row, whose values have these names, to the expression's value."""
    placed = by_place(expression, names)
    if placed is not None:
        return compile_expression(placed)  # type: ignore[return-value]
    compute = compile_expression(expression)
    if not names:
        # A store that was asked for no column may still give something for each row.
        return lambda row: compute({})
    return lambda row: compute(dict(zip(names, row, strict=True)))


def by_place(expression: Expression, names: Sequence[str]) -> Expression | None:
    """The expression with columns known by their place in a row instead of by their name: a tuple is then as good as a
    mapping, and none need be made. None where a lambda adds names of its own to the row."""
    if any(isinstance(node, Lambda) for node in walk(expression)):
        return None
    places = {name: place for place, name in reversed(list(enumerate(names)))}

    def placed(part: Expression) -> Expression:
        if isinstance(part, ColumnRef):
            return replace(part, name=places[part.name])  # type: ignore[arg-type]
        return rebuild(part, placed)

    return placed(expression)


def project_rows(expressions: Iterable[Expression], names: Sequence[str]) -> Callable[[Row], Row]:
    """The same for several expressions."""
    functions = [over_rows(expression, names) for expression in expressions]
    if len(functions) == 1:
        [only] = functions
        return lambda row: (only(row),)
    return lambda row: tuple([function(row) for function in functions])
