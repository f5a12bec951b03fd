"""Statements → plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal as Only

from headrace.errors import SqlError
from headrace.sql.aggregation import Grouping, group, has_aggregate
from headrace.sql.ask import is_plain, ordering, plan_question
from headrace.sql.ask_plan import AskQuery
from headrace.sql.bind import bind
from headrace.sql.clauses import Query, SelectItem
from headrace.sql.every import change_key, every_ms, every_of_table
from headrace.sql.expressions import Call, ColumnRef, Expression, Literal, Span
from headrace.sql.flatten import flatten, has_table_function
from headrace.sql.functions import function_of
from headrace.sql.keys import Keyed, all_of, of_join
from headrace.sql.plan import (
    Filter,
    Named,
    PartitionBy,
    PersistentQuery,
    PlanNode,
    Project,
    PullQuery,
    PushQuery,
    is_per_batch,
)
from headrace.sql.projection import Item, expand_items
from headrace.sql.refresh import refuse_refresh, with_refresh
from headrace.sql.refuse import check_bare_values, refuse_pull_only
from headrace.sql.relation import Input, read_relation
from headrace.sql.resolve import resolve, resolve_predicate
from headrace.sql.scope import Scope, typed
from headrace.sql.sink import check_insert, counts_late, insert_query_name, insert_target, limits_from, sink_from
from headrace.sql.source import Source, Sources, Window
from headrace.sql.statements import CreateAsSelect, InsertSelect, SelectStatement
from headrace.sql.windows import window_from
from headrace.types import display_name

Emit = Only["changes", "final"]


def plan_query(statement: CreateAsSelect, sources: Sources) -> PersistentQuery:
    """What a CREATE … AS SELECT does. Whether the name is taken is the catalog's to say."""
    refuse_pull_only(statement.query, statement.script)
    statement = bind(statement.script, statement, sources.functions())
    source = read_relation(statement.script, statement.query.relation, sources)
    _check_persistent(statement.query, source)
    if problem := _wrong_kind(statement, source):
        raise problem
    root, window = _plan_persistent(statement.query, source)
    planned = PersistentQuery(
        sink_from(statement, source, root, window),
        root,
        statement.query.emit or "changes",
        limits=limits_from(statement),
        counts_late=counts_late(statement, window),
        every_ms=every_of_table(statement.query, source.scope, _is_grouped(statement.query)),
    )
    return with_refresh(planned, statement.query, source.scope)


def plan_insert_select(statement: InsertSelect, sources: Sources) -> PersistentQuery:
    """INSERT INTO … SELECT: one more query that writes to a stream which is there."""
    refuse_pull_only(statement.query, statement.script)
    refuse_refresh(statement.query, statement.script)
    statement = bind(statement.script, statement, sources.functions())
    insert_query_name(statement)
    sink = insert_target(statement, sources)
    source = read_relation(statement.script, statement.query.relation, sources)
    _check_persistent(statement.query, source)
    if _is_grouped(statement.query) or source.table:
        message = "INSERT INTO takes the rows of streams, not the changes of a table"
        raise statement.script.error(message, statement.query.span, "CREATE TABLE … AS SELECT makes a table of it")
    root, window = _plan_persistent(statement.query, source)
    every_of_table(statement.query, source.scope, grouped=False)
    return PersistentQuery(sink, check_insert(statement, sink, root, window), insert=True)


def plan_select(statement: SelectStatement, sources: Sources) -> PullQuery | AskQuery | PushQuery:
    """EMIT CHANGES makes it a push query. Without it, one look at one stream or table is a `PullQuery`, and anything
    beyond that an `AskQuery`."""
    refuse_refresh(statement.query, statement.script)
    statement = bind(statement.script, statement, sources.functions())
    query = statement.query
    if statement.push:
        refuse_pull_only(query, statement.script)
        return _plan_push(query, read_relation(statement.script, query.relation, sources))
    if is_plain(query):
        return _plan_pull(query, read_relation(statement.script, query.relation, sources))
    return plan_question(query, statement.script, sources)


def plan_as_question(statement: SelectStatement, sources: Sources) -> AskQuery:
    """A SELECT without EMIT, also one that a store could answer alone, as a plan for whoever evaluates it."""
    statement = bind(statement.script, statement, sources.functions())
    return plan_question(statement.query, statement.script, sources)


