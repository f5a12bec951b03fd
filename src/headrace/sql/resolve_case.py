"""CASE: conditions, and results of one type."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from headrace.sql.expressions import Case, Comparison, Expression
from headrace.sql.resolve_nested import Walk
from headrace.types import VARCHAR


class Conditions(Walk, Protocol):
    """What the walk over the whole expression gives."""

    def condition(self, node: Expression, what: str) -> Expression: ...


def resolve_case(node: Case, walk: Conditions) -> Expression:
    conditions: list[Expression] = []
    for condition, _ in node.branches:
        if node.operand is not None:
            condition = Comparison("=", node.operand, condition, span=condition.span)
        conditions.append(walk.condition(condition, "WHEN"))
    results = [walk.resolve(result) for _, result in node.branches]
    if node.otherwise is not None:
        results.append(walk.resolve(node.otherwise))
    _check_results(results, walk)
    unified = walk.unify(results, "CASE", node)
    otherwise = unified.pop() if node.otherwise is not None else None
    branches = tuple(zip(conditions, unified, strict=True))
    return replace(node, operand=None, branches=branches, otherwise=otherwise, type=unified[0].type)


def _check_results(results: list[Expression], walk: Conditions) -> None:
    """Text beside something else: which of both is meant would depend on what is constant."""
    text = next((result for result in results if result.type == VARCHAR), None)
    other = next((result for result in results if result.type not in (VARCHAR, None)), None)
    if text is not None and other is not None:
        later = max(text, other, key=results.index)
        hint = "all results have one type; convert with CAST(… AS …)"
        raise walk.scope.error(f"CASE cannot have both {text.type} and {other.type}", later.span, hint)
