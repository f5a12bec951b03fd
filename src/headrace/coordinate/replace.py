"""ALTER and CREATE OR REPLACE: another definition under the same name, and what is there stays."""

from __future__ import annotations

from dataclasses import replace

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.creating import placed_source
from headrace.coordinate.definitions import with_columns
from headrace.coordinate.events import QueryCreated, SourceCreated
from headrace.coordinate.functions import used_files
from headrace.coordinate.planning import pinned_sources, plan_definition
from headrace.coordinate.result import StatementResult
from headrace.errors import Conflict
from headrace.log.base import Log
from headrace.sql.api import (
    altered_source,
    plan_query,
    print_statement,
    replaced_query_problem,
    replaced_source_problem,
    same_results,
    source_from,
)
from headrace.sql.source import Source
from headrace.sql.statements import AlterSource, CreateAsSelect, CreateSource
from headrace.types import display_name
from headrace.views.versions import version_topic


def alter_definition(statement: AlterSource, log: Log, catalog: Catalog) -> StatementResult:
    """The topic gets the columns too, so that what arrives is kept in them."""
    source = altered_source(statement, catalog)
    added = source.value[-len(statement.elements) :]
    _extend_topic(source, log)
    # Planned again from its text, it must say what it has now.
    text = print_statement(with_columns(source, added))
    catalog.append([SourceCreated(replace(source, statement=text))])
    names = ", ".join(display_name(column.name) for column in added)
    message = f"{source.kind} `{display_name(source.name)}` has {names} too"
    return StatementResult(statement.text, "altered", message)


def replace_definition(
    statement: CreateSource | CreateAsSelect, old: Source, log: Log, catalog: Catalog
) -> StatementResult:
    """CREATE OR REPLACE of something that is there and different. `Conflict` with the reason if it cannot be."""
    if isinstance(statement, CreateSource):
        return _replace_source(statement, old, log, catalog)
    return _replace_query(statement, old, log, catalog)


def apply_in_place(statement: CreateSource | CreateAsSelect, log: Log, catalog: Catalog) -> StatementResult:
    """The same for a change that was planned."""
    old = catalog.source(statement.name)
    assert old is not None
    return replace_definition(statement, old, log, catalog)


def _replace_source(statement: CreateSource, old: Source, log: Log, catalog: Catalog) -> StatementResult:
    new = replace(placed_source(source_from(statement, catalog), catalog), partitions=old.partitions)
    problem = replaced_source_problem(old, new) if old.query is None else "a query writes it"
    if problem:
        raise _refused(old, problem)
    _extend_topic(new, log)
    catalog.append([SourceCreated(new)])
    message = f"{new.kind} `{display_name(new.name)}` is as it is declared now"
    return StatementResult(statement.text, "replaced", message)


def _replace_query(statement: CreateAsSelect, old: Source, log: Log, catalog: Catalog) -> StatementResult:
    """The query goes on from where it was. What it has written stays as it is."""
    query = catalog.query(old.query) if old.query else None
    if query is None:
        raise _refused(old, "no query writes it")
    plan = plan_query(statement, catalog)
    # A later version's topic is its own.
    plan = replace(plan, sink=replace(plan.sink, partitions=old.partitions, topic=_topic(plan.sink, old, catalog)))
    runs = plan_definition(query, catalog)
    if problem := replaced_query_problem(runs, plan):
        raise _refused(old, problem)
    if (runs.refresh_ms is None) != (plan.refresh_ms is None) or (query.layer and not same_results(runs, plan)):
        raise _refused(old, "its layers would be others")
    if not query.layer:
        _extend_topic(plan.sink, log)
    sink = replace(plan.sink, query=query.id, statement=statement.text)
    # The state is the one it was, though its table may say more of itself now.
    keeps_empty = pinned_sources(query, catalog).keeps_empty
    goes_on = replace(query, statement=statement.text, functions=used_files(plan), keeps_empty=keeps_empty)
    catalog.append([SourceCreated(sink), QueryCreated(goes_on)])
    message = f"{sink.kind} `{display_name(sink.name)}` goes on as it is defined now, from where {query.id} is"
    return StatementResult(statement.text, "replaced", message, query_id=query.id)


def _topic(new: Source, old: Source, catalog: Catalog) -> str:
    number = catalog.state.serving.get(old.name, 0)
    return old.topic if old.topic == version_topic(new.topic, number) else new.topic


def _refused(old: Source, problem: str) -> Conflict:
    return Conflict(
        f"{old.kind} `{display_name(old.name)}` exists, defined differently, and cannot be changed in place: {problem}",
        hint="choose another name, or deploy it from a file:  headrace plan says what that does"
        if old.query
        else "choose another name, with a topic of its own:  WITH (KAFKA_TOPIC='…')",
    )


def _extend_topic(source: Source, log: Log) -> None:
    topic = log.topic(source.topic)
    missing = tuple(column for column in source.value if column not in topic.spec.value)
    if topic.spec.kind == "typed" and missing:
        log.alter_topic(replace(topic.spec, value=topic.spec.value + missing))
