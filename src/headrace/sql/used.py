"""The columns that a plan uses: what is read, and kept as state, has no others."""

from __future__ import annotations

from headrace.sql.expressions import ColumnRef, Expression
from headrace.sql.plan import Aggregate, Filter, FlatMap, Join, PartitionBy, PlanNode, Project, walk
from headrace.sql.walk import walk as walk_expression


def used_columns(node: PlanNode) -> frozenset[str]:
    """Every name that an expression mentions, and those below a Rename that stand for them."""
    roots = (expression for below in walk(node) for expression in _expressions(below))
    parts = (part for root in roots for part in walk_expression(root))
    return frozenset(part.name for part in parts if isinstance(part, ColumnRef))


def _expressions(node: PlanNode) -> list[Expression]:
    match node:
        case Filter():
            return [node.predicate]
        case FlatMap():
            return [named.expression for named in node.functions]
        case PartitionBy():
            return [named.expression for named in node.key]
        case Join():
            return [node.left_key, node.right_key]
        case Project():
            return [named.expression for named in node.key + node.value]
        case Aggregate():
            return [named.expression for named in node.keys + node.aggregates]
        case _:
            return []
