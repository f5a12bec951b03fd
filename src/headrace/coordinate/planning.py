"""A query of the catalog, planned again: what the engine runs."""

from __future__ import annotations

from pathlib import Path

from headrace.coordinate.base import QueryDefinition, late_topic
from headrace.coordinate.catalog import Catalog
from headrace.errors import QueryFailed
from headrace.process.base import QuerySpec
from headrace.sql.api import parse, plan_insert_select, plan_query, plan_select
from headrace.sql.plan import PersistentQuery, PushQuery, may_be_late
from headrace.sql.statements import CreateAsSelect, InsertSelect, SelectStatement


def plan_definition(query: QueryDefinition, catalog: Catalog) -> PersistentQuery:
    [statement] = parse(query.statement)
    sink = catalog.source(query.sink)
    if sink is None:
        raise QueryFailed(f"query `{query.id}` writes `{query.sink}`, which does not exist")
    if isinstance(statement, CreateAsSelect):
        plan = plan_query(statement, catalog)
        return PersistentQuery(sink, plan.root, plan.emit)
    if isinstance(statement, InsertSelect):
        return plan_insert_select(statement, catalog)
    assert isinstance(statement, SelectStatement)
    push = plan_select(statement, catalog)
    assert isinstance(push, PushQuery)
    return PersistentQuery(sink, push.root, push.emit)


def query_spec(query: QueryDefinition, catalog: Catalog, checkpoints: Path) -> QuerySpec:
    plan = plan_definition(query, catalog)
    return QuerySpec(
        id=query.id,
        version=query.version,
        plan=plan,
        checkpoint=checkpoints / checkpoint_name(query),
        late_topic=late_topic(query.id) if may_be_late(plan.root) and not query.transient else None,
    )


def checkpoint_name(query: QueryDefinition) -> str:
    return f"{query.id}-v{query.version}"
