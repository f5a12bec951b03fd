"""Statements → plans."""

from __future__ import annotations

from headrace.errors import SqlError
from headrace.sql.aggregation import Grouping, group, has_aggregate
from headrace.sql.expressions import ColumnRef, Expression, Literal, Name, Span
from headrace.sql.plan import (
    Filter,
    Ordering,
    PersistentQuery,
    PlanNode,
    Project,
    PullQuery,
    PushQuery,
    Scan,
)
from headrace.sql.projection import Item, expand_items
from headrace.sql.resolve import resolve, resolve_predicate, typed
from headrace.sql.scope import Scope, find_source, source_scope
from headrace.sql.sink import keyed_items, sink_from
from headrace.sql.source import Source, Sources
from headrace.sql.statements import CreateAsSelect, OrderItem, Query, SelectItem, SelectStatement
from headrace.sql.windows import window_from
from headrace.types import display_name


def plan_query(statement: CreateAsSelect, sources: Sources) -> PersistentQuery:
    """What a CREATE … AS SELECT does. Whether the name is taken is the catalog's to say."""
    query, script = statement.query, statement.script
    source = find_source(script, sources, query.relation.source)
    scope = source_scope(script, source, query.relation.alias)
    _check_persistent(statement, source)
    if not _is_grouped(query):
        below, items = _plain(query, source, scope, persistent=True)
        key, value = keyed_items(items, [ColumnRef(column.name, type=column.type) for column in source.key], statement)
        window = source.window
    else:
        below, items, grouping = _grouped(query, source, scope, persistent=True)
        keys: list[Expression] = [ColumnRef(named.name, type=named.expression.type) for named in grouping.keys]
        key, value = keyed_items(items, keys, statement, [grouping.shown(named) for named in grouping.keys])
        window = grouping.window
    root = Project(below, tuple(item.named for item in key), tuple(item.named for item in value))
    return PersistentQuery(sink_from(statement, source, root, window), root)


def plan_select(statement: SelectStatement, sources: Sources) -> PullQuery | PushQuery:
    """EMIT CHANGES makes it a push query."""
    query, script = statement.query, statement.script
    source = find_source(script, sources, query.relation.source)
    scope = source_scope(script, source, query.relation.alias)
    return _plan_push(query, source, scope) if statement.push else _plan_pull(query, source, scope)


def transient_query(push: PushQuery, name: str) -> PersistentQuery:
    """The push query as one that writes a stream of that name, for running it on Spark."""
    partitions = max(source.partitions for source in push.inputs)
    return PersistentQuery(Source(name, "stream", name, (), push.root.columns, partitions=partitions), push.root)


def _plan_push(query: Query, source: Source, scope: Scope) -> PushQuery:
    if query.order_by:
        hint = "leave out EMIT CHANGES to ask for what there is now"
        raise scope.error("changes come in the order they happen", query.order_by[0].expression.span, hint)
    if _is_grouped(query):
        below, items, _ = _grouped(query, source, scope, persistent=False)
    else:
        below, items = _plain(query, source, scope, persistent=False)
    return PushQuery(Project(below, (), tuple(item.named for item in items)), query.limit)


def _plan_pull(query: Query, source: Source, scope: Scope) -> PullQuery:
    if _is_grouped(query):
        hint = "CREATE TABLE … AS SELECT … GROUP BY … and select from that, or add EMIT CHANGES"
        span = query.group_span or _first_aggregate(query) or query.span
        raise scope.script.error("GROUP BY without EMIT CHANGES is not supported yet", span, hint, unsupported=True)
    _check_ungrouped(query, scope)
    items = expand_items(query, source, scope, persistent=False)
    predicate = resolve_predicate(query.where, scope, "WHERE", "WHERE") if query.where is not None else None
    order = tuple(_ordering(one, items, scope) for one in query.order_by)
    return PullQuery(source, tuple(item.named for item in items), predicate, order, query.limit)


def _ordering(one: OrderItem, items: list[Item], scope: Scope) -> Ordering:
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
    return Ordering(typed(resolve(wanted, scope, "ORDER BY"), scope), one.descending)


def _plain(query: Query, source: Source, scope: Scope, *, persistent: bool) -> tuple[PlanNode, list[Item]]:
    """A projection, perhaps of a filter."""
    _check_ungrouped(query, scope)
    return _filtered(query, source, scope), expand_items(query, source, scope, persistent=persistent)


def _grouped(query: Query, source: Source, scope: Scope, *, persistent: bool) -> tuple[PlanNode, list[Item], Grouping]:
    """Groups, perhaps filtered by HAVING, and the items over them."""
    if source.kind == "table":
        message, span = "GROUP BY over a table is not supported yet", query.relation.source.span
        raise scope.script.error(message, span, "group a stream", unsupported=True)
    if not query.group_by:
        hint = "GROUP BY the columns outside the aggregates"
        raise scope.error("an aggregate needs GROUP BY", _first_aggregate(query) or query.span, hint)
    window = window_from(query.window, scope.script) if query.window else None
    grouping = group(query, scope, window)
    selected = expand_items(query, source, grouping.scope, persistent=persistent)
    items = [Item(item.name, grouping.lift(item.expression), item.span) for item in selected]
    having = None
    if query.having is not None:
        having = grouping.lift(resolve_predicate(query.having, grouping.scope, "HAVING", None))
    node: PlanNode = grouping.node(_filtered(query, source, scope))
    return (node if having is None else Filter(node, having)), items, grouping


def _filtered(query: Query, source: Source, scope: Scope) -> PlanNode:
    scan = Scan(source)
    if query.where is None:
        return scan
    return Filter(scan, resolve_predicate(query.where, scope, "WHERE", "WHERE"))


def _is_grouped(query: Query) -> bool:
    return bool(query.group_by) or _first_aggregate(query) is not None


def _first_aggregate(query: Query) -> Span | None:
    expressions = [item.expression for item in query.items if isinstance(item, SelectItem)]
    if query.having is not None:
        expressions.append(query.having)
    return next((expression.span for expression in expressions if has_aggregate(expression)), None)


def _check_ungrouped(query: Query, scope: Scope) -> None:
    if query.window is not None:
        raise scope.error("WINDOW needs GROUP BY", query.window.span)
    if query.having is not None:
        raise scope.error("HAVING needs GROUP BY", query.having.span, "filter rows with WHERE")


def _check_persistent(statement: CreateAsSelect, source: Source) -> None:
    query, script = statement.query, statement.script
    if query.order_by:
        hint = "a stream or table has no order; give it to the SELECT that reads it"
        raise script.error("ORDER BY cannot stand here", query.order_by[0].expression.span, hint)
    if query.limit is not None:
        message = "LIMIT in CREATE … AS SELECT is not supported yet"
        raise script.error(message, query.span, unsupported=True)
    problem = _wrong_kind(statement, source)
    if problem is not None:
        raise problem


def _wrong_kind(statement: CreateAsSelect, source: Source) -> SqlError | None:
    makes = "table" if _is_grouped(statement.query) or source.kind == "table" else "stream"
    if statement.kind == makes:
        return None
    if _is_grouped(statement.query):
        reason = "GROUP BY makes a table"
    else:
        reason = f"`{display_name(source.name)}` is a {source.kind}, and selecting from it makes a {makes}"
    hint = f"write CREATE {makes.upper()} {display_name(statement.name)}"
    return statement.script.error(f"{reason}, not a {statement.kind}", statement.target.span, hint)
