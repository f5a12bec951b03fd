"""`a IN (SELECT b …)` of a question: a join with the different values of b. A null is equal to nothing, as everywhere:
it is not IN anything, and what is NOT IN is whatever has no partner."""

from __future__ import annotations

from headrace.sql.ask_plan import AskNode, Pair, Select, Unique, Where
from headrace.sql.ask_relation import Surroundings
from headrace.sql.expressions import ColumnRef, Comparison, Expression, In, IsNull, Subquery
from headrace.sql.plan import Named
from headrace.sql.resolve import resolve_predicate
from headrace.sql.scope import Scope
from headrace.types import BOOLEAN


def is_in_query(expression: Expression) -> bool:
    return isinstance(expression, In) and isinstance(expression.options[0], Subquery)


def in_query(node: AskNode, test: In, scope: Scope, around: Surroundings, name: str) -> AskNode:
    """The rows of `node` that pass, with one more column, which nobody knows the name of."""
    [subquery] = test.options
    assert isinstance(subquery, Subquery)
    below = around.plan(subquery.query, around)
    if len(below.columns) != 1:
        message = f"the subquery of IN has one column, not {len(below.columns)}"
        raise scope.error(message, subquery.span, "select the one to look in")
    [column] = below.columns
    asked = ColumnRef(name, type=column.type, span=subquery.span)
    values = Unique(Select(below, (Named(name, ColumnRef(column.name, type=column.type)),)))
    condition = resolve_predicate(Comparison("=", test.operand, asked, span=test.span), scope, "WHERE", "WHERE")
    if not test.negated:
        return Pair("inner", node, values, condition, tests=True)
    return Where(Pair("left", node, values, condition, tests=True), IsNull(asked, type=BOOLEAN))
