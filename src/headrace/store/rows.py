"""Expressions over rows that are tuples: the evaluator wants them by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import Expression
from headrace.types import Column

Row: TypeAlias = tuple[Any, ...]


def names_of(columns: Iterable[Column]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def over_rows(expression: Expression, names: Sequence[str]) -> Callable[[Row], Any]:
    """A function from a row, whose values have these names, to the expression's value."""
    compute = compile_expression(expression)
    return lambda row: compute(dict(zip(names, row, strict=True)))


def project_rows(expressions: Iterable[Expression], names: Sequence[str]) -> Callable[[Row], Row]:
    """The same for several expressions."""
    functions = [compile_expression(expression) for expression in expressions]

    def project(row: Row) -> Row:
        by_name = dict(zip(names, row, strict=True))
        return tuple(function(by_name) for function in functions)

    return project
