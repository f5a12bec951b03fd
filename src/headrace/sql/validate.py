"""Checking statements without doing anything: each is planned as if those before it had happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from headrace.nearest import did_you_mean
from headrace.sql.ask_plan import AskQuery
from headrace.sql.create_function import check_drop_function, check_new_function, declared_function
from headrace.sql.declare import altered_source, check_assert, source_from, type_from
from headrace.sql.functions import FUNCTIONS
from headrace.sql.functions.elsewhere import function_hint
from headrace.sql.functions.function import Function
from headrace.sql.insert import plan_insert
from headrace.sql.parser import parse
from headrace.sql.plan import PersistentQuery, PullQuery, PushQuery
from headrace.sql.planner import plan_insert_select, plan_query, plan_select
from headrace.sql.scope import find_source
from headrace.sql.source import Source, Sources
from headrace.sql.statements import (
    AlterSource,
    AssertSource,
    CreateAsSelect,
    CreateFunction,
    CreateSource,
    CreateType,
    Describe,
    DescribeFunction,
    Drop,
    DropFunction,
    DropType,
    Explain,
    InsertSelect,
    InsertValues,
    SelectStatement,
    Statement,
)
from headrace.types import DataType, display_name

# What a statement turns into, if anything.
Meaning = Source | PersistentQuery | PullQuery | AskQuery | PushQuery | tuple[Source, list[dict[str, Any]]] | None


class Draft:
    """A catalog as it would be: another one's sources, and changes nobody else sees."""

    def __init__(self, base: Sources | None = None) -> None:
        self._sources = {source.name: source for source in (base.sources() if base else ())}
        self._types = dict(base.types()) if base else {}
        self._functions = dict(base.functions()) if base else {}

    def source(self, name: str) -> Source | None:
        return self._sources.get(name)

    def sources(self) -> Iterable[Source]:
        return tuple(self._sources.values())

    def types(self) -> Mapping[str, DataType]:
        return self._types

    def add_type(self, name: str, type_: DataType) -> None:
        self._types[name] = type_

    def remove_type(self, name: str) -> None:
        self._types.pop(name, None)

    def functions(self) -> Mapping[str, Function]:
        return self._functions

    def add_function(self, function: Function) -> None:
        self._functions[function.name] = function

    def remove_function(self, name: str) -> None:
        self._functions.pop(name, None)

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
            check_replace(statement, draft)
            source = source_from(statement, draft)
            draft.add(source)
            return source
        case CreateAsSelect():
            check_replace(statement, draft)
            query = plan_query(statement, draft)
            draft.add(replace(query.sink, query=query.sink.name))
            return query
        case InsertSelect():
            return plan_insert_select(statement, draft)
        case InsertValues():
            return plan_insert(statement, draft)
        case CreateType():
            draft.add_type(statement.name, type_from(statement, draft))
        case DropType():
            check_drop_type(statement, draft)
            draft.remove_type(statement.name)
        case AlterSource():
            altered = altered_source(statement, draft)
            draft.add(altered)
            return altered
        case AssertSource():
            check_assert(statement, draft)
        case SelectStatement():
            return plan_select(statement, draft)
        case Explain(explained) if explained is not None:
            # A query that is explained is not created.
            return check(explained, Draft(draft))
        case Describe():
            return find_source(statement.script, draft, statement.target)
        case DescribeFunction():
            check_function(statement, draft)
        case CreateFunction():
            check_new_function(statement, draft)
            draft.add_function(declared_function(statement, draft))
        case DropFunction():
            check_drop_function(statement, draft)
            draft.remove_function(statement.name)
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
    if found.read_only and statement.delete_topic:
        message = f"`{display_name(found.name)}` is a SOURCE: its topic is not deleted with it"
        raise statement.script.error(message, statement.target.span, "leave out DELETE TOPIC")
    return found


def check_replace(statement: CreateSource | CreateAsSelect, sources: Sources) -> None:
    """`SqlError` if OR REPLACE would replace, or be, something that is only read."""
    found = sources.source(statement.name)
    read_only = found is not None and (found.read_only or (isinstance(statement, CreateSource) and statement.read_only))
    if statement.or_replace and read_only:
        message = f"`{display_name(statement.name)}` is a SOURCE: it cannot be replaced"
        hint = f"DROP {statement.kind.upper()} {display_name(statement.name)}; and create it again"
        raise statement.script.error(message, statement.target.span, hint)


def check_drop_type(statement: DropType, sources: Sources) -> bool:
    """Whether there is something to drop; `SqlError` if not and that is not fine."""
    if statement.name in sources.types():
        return True
    if not statement.if_exists:
        hint = did_you_mean(statement.name, sources.types(), "SHOW TYPES; lists all")
        raise statement.script.error(
            f"type `{display_name(statement.name)}` does not exist", statement.target.span, hint
        )
    return False


def check_function(statement: DescribeFunction, sources: Sources) -> Function:
    """The function; `SqlError` if there is none."""
    name = statement.name.upper()
    found = sources.functions().get(name) or FUNCTIONS.get(name)
    if found is None:
        hint = function_hint(name, [*sources.functions(), *FUNCTIONS])
        message = f"function `{display_name(name)}` does not exist"
        raise statement.script.error(message, statement.function.span, hint)
    return found
