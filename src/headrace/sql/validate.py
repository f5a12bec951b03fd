"""Checking statements without doing anything: each is planned as if those before it had happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.sql.declare import source_from
from headrace.sql.functions import FUNCTIONS
from headrace.sql.insert import plan_insert
from headrace.sql.parser import parse
from headrace.sql.plan import PersistentQuery, PullQuery, PushQuery
from headrace.sql.planner import plan_query, plan_select
from headrace.sql.scope import find_source
from headrace.sql.script import did_you_mean
from headrace.sql.source import Source, Sources
from headrace.sql.statements import (
    CreateAsSelect,
    CreateSource,
    Describe,
    DescribeFunction,
    Drop,
    Explain,
    InsertValues,
    SelectStatement,
    Statement,
)
from headrace.types import display_name

# What a statement turns into, if anything.
Meaning = Source | PersistentQuery | PullQuery | PushQuery | tuple[Source, list[dict[str, Any]]] | None


class Draft:
    """A catalog as it would be: another one's sources, and changes nobody else sees."""

    def __init__(self, base: Sources | None = None) -> None:
        self._sources = {source.name: source for source in (base.sources() if base else ())}

    def source(self, name: str) -> Source | None:
        return self._sources.get(name)

    def sources(self) -> Iterable[Source]:
        return tuple(self._sources.values())

    def add(self, source: Source) -> None:
        self._sources[source.name] = source

    def remove(self, name: str) -> None:
        self._sources.pop(name, None)


def validate(
    text: str, sources: Sources | None = None, variables: Mapping[str, str] | None = None
) -> list[tuple[Statement, Meaning]]:
    """Every statement and what it means; `SqlError` at the first that could not be run."""
    draft = Draft(sources)
    return [(statement, check(statement, draft)) for statement in parse(text, variables)]


def check(statement: Statement, draft: Draft) -> Meaning:
    """What the statement means, after which the draft is as if it had run."""
    match statement:
        case CreateSource():
            source = source_from(statement, draft)
            draft.add(source)
            return source
        case CreateAsSelect():
            query = plan_query(statement, draft)
            draft.add(query.sink)
            return query
        case InsertValues():
            return plan_insert(statement, draft)
        case SelectStatement():
            return plan_select(statement, draft)
        case Explain(explained) if explained is not None:
            # A query that is explained is not created.
            return check(explained, Draft(draft))
        case Describe():
            return find_source(statement.script, draft, statement.target)
        case DescribeFunction():
            check_function(statement)
        case Drop():
            check_drop(statement, draft)
            draft.remove(statement.name)
    return None


def check_drop(statement: Drop, sources: Sources) -> Source | None:
    """What DROP drops; None if there is nothing and IF EXISTS says that is fine."""
    if statement.if_exists and sources.source(statement.name) is None:
        return None
    found = find_source(statement.script, sources, statement.target)
    if found.kind != statement.kind:
        name = display_name(found.name)
        message, hint = f"`{name}` is a {found.kind}", f"DROP {found.kind.upper()} {name}"
        raise statement.script.error(message, statement.target.span, hint)
    return found


def check_function(statement: DescribeFunction) -> None:
    """`SqlError` if there is no such function."""
    if statement.name not in FUNCTIONS:
        hint = did_you_mean(statement.name, FUNCTIONS, "SHOW FUNCTIONS; lists all")
        raise statement.script.error(f"function `{statement.name}` does not exist", statement.function.span, hint)