def transient_query(push: PushQuery, name: str) -> PersistentQuery:
    """The push query as one that writes a stream of that name, for running it on Spark."""
    partitions = max(source.partitions for source in push.inputs)
    sink = Source(name, "stream", name, (), push.root.columns, partitions=partitions)
    return PersistentQuery(sink, push.root, push.emit, every_ms=push.every_ms)


def _plan_persistent(query: Query, source: Input) -> tuple[Project, Window | None]:
    """The query's rows with their key, and the window that is part of it."""
    classic = all(one.classic for one in source.sources)
    if _is_grouped(query):
        below, items, grouping = _grouped(query, source, persistent=True)
        keys = [ColumnRef(named.name, type=named.expression.type) for named in grouping.keys]
        shown = [named.expression for named in grouping.keys]
        keyed, window = _named_keys(items, keys, shown, source, query), grouping.window
    elif query.partition_by:
        below, items, moved = _partitioned(query, source)
        keyed, window = all_of(items, moved, source.scope, query), None
    else:
        below, items = _plain(query, source, persistent=True)
        window = source.window
        if source.scope.joined:
            keyed = of_join(items, source, query, optional=any(one.classic for one in source.sources))
        else:
            keyed = all_of(items, source.key.parts, source.scope, query, optional=classic)
    key, value = keyed
    return Project(below, tuple(item.named for item in key), tuple(item.named for item in value)), window


def _named_keys(
    items: list[Item], keys: list[ColumnRef], shown: list[Expression], source: Input, query: Query
) -> Keyed:
    """As `all_of`; a missing key is named as it was written in GROUP BY."""
    selected = [item.expression for item in items]
    if any(key not in selected for key in keys):
        all_of([], shown, source.scope, query)
    return all_of(items, keys, source.scope, query)


def _plan_push(query: Query, source: Input) -> PushQuery:
    if query.order_by:
        hint = "leave out EMIT CHANGES to ask for what there is now"
        raise source.scope.error("changes come in the order they happen", query.order_by[0].expression.span, hint)
    check_bare_values(query, source)
    keys: list[Expression] = list(source.key.parts)
    window = None
    if _is_grouped(query):
        below, items, grouping = _grouped(query, source, persistent=False)
        keys = [ColumnRef(named.name, type=named.expression.type) for named in grouping.keys if query.group_by]
        window = grouping.window
    elif query.partition_by:
        below, items, keys = _partitioned(query, source)
    else:
        below, items = _plain(query, source, persistent=False)
    root = Project(below, (), tuple(item.named for item in items))
    key = change_key(query, items, keys, source, window)
    return PushQuery(root, query.limit, query.emit or "changes", every_ms(query, source.scope), key)


def _plan_pull(query: Query, source: Input) -> PullQuery:
    scope = source.scope
    items = expand_items(query, scope, persistent=False)
    predicate = resolve_predicate(query.where, scope, "WHERE", "WHERE") if query.where is not None else None
    order = tuple(ordering(one, items, scope) for one in query.order_by)
    (side,) = scope.sides
    return PullQuery(side.source, tuple(item.named for item in items), predicate, order, query.limit)


def _plain(query: Query, source: Input, *, persistent: bool) -> tuple[PlanNode, list[Item]]:
    """A projection, perhaps of a filter, perhaps of several rows for one."""
    _check_ungrouped(query, source.scope)
    items = expand_items(query, source.scope, persistent=persistent)
    return _flattened(_filtered(query, source), items, source)


def _flattened(below: PlanNode, items: list[Item], source: Input) -> tuple[PlanNode, list[Item]]:
    node, lifted = flatten(below, items, source.scope)
    if source.table and node is not below:
        span = next(item.span for item in items if has_table_function(item.expression))
        hint = "a row of a table is one row of the result, so that it can be changed"
        raise source.scope.error("a table function needs a stream", span, hint)
    return node, lifted


