"""One function per statement, found by its first words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, cast, get_args

from headrace.sql.expressions import Expression, Span
from headrace.sql.parser.cursor import Cursor
from headrace.sql.parser.expressions import parse_expression
from headrace.sql.parser.properties import parse_properties
from headrace.sql.parser.select import parse_query
from headrace.sql.parser.types import parse_type
from headrace.sql.statements import (
    CreateAsSelect,
    CreateSource,
    Describe,
    DescribeFunction,
    Drop,
    Element,
    Explain,
    Identifier,
    InsertValues,
    Print,
    SelectStatement,
    Show,
    ShowSubject,
    SourceKind,
    Statement,
    Terminate,
)

# ksqlDB's other statements: understood well enough to say that they are not there yet.
_NOT_YET = {
    "ALTER": "ALTER",
    "ASSERT": "ASSERT",
    "DEFINE": "DEFINE",
    "UNDEFINE": "UNDEFINE",
    "SET": "SET",
    "UNSET": "UNSET",
    "PAUSE": "PAUSE",
    "RESUME": "RESUME",
    "RUN": "RUN SCRIPT",
    "SPOOL": "SPOOL",
}
_OTHER_OBJECTS = ("SOURCE", "TYPE", "SINK", "CONNECTOR")


def parse_statement(cursor: Cursor) -> Statement:
    """One statement, up to its semicolon or the end of the text."""
    first = cursor.token
    if first.kind == "word" and first.value in _NOT_YET:
        raise cursor.unsupported(_NOT_YET[first.value])
    if not cursor.at_word(*_PARSERS):
        raise cursor.expected("a statement")
    statement: Statement = _PARSERS[first.value](cursor)
    if not cursor.at_operator(";") and cursor.token.kind != "end":
        raise cursor.expected("`;`")
    cursor.accept_operator(";")
    start, end = first.start, cursor.previous.end
    return replace(statement, text=cursor.script.text[start:end], start=start, end=end, script=cursor.script)


def _parse_create(cursor: Cursor) -> Statement:
    cursor.advance()
    or_replace = cursor.accept_words("OR", "REPLACE")
    if cursor.at_word(*_OTHER_OBJECTS):
        raise cursor.unsupported(f"CREATE {cursor.token.value}")
    kind = _parse_kind(cursor)
    if_not_exists = cursor.accept_words("IF", "NOT", "EXISTS")
    target = cursor.identifier(f"a name for the {kind}")
    elements = _parse_elements(cursor) if cursor.at_operator("(") else ()
    properties = parse_properties(cursor)
    as_ = cursor.token
    if cursor.accept_word("AS"):
        if elements:
            raise cursor.error("AS SELECT takes its columns from the SELECT", as_, "leave out the column list")
        query = parse_query(cursor)
        return CreateAsSelect(kind, target, query, properties, or_replace, if_not_exists)
    if not elements and not properties:
        raise cursor.expected("`(`, `WITH` or `AS`")
    return CreateSource(kind, target, elements, properties, or_replace, if_not_exists)


def _parse_kind(cursor: Cursor) -> SourceKind:
    return "stream" if cursor.expect_word("STREAM", "TABLE") == "STREAM" else "table"


def _parse_elements(cursor: Cursor) -> tuple[Element, ...]:
    cursor.expect_operator("(")
    elements = parse_element_list(cursor)
    cursor.expect_operator(")")
    return elements


def parse_element_list(cursor: Cursor) -> tuple[Element, ...]:
    """Columns without their brackets."""
    elements = [_parse_element(cursor)]
    while cursor.accept_operator(","):
        elements.append(_parse_element(cursor))
    return tuple(elements)


def _parse_element(cursor: Cursor) -> Element:
    column = cursor.identifier("a column name")
    type_ = parse_type(cursor)
    role: Literal["key", "primary"] | None = None
    if cursor.accept_word("PRIMARY"):
        cursor.expect_word("KEY")
        role = "primary"
    elif cursor.accept_word("KEY"):
        role = "key"
    elif cursor.at_word("HEADERS", "HEADER"):
        raise cursor.unsupported(cursor.token.value)
    return Element(column, type_, role)


def _parse_insert(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.expect_word("INTO")
    target = cursor.identifier("a stream or table")
    if cursor.at_word("SELECT", "WITH"):
        raise cursor.unsupported("INSERT INTO … SELECT")
    columns = _parse_column_names(cursor)
    cursor.expect_word("VALUES")
    rows: list[tuple[Expression, ...]] = []
    spans: list[Span] = []
    while not rows or cursor.accept_operator(","):
        first = cursor.token
        rows.append(_parse_row(cursor))
        spans.append(cursor.span_since(first))
    return InsertValues(target, columns, tuple(rows), tuple(spans))


def _parse_column_names(cursor: Cursor) -> tuple[Identifier, ...]:
    names: list[Identifier] = []
    if cursor.accept_operator("("):
        while not names or cursor.accept_operator(","):
            names.append(cursor.identifier("a column name"))
        cursor.expect_operator(")")
    return tuple(names)


def _parse_row(cursor: Cursor) -> tuple[Expression, ...]:
    cursor.expect_operator("(")
    values: list[Expression] = []
    while not values or cursor.accept_operator(","):
        values.append(parse_expression(cursor))
    cursor.expect_operator(")")
    return tuple(values)


def _parse_select(cursor: Cursor) -> Statement:
    return SelectStatement(parse_query(cursor))


def _parse_show(cursor: Cursor) -> Statement:
    cursor.advance()
    all_ = cursor.accept_word("ALL") is not None
    subjects = get_args(ShowSubject)
    if cursor.at_word("CONNECTORS", "TYPES", "VARIABLES"):
        raise cursor.unsupported(f"SHOW {cursor.token.value}")
    if not cursor.at_word(*subjects):
        raise cursor.expected("what to show", hint=cursor.guess() or f"SHOW {', '.join(subjects)}")
    subject = cast(ShowSubject, cursor.advance().value)
    return Show(subject, cursor.accept_word("EXTENDED") is not None, all_)


def _parse_describe(cursor: Cursor) -> Statement:
    cursor.advance()
    if cursor.at_word("FUNCTION") and cursor.peek().kind in ("word", "quoted"):
        cursor.advance()
        return DescribeFunction(cursor.identifier("a function name"))
    if cursor.at_word("CONNECTOR") and cursor.peek().kind in ("word", "quoted"):
        raise cursor.unsupported("DESCRIBE CONNECTOR")
    extended = cursor.at_word("EXTENDED") and cursor.peek().kind in ("word", "quoted")
    if extended:
        cursor.advance()
    target = cursor.identifier("a stream or table")
    return Describe(target, cursor.accept_word("EXTENDED") is not None or extended)


def _parse_explain(cursor: Cursor) -> Statement:
    cursor.advance()
    first = cursor.token
    if not cursor.at_word("SELECT", "CREATE"):
        return Explain(None, cursor.identifier("a query, or the id of one"))
    explained = parse_query_statement(cursor)
    text = cursor.script.text[first.start : cursor.previous.end]
    start, end = first.start, cursor.previous.end
    return Explain(replace(explained, text=text, start=start, end=end, script=cursor.script))


def parse_query_statement(cursor: Cursor) -> SelectStatement | CreateAsSelect:
    first = cursor.token
    statement = _parse_select(cursor) if cursor.at_word("SELECT") else _parse_create(cursor)
    if isinstance(statement, SelectStatement | CreateAsSelect):
        return statement
    raise cursor.error("only a query can be explained", first, "EXPLAIN SELECT …, or EXPLAIN CREATE … AS SELECT …")


def _parse_drop(cursor: Cursor) -> Statement:
    cursor.advance()
    if cursor.at_word("TYPE", "CONNECTOR"):
        raise cursor.unsupported(f"DROP {cursor.token.value}")
    kind = _parse_kind(cursor)
    if_exists = cursor.accept_words("IF", "EXISTS")
    target = cursor.identifier(f"the name of a {kind}")
    delete_topic = cursor.accept_words("DELETE", "TOPIC")
    return Drop(kind, target, if_exists, delete_topic)


def _parse_terminate(cursor: Cursor) -> Statement:
    cursor.advance()
    if cursor.accept_word("ALL"):
        return Terminate()
    if cursor.at_word("QUERY") and cursor.peek().kind in ("word", "quoted"):
        cursor.advance()
    return Terminate(cursor.identifier("the id of a query, or ALL"))


def _parse_print(cursor: Cursor) -> Statement:
    cursor.advance()
    token = cursor.token
    if token.kind not in ("string", "word", "quoted"):
        raise cursor.expected("a topic's name in quotes")
    # Topics are case-sensitive: a bare word counts as written.
    topic = token.text if token.kind == "word" else token.value
    cursor.advance()
    from_beginning = cursor.accept_words("FROM", "BEGINNING")
    interval = cursor.integer("a number") if cursor.accept_word("INTERVAL", "SAMPLE") else None
    limit = cursor.integer("a number of records") if cursor.accept_word("LIMIT") else None
    return Print(topic, from_beginning, interval, limit)


_PARSERS: Mapping[str, Callable[[Cursor], Statement]] = {
    "CREATE": _parse_create,
    "INSERT": _parse_insert,
    "SELECT": _parse_select,
    "SHOW": _parse_show,
    "LIST": _parse_show,
    "DESCRIBE": _parse_describe,
    "EXPLAIN": _parse_explain,
    "DROP": _parse_drop,
    "TERMINATE": _parse_terminate,
    "PRINT": _parse_print,
}
KEYWORDS = tuple(_PARSERS)
