"""Table functions of a SELECT list: lifted out of it into a FlatMap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.sql.expressions import Call, Case, ColumnRef, Expression
from headrace.sql.functions import is_aggregate, is_table_function
from headrace.sql.plan import FlatMap, Named, PlanNode
from headrace.sql.projection import Item
from headrace.sql.scope import Scope
from headrace.sql.walk import rebuild, walk


def has_table_function(expression: Expression) -> bool:
    return any(isinstance(node, Call) and is_table_function(node) for node in walk(expression))


@dataclass(slots=True)
class Flattening:
    """Collects the table functions while rewriting what stands above them."""

    scope: Scope
    functions: list[Named] = field(default_factory=list)

    def lift(self, expression: Expression) -> Expression:
        if isinstance(expression, Case) and has_table_function(expression):
            hint = "CREATE STREAM … AS SELECT the rows it gives, then CASE over that"
            raise self.scope.error("a table function cannot stand in CASE", expression.span, hint)
        if not isinstance(expression, Call) or not is_table_function(expression):
            return rebuild(expression, self.lift)
        for argument in expression.arguments:
            for node in walk(argument):
                if isinstance(node, Call) and (is_table_function(node) or is_aggregate(node)):
                    message = f"{expression.name} cannot be given the result of {node.name}"
                    raise self.scope.error(message, node.span, "CREATE STREAM … AS SELECT the inner one first")
        name = f"KSQL_SYNTH_{len(self.functions)}"
        self.functions.append(Named(name, expression))
        return ColumnRef(name, type=expression.type, span=expression.span)


def flatten(below: PlanNode, items: list[Item], scope: Scope) -> tuple[PlanNode, list[Item]]:
    """The items over the rows that their table functions make."""
    flattening = Flattening(scope)
    lifted = [replace(item, expression=flattening.lift(item.expression)) for item in items]
    if not flattening.functions:
        return below, items
    return FlatMap(below, tuple(flattening.functions)), lifted