def _partitioned(query: Query, source: Input) -> tuple[PlanNode, list[Item], list[Expression]]:
    """Rows under another key, and the key's parts as they are in the items."""
    scope = source.scope
    _check_ungrouped(query, scope)
    if source.table:
        raise scope.error("PARTITION BY is for streams", query.group_span, "a table keeps its primary key")
    if source.window is not None:
        raise scope.error("PARTITION BY would lose the window of a windowed source's key", query.group_span)
    moved = [resolve(part, scope, "PARTITION BY") for part in query.partition_by]
    if all(part.type is None for part in moved):
        moved = []
    moved = [typed(part, scope) for part in moved]
    items = expand_items(query, scope, persistent=True, moved=tuple(moved))
    below, lifted = _flattened(_filtered(query, source), items, source)
    named: list[Named] = []
    keys: list[Expression] = []
    for index, part in enumerate(moved):
        name = part.name if isinstance(part, ColumnRef) else f"KSQL_KEY_{index}"
        named.append(Named(name, part))
        keys.append(ColumnRef(name, type=part.type))
    node = PartitionBy(below, tuple(named))
    lifted = [
        replace(item, expression=keys[moved.index(before.expression)]) if before.expression in moved else item
        for before, item in zip(items, lifted, strict=True)
    ]
    return node, lifted, keys


def _grouped(query: Query, source: Input, *, persistent: bool) -> tuple[PlanNode, list[Item], Grouping]:
    """Groups, perhaps filtered by HAVING, and the items over them."""
    scope = source.scope
    if query.partition_by:
        raise scope.error("PARTITION BY and GROUP BY cannot both be there", query.group_span)
    if not query.group_by:
        if persistent:
            hint = "GROUP BY the columns outside the aggregates"
            raise scope.error("an aggregate needs GROUP BY", _first_aggregate(query) or query.span, hint)
        # Whoever only watches may have one group of all rows.
        query = replace(query, group_by=(Literal(1),))
    window = window_from(query.window, scope.script, query.emit or "changes") if query.window else None
    if window is not None and source.table:
        assert query.window is not None
        raise scope.error("WINDOW is for streams: a table's rows change, they do not pass", query.window.span)
    _check_final(query, scope)
    grouping = group(query, scope, window)
    selected = expand_items(query, grouping.scope, persistent=persistent)
    below, selected = _flattened(_filtered(query, source), selected, source)
    items = [replace(item, expression=grouping.lift(item.expression)) for item in selected]
    having = None
    if query.having is not None:
        having = grouping.lift_having(resolve_predicate(query.having, grouping.scope, "HAVING", None))
    if persistent and source.table and is_per_batch(source.node):
        # Whoever only watches sees a group become empty.
        having = grouping.not_empty(having)
    node: PlanNode = grouping.node(below, "table" if source.table else "stream")
    if source.table:
        _check_undo(grouping)
    return (node if having is None else Filter(node, having)), items, grouping


def _check_undo(grouping: Grouping) -> None:
    for named in grouping.aggregates:
        call = named.expression
        function = function_of(call) if isinstance(call, Call) else None
        if function is not None and not function.can_undo:
            message = f"{function.name} cannot be kept over a table: a changed row's old value cannot be taken back"
            hint = "give it a method `undo`" if function.origin else "COUNT, SUM, AVG and COLLECT_LIST can"
            raise grouping.scope.error(message, call.span, hint)


def _filtered(query: Query, source: Input) -> PlanNode:
    if query.where is None:
        return source.node
    return Filter(source.node, resolve_predicate(query.where, source.scope, "WHERE", "WHERE"))


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
    _check_final(query, scope)


def _check_final(query: Query, scope: Scope) -> None:
    if query.emit == "final" and query.window is None:
        raise scope.error("EMIT FINAL needs a WINDOW: without one no result is final", query.span, "EMIT CHANGES")


def _check_persistent(query: Query, source: Input) -> None:
    scope = source.scope
    check_bare_values(query, source)
    if query.order_by:
        hint = "a stream or table has no order; give it to the SELECT that reads it"
        raise scope.error("ORDER BY cannot stand here", query.order_by[0].expression.span, hint)
    if query.limit is not None:
        hint = "LIMIT is for a SELECT that somebody waits for"
        raise scope.error("a stream or table has no LIMIT", query.span, hint)


def _wrong_kind(statement: CreateAsSelect, source: Input) -> SqlError | None:
    makes = "table" if _is_grouped(statement.query) or source.table else "stream"
    if statement.kind == makes:
        return None
    if _is_grouped(statement.query):
        reason = "GROUP BY makes a table"
    elif source.scope.joined:
        reason = f"this join makes a {makes}"
    else:
        kind = "table" if source.table else "stream"
        reason = f"`{display_name(source.sources[0].name)}` is a {kind}, and selecting from it makes a {makes}"
    hint = f"write CREATE {makes.upper()} {display_name(statement.name)}"
    return statement.script.error(f"{reason}, not a {statement.kind}", statement.target.span, hint)
