"""WITH (NAME = value, …), as ksqlDB and classic KSQL write it."""

from __future__ import annotations

from typing import Any

from headrace.sql.clauses import Property
from headrace.sql.parser.cursor import Cursor

_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}


def parse_properties(cursor: Cursor) -> tuple[Property, ...]:
    """The clause, or nothing if it is not there."""
    if not cursor.accept_word("WITH"):
        return ()
    cursor.expect_operator("(")
    found: list[Property] = []
    while not cursor.at_operator(")"):
        if found:
            cursor.expect_operator(",")
        token = cursor.token
        one = _parse_property(cursor)
        if any(one.name == other.name for other in found):
            raise cursor.error(f"`{one.name}` is there twice", token)
        found.append(one)
    cursor.expect_operator(")")
    return tuple(found)


def _parse_property(cursor: Cursor) -> Property:
    name = cursor.token
    if name.kind == "string":
        cursor.advance()
    else:
        cursor.identifier("a property name")
    cursor.expect_operator("=")
    first = cursor.token
    value = _parse_value(cursor)
    return Property(str(name.value).upper(), value, cursor.span(name), cursor.span_since(first))


def _parse_value(cursor: Cursor) -> Any:
    negative = cursor.accept_operator("-") is not None
    token = cursor.token
    if token.kind in ("integer", "decimal"):
        value = cursor.advance().value
        return -value if negative else value
    if negative or token.kind not in ("string", "word", "quoted"):
        raise cursor.expected("a value", hint="strings are written in single quotes")
    cursor.advance()
    if token.kind == "word":
        # Classic KSQL: `kafka_topic=visitors`. Topics are case-sensitive, so the word counts as written.
        return _CONSTANTS.get(token.value, token.text)
    return token.value
