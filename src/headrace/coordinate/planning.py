"""A query of the catalog, planned again: what the engine runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.coordinate.base import QueryDefinition, late_topic
from headrace.coordinate.catalog import Catalog
from headrace.errors import HeadraceError, QueryFailed
from headrace.functions.files import FunctionFile
from headrace.functions.signatures import all_functions
from headrace.log.base import Log
from headrace.process.base import JobSpec, LayerSpec, PlanSpec, QuerySpec
from headrace.sql.api import function_versions, parse, plan_insert_select, plan_query, plan_select
from headrace.sql.functions.function import Function
from headrace.sql.layered import layered_query
from headrace.sql.plan import PersistentQuery, Project, PushQuery, may_be_late
from headrace.sql.planner import plan_as_question, transient_query
from headrace.sql.source import Source, Sources
from headrace.sql.statements import CreateAsSelect, Explain, InsertSelect, SelectStatement
from headrace.store.cuts import Cut, offsets_at
from headrace.types import DataType


@dataclass(frozen=True, slots=True)
class PinnedSources:
    """The catalog as one query sees it: of what it reads and writes, its own versions, whichever serves."""

    catalog: Catalog
    topics: Mapping[str, str]
    files: tuple[FunctionFile, ...] = ()
    """Of Python functions, as they were when it was made."""
    keeps_empty: bool = False
    """It was made when empty groups stayed whatever was read, and its state has no count to let them go by."""

    def source(self, name: str) -> Source | None:
        topic = self.topics.get(name)
        found = self.catalog.source_at(name, topic) if topic is not None else None
        found = found or self.catalog.source(name)
        return replace(found, per_batch=False) if found is not None and self.keeps_empty else found

    def sources(self) -> Iterable[Source]:
        return self.catalog.sources()

    def types(self) -> Mapping[str, DataType]:
        return self.catalog.types()

    def functions(self) -> Mapping[str, Function]:
        own = all_functions(self.files, self.catalog.runtime) if self.files else {}
        return {**self.catalog.functions(), **own}


def pinned_sources(query: QueryDefinition, catalog: Catalog) -> PinnedSources:
    topics = {query.sink: query.sink_topic} if query.sink_topic else {}
    sink = catalog.source_at(query.sink, query.sink_topic)
    keeps_empty = sink is not None and sink.kind == "table" and not sink.per_batch
    return PinnedSources(catalog, {**topics, **query.reads}, query.functions, query.keeps_empty or keeps_empty)


def changed_functions(query: QueryDefinition | None, statement: CreateAsSelect, catalog: Catalog) -> list[str]:
    """Of the functions in a query's statement, those that are not any more what the query runs with."""
    if query is None or not (query.functions or catalog.functions()):
        return []
    try:
        now = function_versions(plan_query(statement, catalog))
        before = function_versions(plan_query(statement, pinned_sources(query, catalog)))
    except HeadraceError:
        # A function that is gone: what runs goes on with it.
        return sorted(one.name for file in query.functions for one in file.functions)
    return sorted(name for name in now | before if now.get(name) != before.get(name))


def plan_definition(query: QueryDefinition, catalog: Catalog) -> PersistentQuery:
    [statement] = parse(query.statement)
    sources = pinned_sources(query, catalog)
    sink = catalog.source_at(query.sink, query.sink_topic) or catalog.source(query.sink)
    if sink is None:
        raise QueryFailed(f"query `{query.id}` writes `{query.sink}`, which does not exist")
    if isinstance(statement, CreateAsSelect):
        plan = plan_query(statement, sources)
        return replace(plan, sink=sink, root=_fitted(plan.root, sink))
    if isinstance(statement, InsertSelect):
        return plan_insert_select(statement, sources)
    assert isinstance(statement, SelectStatement)
    push = plan_select(statement, sources)
    if not isinstance(push, PushQuery):
        raise QueryFailed(f"`{query.id}` is a question, not a query that runs on")
    return PersistentQuery(sink, push.root, push.emit, every_ms=push.every_ms)


def _fitted(root: Project, sink: Source) -> Project:
    """What is selected with `*` grows with its source; what is written has the columns it had."""
    names = [column.name for column in sink.value]
    selected = {named.name: named for named in root.value}
    if len(root.value) <= len(names) or any(name not in selected for name in names):
        return root
    return replace(root, value=tuple(selected[name] for name in names))


def query_spec(query: QueryDefinition, catalog: Catalog, checkpoints: Path) -> QuerySpec:
    plan = plan_definition(query, catalog)
    if query.layer:
        plan = layered_query(plan).partial
    return QuerySpec(
        id=query.id,
        version=query.version,
        plan=plan,
        checkpoint=checkpoints / checkpoint_name(query),
        late_topic=late_topic(query.id) if may_be_late(plan.root) and not query.transient else None,
        starts=query.starts,
        rows_per_second=query.rows_per_second,
        until=query.until,
    )


def question_spec(query: QueryDefinition, catalog: Catalog, limit: int) -> JobSpec | PlanSpec:
    """A question for the engine: what it asks, and where its rows go."""
    [statement] = parse(query.statement)
    if isinstance(statement, Explain):
        plan = plan_explained(statement, pinned_sources(query, catalog))
        if plan is None:
            raise QueryFailed("Spark has no part in it")
        return PlanSpec(query.id, plan, late_topic(query.id) if may_be_late(plan.root) else None)
    sink = catalog.source_at(query.sink, query.sink_topic) or catalog.source(query.sink)
    if sink is None or not isinstance(statement, SelectStatement):
        raise QueryFailed(f"question `{query.id}` is gone")
    return JobSpec(query.id, plan_as_question(statement, pinned_sources(query, catalog)), sink, limit)


def plan_explained(explained: Explain, sources: Sources) -> PersistentQuery | None:
    """What the engine would run; None for what the server answers itself."""
    match explained.statement:
        case CreateAsSelect() as statement:
            return plan_query(statement, sources)
        case InsertSelect() as statement:
            return plan_insert_select(statement, sources)
        case SelectStatement() as statement:
            push = plan_select(statement, sources)
            return transient_query(push, "EXPLAIN") if isinstance(push, PushQuery) else None
    return None


def layer_spec(query: QueryDefinition, catalog: Catalog, log: Log, checkpoints: Path) -> LayerSpec:
    """The job of a batch layer: what it computes, and up to where."""
    layered = layered_query(plan_definition(query, catalog))
    ends = {topic: cut_offsets(log, topic, query.cut) for topic in query.reads.values()}
    version = catalog.version_of(query)
    layers = version.layers if version is not None else None
    epochs = log.epochs()
    return LayerSpec(
        id=query.id,
        plan=layered.partial,
        ends=ends,
        cut=query.cut,
        late_topic=late_topic(layers.speed if layers else "") if may_be_late(layered.partial.root) else None,
        begins={topic: dict(enumerate(begins)) for topic, begins in (layers.begins if layers else {}).items()},
        from_beginning=layered.from_beginning,
        folder=checkpoints / checkpoint_name(query),
        rows_per_second=query.rows_per_second,
        epoch=epochs.at(query.cut).id if epochs is not None and isinstance(query.cut, int) else "",
    )


def cut_offsets(log: Log, topic: str, cut: Cut) -> dict[int, int]:
    """By partition: the first record that is not before the cut."""
    return offsets_at(log, log.snapshot(), topic, cut)


def checkpoint_name(query: QueryDefinition) -> str:
    return f"{query.id}-v{query.version}"
