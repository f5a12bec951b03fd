"""A SELECT without EMIT → the plan of a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headrace.sql.aggregation import Grouping, group, has_aggregate
from headrace.sql.ask_in import in_query, is_in_query
from headrace.sql.ask_plan import (
    Around,
    AskNode,
    AskQuery,
    Cut,
    Expand,
    Group,
    Pair,
    Read,
    Select,
    Sort,
    Unique,
    Where,
)
from headrace.sql.ask_relation import From, Surroundings, read_from
from headrace.sql.ask_rewrite import narrow
from headrace.sql.clauses import Query, SelectItem
from headrace.sql.coerce import is_ordered
from headrace.sql.expressions import ColumnRef, Expression, In, Literal, Name, OrderItem, Over, Subquery
from headrace.sql.flatten import Flattening, has_table_function
from headrace.sql.plan import Named, Ordering
from headrace.sql.projection import Item, expand_items
from headrace.sql.resolve import resolve, resolve_predicate
from headrace.sql.scope import Scope, typed
from headrace.sql.script import Script
from headrace.sql.source import Sources, Window
from headrace.sql.walk import conjunction, conjuncts, rebuild, walk
from headrace.sql.windows import window_from
from headrace.types import BIGINT, Column

MOST_SUBQUERIES = 20
"""Each is a level of the plan, and every walk over it recurses."""

STREAM_TIME = Column("$stream_time", BIGINT)
"""The log's own column: by it a row knows whether it came too late for its window."""


def plan_question(query: Query, script: Script, sources: Sources) -> AskQuery:
    return AskQuery(narrow(_plan(query, Surroundings(script, sources, _plan))))


def _plan(query: Query, around: Surroundings) -> AskNode:
    _check(query, around.script)
    for one in query.common:
        named = {**around.common, one.name.name: (one.query, around)}
        around = replace(around, common=named)
    return _Planning(query, read_from(query.relation, around), around).plan()


def _check(query: Query, script: Script) -> None:
    if query.emit is not None:
        raise script.error("a subquery has no EMIT", query.span, "EMIT CHANGES stands at the end of the whole SELECT")
    if query.partition_by:
        hint = "leave it out: a pull query's rows are not kept"
        raise script.error("PARTITION BY needs EMIT CHANGES", query.group_span, hint)


