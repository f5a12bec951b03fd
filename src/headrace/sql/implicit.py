"""Conversions nobody wrote: a narrower number where a wider one is needed, NULL where a type is known."""

from __future__ import annotations

from dataclasses import replace

from headrace.sql.casting import caster
from headrace.sql.expressions import Cast, Expression, Literal
from headrace.types import DataType


def convert(expression: Expression, target: DataType) -> Expression:
    """To a type it widens to; a constant to any it can be cast to, here and now."""
    if expression.type == target:
        return expression
    if isinstance(expression, Literal):
        if expression.value is None or expression.type is None:
            return replace(expression, type=target)
        return replace(expression, value=caster(expression.type, target)(expression.value), type=target)
    return Cast(expression, target, type=target, span=expression.span)
