"""Statements that neither make nor ask anything of streams and tables: types, variables, settings, assertions."""

from __future__ import annotations

from headrace.sql.clauses import Duration
from headrace.sql.parser.cursor import Cursor
from headrace.sql.parser.properties import parse_properties
from headrace.sql.parser.relation import parse_duration
from headrace.sql.parser.types import parse_type
from headrace.sql.statements import (
    AssertSchema,
    AssertTopic,
    CreateType,
    Define,
    DropType,
    Pause,
    Print,
    RunScript,
    SetProperty,
    Statement,
)


def parse_create_type(cursor: Cursor) -> Statement:
    """After CREATE."""
    cursor.expect_word("TYPE")
    if_not_exists = cursor.accept_words("IF", "NOT", "EXISTS")
    target = cursor.identifier("a name for the type")
    cursor.expect_word("AS")
    return CreateType(target, parse_type(cursor), if_not_exists)


def parse_drop_type(cursor: Cursor) -> Statement:
    """After DROP."""
    cursor.expect_word("TYPE")
    if_exists = cursor.accept_words("IF", "EXISTS")
    return DropType(cursor.identifier("the name of a type"), if_exists)


def parse_pause(cursor: Cursor) -> Statement:
    resume = cursor.expect_word("PAUSE", "RESUME") == "RESUME"
    if cursor.accept_word("ALL"):
        return Pause(None, resume)
    return Pause(cursor.identifier("the id of a query, or ALL"), resume)


def parse_define(cursor: Cursor) -> Statement:
    defines = cursor.expect_word("DEFINE", "UNDEFINE") == "DEFINE"
    variable = cursor.identifier("the name of a variable")
    if not defines:
        return Define(variable)
    cursor.expect_operator("=")
    return Define(variable, cursor.string("a value in quotes"))


def parse_set(cursor: Cursor) -> Statement:
    sets = cursor.expect_word("SET", "UNSET") == "SET"
    name = cursor.string("the name of a property in quotes")
    if not sets:
        return SetProperty(name)
    cursor.expect_operator("=")
    return SetProperty(name, cursor.string("a value in quotes"))


def parse_run(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.expect_word("SCRIPT")
    return RunScript(cursor.string("the path of a file in quotes"))


def parse_print(cursor: Cursor) -> Statement:
    cursor.advance()
    topic = _parse_topic(cursor)
    from_beginning = cursor.accept_words("FROM", "BEGINNING")
    interval = cursor.integer("a number") if cursor.accept_word("INTERVAL", "SAMPLE") else None
    limit = cursor.integer("a number of records") if cursor.accept_word("LIMIT") else None
    return Print(topic, from_beginning, interval, limit)


def _parse_topic(cursor: Cursor) -> str:
    """Topics are case-sensitive: a bare word counts as written."""
    token = cursor.token
    if token.kind not in ("string", "word", "quoted"):
        raise cursor.expected("a topic's name in quotes")
    cursor.advance()
    return token.text if token.kind == "word" else str(token.value)


def parse_assert(cursor: Cursor) -> Statement:
    """ASSERT [NOT EXISTS] TOPIC or SCHEMA, after ASSERT."""
    exists = not cursor.accept_words("NOT", "EXISTS")
    if cursor.expect_word("TOPIC", "SCHEMA") == "TOPIC":
        topic = _parse_topic(cursor)
        properties = parse_properties(cursor)
        return AssertTopic(topic, properties, exists, _parse_timeout(cursor))
    subject = _parse_topic(cursor) if cursor.accept_word("SUBJECT") else None
    id_ = cursor.integer("the number of a schema") if cursor.accept_word("ID") else None
    return AssertSchema(subject, id_, exists, _parse_timeout(cursor))


def _parse_timeout(cursor: Cursor) -> Duration | None:
    return parse_duration(cursor) if cursor.accept_word("TIMEOUT") else None
