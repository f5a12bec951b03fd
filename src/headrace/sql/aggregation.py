"""GROUP BY: what is computed per group, and everything above it rewritten to refer to that."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from headrace.sql.clauses import Query
from headrace.sql.expressions import Call, ColumnRef, Comparison, Expression, Logical
from headrace.sql.expressions import Literal as Constant
from headrace.sql.functions import is_aggregate
from headrace.sql.plan import Aggregate, Named, PlanNode
from headrace.sql.resolve import resolve, resolve_predicate
from headrace.sql.scope import Scope, typed
from headrace.sql.source import WINDOW_COLUMNS, Window
from headrace.sql.walk import rebuild, walk
from headrace.types import BOOLEAN, display_name

_BOUNDS = frozenset(column.name for column in WINDOW_COLUMNS)


def has_aggregate(expression: Expression) -> bool:
    """Whether an aggregate is called in it, resolved or not."""
    return any(isinstance(node, Call) and is_aggregate(node) for node in walk(expression))


@dataclass(slots=True)
class Grouping:
    """Collects the aggregates of a query while rewriting what stands above them."""

    scope: Scope
    keys: list[Named]
    window: Window | None
    aggregates: list[Named] = field(default_factory=list)

    def lift(self, expression: Expression) -> Expression:
        """The expression over the groups: keys and aggregates become columns of the Aggregate."""
        for key in self.keys:
            if expression == key.expression:
                return ColumnRef(key.name, type=expression.type, span=expression.span)
        if isinstance(expression, Call) and is_aggregate(expression):
            return self._lift_aggregate(expression)
        if isinstance(expression, ColumnRef) and not (self.window and expression.name in _BOUNDS):
            name = display_name(expression.name)
            if expression.name.startswith("KSQL_SYNTH_"):
                hint = "first CREATE STREAM … AS SELECT the rows it gives, then GROUP BY over that"
                raise self.scope.error("a table function and GROUP BY cannot be in one SELECT", expression.span, hint)
            message = f"column `{name}` is neither in GROUP BY nor in an aggregate"
            raise self.scope.error(message, expression.span, f"GROUP BY {name}, or take MAX({name})")
        return rebuild(expression, self.lift)

    def lift_having(self, condition: Expression) -> Expression:
        """As `lift`; a window's bounds are for the SELECT list alone, as in KSQL."""
        for node in walk(condition):
            if isinstance(node, ColumnRef) and node.name in _BOUNDS and self.window:
                hint = f"SELECT {node.name} AS a column, and filter by that in a query over this one"
                raise self.scope.error(f"{node.name} cannot stand in HAVING", node.span, hint)
        return self.lift(condition)

    def not_empty(self, having: Expression | None) -> Expression:
        """As if HAVING COUNT(*) > 0 had been written, too."""
        some = Comparison(">", Call("COUNT", ()), Constant(0))
        found = self.lift(resolve_predicate(some, self.scope, "HAVING", None))
        return found if having is None else Logical("AND", found, having, type=BOOLEAN)

    def _lift_aggregate(self, call: Call) -> Expression:
        for node in walk(call):
            if isinstance(node, ColumnRef) and node.name in _BOUNDS and self.window:
                message = f"{node.name} cannot stand in an aggregate: it is the same for the whole group"
                raise self.scope.error(message, node.span)
        found = next((named for named in self.aggregates if named.expression == call), None)
        if found is None:
            found = Named(self._fresh(f"KSQL_AGG_{len(self.aggregates)}"), call)
            self.aggregates.append(found)
        return ColumnRef(found.name, type=call.type, span=call.span)

    def _fresh(self, name: str) -> str:
        taken = {named.name for named in self.keys + self.aggregates}
        while name in taken:
            name += "_"
        return name

    def node(self, below: PlanNode, over: Literal["stream", "table"]) -> Aggregate:
        return Aggregate(below, tuple(self.keys), tuple(self.aggregates), self.window, over)


def group(query: Query, scope: Scope, window: Window | None) -> Grouping:
    """The grouping of a query, without aggregates yet."""
    keys: list[Named] = []
    for expression in query.group_by:
        resolved = typed(resolve(expression, scope, "GROUP BY"), scope)
        if any(key.expression == resolved for key in keys):
            raise scope.error("this is in GROUP BY twice", expression.span)
        name = resolved.name if isinstance(resolved, ColumnRef) else f"KSQL_KEY_{len(keys)}"
        keys.append(Named(name, resolved))
    return Grouping(_above(scope, window), keys, window)


def _above(scope: Scope, window: Window | None) -> Scope:
    """What the SELECT list and HAVING see: the source's columns and, with a window, its bounds."""
    bounds = {column.name: column.type for column in WINDOW_COLUMNS} if window else {}
    extra = {**scope.extra, **{name: name for name in bounds}}
    return replace(scope, columns={**scope.columns, **bounds}, extra=extra)
