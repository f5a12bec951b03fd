"""Statements about neither streams, tables nor queries: types, variables, settings, assertions."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.events import TypeCreated, TypeDropped
from headrace.coordinate.result import StatementResult
from headrace.coordinate.topics import find_topic
from headrace.errors import NotFound, UsageError
from headrace.log.base import Log
from headrace.log.codecs.base import Schemas
from headrace.sql.api import check_assert, check_drop_type, type_from
from headrace.sql.clauses import Duration
from headrace.sql.properties import SETTINGS
from headrace.sql.statements import (
    AssertSchema,
    AssertSource,
    AssertTopic,
    CreateType,
    Define,
    DropType,
    RunScript,
    SetProperty,
)
from headrace.types import display_name

Other = AssertSchema | AssertSource | AssertTopic | CreateType | Define | DropType | RunScript | SetProperty

# How often ASSERT … TIMEOUT looks again.
_LOOK_AGAIN = 0.1
# Of ksqlDB's properties, those that have a meaning here: what every query does anyway.
_OFFSET_RESET = ("auto.offset.reset", "ksql.streams.auto.offset.reset")


def run_other(statement: Other, log: Log, catalog: Catalog) -> StatementResult:
    match statement:
        case CreateType():
            return _create_type(statement, catalog)
        case DropType():
            return _drop_type(statement, catalog)
        case Define():
            return _define(statement)
        case SetProperty():
            return _set_property(statement)
        case AssertSource():
            check_assert(statement, catalog)
            return StatementResult(statement.text, "asserted", f"{statement.kind} is as it should be")
        case AssertTopic():
            return _assert_topic(statement, log)
        case AssertSchema():
            return _assert_schema(statement, log)
        case RunScript():
            raise UsageError(
                "RUN SCRIPT is for where the file is", hint=f"headrace sql --file {statement.path}, or its prompt"
            )


def _create_type(statement: CreateType, catalog: Catalog) -> StatementResult:
    name = display_name(statement.name)
    type_ = type_from(statement, catalog)
    if statement.name in catalog.types():
        return StatementResult(statement.text, "exists", f"type `{name}` exists already")
    catalog.append([TypeCreated(statement.name, type_)])
    return StatementResult(statement.text, "created", f"type `{name}` is {type_}")


def _drop_type(statement: DropType, catalog: Catalog) -> StatementResult:
    """Streams and tables keep the columns they were made with."""
    name = display_name(statement.name)
    if not check_drop_type(statement, catalog):
        return StatementResult(statement.text, "exists", f"there is no type `{name}`")
    catalog.append([TypeDropped(statement.name)])
    return StatementResult(statement.text, "dropped", f"type `{name}` is gone")


def _define(statement: Define) -> StatementResult:
    name = statement.variable.name.lower()
    message = (
        f"`{name}` is not defined any more" if statement.value is None else f"`${{{name}}}` is defined from here on"
    )
    return StatementResult(statement.text, "defined", message)


def _set_property(statement: SetProperty) -> StatementResult:
    """The parser has given it to the statements that follow. Others are accepted, so that scripts written for ksqlDB
    run; settings are in headrace.toml."""
    why = "has no effect: settings are in headrace.toml"
    if statement.property.lower() in _OFFSET_RESET:
        why = "is where EMIT CHANGES and PRINT begin; what keeps something begins with the oldest record anyway"
    elif statement.property.lower() in SETTINGS:
        why = "counts for the rest of this text" if statement.value is not None else "is as it was"
    return StatementResult(statement.text, "set", f"`{statement.property}` {why}")


def _assert_topic(statement: AssertTopic, log: Log) -> StatementResult:
    _wait_until_none(
        lambda: _topic_problem(statement, log), statement.timeout, "headrace topic list shows what there is"
    )
    return StatementResult(statement.text, "asserted", f"topic `{statement.topic}` is as it should be")


def _assert_schema(statement: AssertSchema, log: Log) -> StatementResult:
    hint = "headrace schema list shows what there is"
    _wait_until_none(lambda: _schema_problem(statement, log), statement.timeout, hint)
    return StatementResult(statement.text, "asserted", f"{_schema_text(statement)} is as it should be")


def _wait_until_none(problem: Callable[[], str | None], timeout: Duration | None, hint: str) -> None:
    deadline = time.monotonic() + (timeout.milliseconds / 1000 if timeout else 0)
    while (found := problem()) is not None:
        if time.monotonic() >= deadline:
            raise UsageError(found, hint=hint)
        time.sleep(min(_LOOK_AGAIN, max(deadline - time.monotonic(), 0)))


def _schema_text(statement: AssertSchema) -> str:
    number = f"schema {statement.id}" if statement.id is not None else "schema"
    return number if statement.subject is None else f"{number} of subject `{statement.subject}`"


def _schema_problem(statement: AssertSchema, log: Log) -> str | None:
    if log.schemas is None:
        return "there is no schema registry"
    if statement.subject is not None:
        ids = log.schemas.ids(statement.subject)
        there = bool(ids) if statement.id is None else statement.id in ids
    else:
        there = _has_id(log.schemas, statement.id or 0)
    if there == statement.exists:
        return None
    return f"{_schema_text(statement)} {'exists' if there else 'does not exist'}"


def _has_id(schemas: Schemas, schema_id: int) -> bool:
    try:
        schemas.by_id(schema_id)
    except NotFound:
        return False
    return True


def _topic_problem(statement: AssertTopic, log: Log) -> str | None:
    topic = find_topic(log, statement.topic)
    if not statement.exists:
        return None if topic is None else f"topic `{statement.topic}` exists"
    if topic is None:
        return f"topic `{statement.topic}` does not exist"
    has = {"PARTITIONS": topic.spec.partitions, "REPLICAS": 1}
    for wanted in statement.properties:
        if wanted.name in has and str(wanted.value) != str(has[wanted.name]):
            return f"topic `{statement.topic}` has {has[wanted.name]} {wanted.name.lower()}, not {wanted.value}"
    return None
