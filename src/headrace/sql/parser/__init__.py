"""Tokens → statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.errors import SqlError
from headrace.sql.clauses import Element
from headrace.sql.expressions import Expression, Span
from headrace.sql.named_types import known_type
from headrace.sql.parser.cursor import Cursor
from headrace.sql.parser.expressions import parse_expression as _expression
from headrace.sql.parser.select import parse_query
from headrace.sql.parser.statements import parse_element_list, parse_statement
from headrace.sql.print_statements import print_statement
from headrace.sql.script import Script
from headrace.sql.statements import SetProperty, Statement
from headrace.sql.tokens import tokenize


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement's text, parsed or not: `text` is `whole[start:end]`, with its semicolon if `complete`."""

    text: str
    start: int
    end: int
    complete: bool


def parse(
    text: str, variables: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None
) -> list[Statement]:
    """All statements of a text; the last semicolon may be missing. `SqlError` at the first that cannot be understood.
    `settings` are those of SET before it.

    >>> [statement.text for statement in parse("SHOW STREAMS; DESCRIBE pageviews;")]
    ['SHOW STREAMS;', 'DESCRIBE pageviews;']
    """
    script = Script(text)
    cursor = Cursor(script, tokenize(script, variables))
    cursor.parse_query = parse_query
    statements: list[Statement] = []
    known = {name.lower(): value for name, value in (settings or {}).items()}
    try:
        while cursor.token.kind != "end":
            if not cursor.accept_operator(";"):
                first = cursor.index
                statement = replace(parse_statement(cursor), settings=dict(known))
                known = _after(statement, known)
                substituted = any(token.substituted for token in cursor.tokens[first : cursor.index])
                # It will be parsed again from its text, without the variables: keep it with their values.
                statements.append(replace(statement, text=print_statement(statement)) if substituted else statement)
    except RecursionError:
        # The depth limit is well below Python's, unless whoever called us was already deep in its own calls.
        raise cursor.too_deep(cursor.span(cursor.token)) from None
    return statements


def _after(statement: Statement, settings: dict[str, str]) -> dict[str, str]:
    """The settings for what follows."""
    if not isinstance(statement, SetProperty):
        return settings
    others = {name: value for name, value in settings.items() if name != statement.property.lower()}
    return others if statement.value is None else others | {statement.property.lower(): statement.value}


def parse_expression(text: str) -> Expression:
    """One expression, and nothing after it."""
    script = Script(text)
    cursor = Cursor(script, tokenize(script))
    expression = _expression(cursor)
    if cursor.token.kind != "end":
        raise cursor.expected("the end of the expression")
    return expression


def parse_columns(text: str) -> tuple[Element, ...]:
    """`userid VARCHAR KEY, pageid VARCHAR`: a list of columns without its brackets. Types of CREATE TYPE are not known
    here."""
    script = Script(text)
    cursor = Cursor(script, tokenize(script))
    elements = parse_element_list(cursor)
    if cursor.token.kind != "end":
        raise cursor.expected("`,`")
    return tuple(replace(element, type=known_type(element.type, {}, script)) for element in elements)


def split(text: str) -> list[Piece]:
    """The statements' texts without parsing them; never fails. For prompts and editors: is what was typed complete?"""
    script = Script(text)
    try:
        tokens = tokenize(script)[:-1]
    except SqlError as error:
        return _split_unreadable(script, error)
    pieces: list[Piece] = []
    start: int | None = None
    for token in tokens:
        if token.kind == "operator" and token.text == ";":
            if start is not None:
                pieces.append(Piece(text[start : token.end], start, token.end, True))
            start = None
        elif start is None:
            start = token.start
    if start is not None:
        end = tokens[-1].end
        pieces.append(Piece(text[start:end], start, end, False))
    return pieces


def _split_unreadable(script: Script, error: SqlError) -> list[Piece]:
    """What comes before the unreadable place, and the rest as one incomplete piece."""
    at = script.offset(Span(error.line, error.column))
    pieces = split(script.text[:at]) if at else []
    start = pieces.pop().start if pieces and not pieces[-1].complete else at
    return [*pieces, Piece(script.text[start:], start, len(script.text), False)]
