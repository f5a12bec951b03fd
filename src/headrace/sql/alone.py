"""An expression by itself, over columns that are given: no statement around it, no catalog behind it."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.sql.bind import bind
from headrace.sql.expressions import Expression
from headrace.sql.functions.function import Function
from headrace.sql.parser import parse_expression
from headrace.sql.resolve import resolve, resolve_predicate
from headrace.sql.scope import Scope
from headrace.sql.script import Script
from headrace.types import DataType


def resolve_value(text: str, columns: Mapping[str, DataType], functions: Mapping[str, Function]) -> Expression:
    """`SqlError` if that is no expression over the columns. One that is NULL has the type None."""
    script, expression = _parse(text, functions)
    return resolve(expression, Scope(script, columns), aggregates="an expression of its own")


def resolve_condition(text: str, columns: Mapping[str, DataType], functions: Mapping[str, Function]) -> Expression:
    script, expression = _parse(text, functions)
    return resolve_predicate(expression, Scope(script, columns), "the condition", "the condition")


def _parse(text: str, functions: Mapping[str, Function]) -> tuple[Script, Expression]:
    script = Script(text)
    return script, bind(script, parse_expression(text), functions)