@dataclass(slots=True)
class _Planning:
    """One SELECT, clause by clause, in the order they are computed."""

    query: Query
    read: From
    surroundings: Surroundings
    around: list[Named] = field(default_factory=list)

    def plan(self) -> AskNode:
        query, node = self.query, self.read.node
        if query.where is not None:
            node = self._filtered(node, query.where)
        grouped = bool(query.group_by) or any(map(has_aggregate, self._written()))
        node, items, order = self._grouped(node) if grouped else self._plain(node)
        if self.around:
            node = Around(node, tuple(self.around))
        return self._finish(node, items, order)

    def _filtered(self, node: AskNode, where: Expression) -> AskNode:
        """Rows that WHERE lets pass. What is IN a subquery is paired with its values, each of which is there once."""
        parts = conjuncts(where)
        asked = [part for part in parts if is_in_query(part)]
        if len(asked) > MOST_SUBQUERIES:
            message = f"too many subqueries: more than {MOST_SUBQUERIES}"
            raise self.read.scope.error(message, asked[MOST_SUBQUERIES].span, "join what they select in one of them")
        plain = conjunction([part for part in parts if not is_in_query(part)])
        if plain is not None:
            node = Where(node, resolve_predicate(plain, self.read.scope, "WHERE", "WHERE"))
        for number, part in enumerate(asked):
            assert isinstance(part, In)
            node = in_query(node, part, self.read.scope, self.surroundings, f"$in{number}")
        return node

    def _written(self) -> list[Expression]:
        found = [item.expression for item in self.query.items if isinstance(item, SelectItem)]
        found += [one.expression for one in self.query.order_by]
        return found if self.query.having is None else [*found, self.query.having]

    def _plain(self, node: AskNode) -> tuple[AskNode, list[Item], list[Ordering]]:
        query, scope = self.query, replace(self.read.scope, over=True)
        if query.window is not None:
            raise scope.error("WINDOW needs GROUP BY", query.window.span)
        if query.having is not None:
            raise scope.error("HAVING needs GROUP BY", query.having.span, "filter rows with WHERE")
        items = expand_items(query, scope, persistent=False)
        order = [self._ordering(one, items, scope) for one in query.order_by]
        node, items = self._expanded(node, items)
        return node, *self._lifted(items, order)

    def _grouped(self, node: AskNode) -> tuple[AskNode, list[Item], list[Ordering]]:
        query = self.query
        window = self._window()
        grouping = group(query, self.read.scope, window)
        scope = replace(grouping.scope, over=True)
        selected = expand_items(query, scope, persistent=False)
        order = [self._ordering(one, selected, scope) for one in query.order_by]
        node, selected = self._expanded(node, selected)
        items = [replace(item, expression=grouping.lift(item.expression)) for item in selected]
        order = [replace(one, expression=grouping.lift(one.expression)) for one in order]
        having = None
        if query.having is not None:
            having = grouping.lift(resolve_predicate(query.having, grouping.scope, "HAVING", None))
        node = self._group(node, grouping, window)
        node = node if having is None else Where(node, having)
        return node, *self._lifted(items, order)

    def _group(self, node: AskNode, grouping: Grouping, window: Window | None) -> Group:
        keys, aggregates = tuple(grouping.keys), tuple(grouping.aggregates)
        if window is None:
            return Group(node, keys, aggregates)
        return Group(_with_stream_time(node), keys, aggregates, window, "ROWTIME", STREAM_TIME.name)

    def _window(self) -> Window | None:
        clause, script = self.query.window, self.read.scope.script
        if clause is None:
            return None
        if self.read.streams != (True,):
            hint = "FROM one stream; join what its windows hold in a SELECT around it"
            raise script.error("WINDOW is for one stream", clause.span, hint)
        if not self.query.group_by:
            raise script.error("WINDOW needs GROUP BY", clause.span)
        return window_from(clause, script, "changes")

    def _expanded(self, node: AskNode, items: list[Item]) -> tuple[AskNode, list[Item]]:
        flattening = Flattening(self.read.scope)
        lifted = [replace(item, expression=flattening.lift(item.expression)) for item in items]
        return (Expand(node, tuple(flattening.functions)), lifted) if flattening.functions else (node, items)

    def _lifted(self, items: list[Item], order: list[Ordering]) -> tuple[list[Item], list[Ordering]]:
        """Without OVER: what it gives is a column."""
        items = [replace(item, expression=self._lift(item.expression)) for item in items]
        return items, [replace(one, expression=self._lift(one.expression)) for one in order]

    def _lift(self, expression: Expression) -> Expression:
        if not isinstance(expression, Over):
            return rebuild(expression, self._lift)
        found = next((named for named in self.around if named.expression == expression), None)
        if found is None:
            found = Named(f"$over{len(self.around)}", expression)
            self.around.append(found)
        return ColumnRef(found.name, type=expression.type, span=expression.span)

    def _ordering(self, one: OrderItem, items: list[Item], scope: Scope) -> Ordering:
        """By an expression, by the name of a selected column, or by its number."""
        found = ordering(one, items, scope)
        if found.expression.type is not None and not is_ordered(found.expression.type):
            raise scope.error(f"{found.expression.type} has no order", one.expression.span)
        return found

    def _finish(self, node: AskNode, items: list[Item], order: list[Ordering]) -> AskNode:
        query = self.query
        if query.distinct:
            node = Unique(Select(node, tuple(item.named for item in items)))
            node = Sort(node, self._of_selected(items, order)) if order else node
        else:
            node = Sort(node, tuple(order)) if order else node
        if query.limit is not None or query.offset:
            node = Cut(node, query.limit, query.offset or 0)
        return node if query.distinct else Select(node, tuple(item.named for item in items))

    def _of_selected(self, items: list[Item], order: list[Ordering]) -> tuple[Ordering, ...]:
        """Of equal rows one is left, so only what makes them equal can order them."""
        found: list[Ordering] = []
        for written, one in zip(self.query.order_by, order, strict=True):
            item = next((item for item in items if item.expression == one.expression), None)
            if item is None:
                message = "with DISTINCT, ORDER BY takes selected columns"
                raise self.read.scope.error(message, written.expression.span, "select it too")
            found.append(replace(one, expression=ColumnRef(item.name, type=one.expression.type)))
        return tuple(found)


def ordering(one: OrderItem, items: Sequence[Item], scope: Scope) -> Ordering:
    """By an expression, by the name of a selected column, or by its number."""
    wanted = one.expression
    if isinstance(wanted, Literal) and isinstance(wanted.value, int) and not isinstance(wanted.value, bool):
        if not 1 <= wanted.value <= len(items):
            raise scope.error(f"column {wanted.value} does not exist: the SELECT list has {len(items)}", wanted.span)
        return Ordering(items[wanted.value - 1].expression, one.descending)
    if isinstance(wanted, Name) and wanted.source is None:
        found = next((item for item in items if item.name == wanted.name), None)
        if found is not None:
            return Ordering(found.expression, one.descending)
    return Ordering(typed(resolve(wanted, scope, None if scope.over else "ORDER BY"), scope), one.descending)


def _with_stream_time(node: AskNode) -> AskNode:
    """The plan of one stream's rows with one column more."""
    if isinstance(node, Read):
        return replace(node, wanted=(*node.wanted, STREAM_TIME), names=(*node.names, STREAM_TIME.name))
    if isinstance(node, Pair):
        return replace(node, left=_with_stream_time(node.left))
    assert isinstance(node, Where | Expand)
    return replace(node, input=_with_stream_time(node.input))


def is_plain(query: Query) -> bool:
    """Whether one look at one stream or table answers it: a `PullQuery`."""
    relation = query.relation
    if query.where is not None and any(isinstance(part, Subquery) for part in walk(query.where)):
        return False
    beyond = query.common or relation.joins or relation.query or relation.range or query.group_by
    written = [item.expression for item in query.items if isinstance(item, SelectItem)]
    written += [one.expression for one in query.order_by]
    return not (
        beyond
        or query.distinct
        or query.offset
        or query.window
        or query.having
        or query.partition_by
        or any(has_aggregate(part) or _unusual(part) for part in written)
    )


def _unusual(expression: Expression) -> bool:
    return has_table_function(expression) or any(isinstance(node, Over) for node in walk(expression))
