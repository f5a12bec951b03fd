"""CREATE FUNCTION and DROP FUNCTION."""

from __future__ import annotations

from headrace.sql.clauses import Element
from headrace.sql.parser.cursor import Cursor
from headrace.sql.parser.types import parse_type
from headrace.sql.statements import CreateFunction, DropFunction, Statement

LANGUAGE = "PYTHON"


def parse_create_function(cursor: Cursor, or_replace: bool) -> Statement:
    """After CREATE [OR REPLACE]."""
    cursor.expect_word("FUNCTION")
    if_not_exists = cursor.accept_words("IF", "NOT", "EXISTS")
    target = cursor.identifier("a name for the function")
    parameters = _parse_parameters(cursor)
    cursor.expect_word("RETURNS")
    table = cursor.accept_word("TABLE") is not None
    returns = parse_type(cursor)
    cursor.expect_word("LANGUAGE")
    language = cursor.token
    if not cursor.accept_word(LANGUAGE):
        hint = f"LANGUAGE {LANGUAGE} is the only one"
        raise cursor.error(f"functions cannot be written in {language.shown}", language, hint)
    cursor.expect_word("AS")
    body = cursor.string("the function's text between $$ and $$")
    return CreateFunction(target, parameters, returns, body, table, or_replace, if_not_exists)


def parse_drop_function(cursor: Cursor) -> Statement:
    """After DROP."""
    cursor.expect_word("FUNCTION")
    if_exists = cursor.accept_words("IF", "EXISTS")
    return DropFunction(cursor.identifier("the name of a function"), if_exists)


def _parse_parameters(cursor: Cursor) -> tuple[Element, ...]:
    cursor.expect_operator("(")
    found: list[Element] = []
    while not cursor.at_operator(")"):
        if found:
            cursor.expect_operator(",")
        name = cursor.identifier("a parameter's name")
        if any(name.name == other.column.name for other in found):
            raise cursor.error(f"parameter `{name.name.lower()}` is there twice", cursor.previous)
        found.append(Element(name, parse_type(cursor)))
    cursor.expect_operator(")")
    return tuple(found)
