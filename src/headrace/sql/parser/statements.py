"""One function per statement, found by its first words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast, get_args

from headrace.sql.clauses import Element, Identifier, SourceKind
from headrace.sql.expressions import Expression, Span
from headrace.sql.parser.cursor import Cursor
from headrace.sql.parser.expressions import parse_expression
from headrace.sql.parser.functions import parse_create_function, parse_drop_function
from headrace.sql.parser.other import (
    parse_assert,
    parse_create_type,
    parse_define,
    parse_drop_type,
    parse_pause,
    parse_print,
    parse_run,
    parse_set,
)
from headrace.sql.parser.properties import parse_properties
from headrace.sql.parser.select import parse_query
from headrace.sql.parser.types import parse_type
from headrace.sql.statements import (
    AlterSource,
    AssertSource,
    CreateAsSelect,
    CreateSource,
    Describe,
    DescribeFunction,
    Drop,
    Explain,
    InsertSelect,
    InsertValues,
    SelectStatement,
    Show,
    ShowSubject,
    Statement,
    Terminate,
)

# ksqlDB runs Kafka's connectors; Headrace collects and delivers without them.
_CONNECTORS = "what a connector would bring in is sent over HTTP or by an agent: docs/howto/send-events.md"


def parse_statement(cursor: Cursor) -> Statement:
    """One statement, up to its semicolon or the end of the text."""
    first = cursor.token
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
    if cursor.at_word("TYPE") and not or_replace:
        return parse_create_type(cursor)
    if cursor.at_word("FUNCTION"):
        return parse_create_function(cursor, or_replace)
    read_only = False
    if cursor.at_word("SOURCE", "SINK") and cursor.peek().kind == "word":
        if cursor.at_word("SINK") or cursor.peek().value == "CONNECTOR":
            raise cursor.unsupported("CREATE CONNECTOR", hint=_CONNECTORS)
        cursor.advance()
        read_only = True
    kind = _parse_kind(cursor)
    if_not_exists = cursor.accept_words("IF", "NOT", "EXISTS")
    target = cursor.identifier(f"a name for the {kind}")
    elements = parse_elements(cursor) if cursor.at_operator("(") else ()
    properties = parse_properties(cursor)
    as_ = cursor.token
    if cursor.accept_word("AS"):
        if elements:
            raise cursor.error("AS SELECT takes its columns from the SELECT", as_, "leave out the column list")
        if read_only:
            raise cursor.error("a SOURCE is not written by a query", as_, "leave out SOURCE")
        query = parse_query(cursor)
        return CreateAsSelect(kind, target, query, properties, or_replace, if_not_exists)
    if not elements and not properties:
        raise cursor.expected("`(`, `WITH` or `AS`")
    return CreateSource(kind, target, elements, properties, or_replace, if_not_exists, read_only)


def _parse_kind(cursor: Cursor) -> SourceKind:
    return "stream" if cursor.expect_word("STREAM", "TABLE") == "STREAM" else "table"


def parse_elements(cursor: Cursor) -> tuple[Element, ...]:
    """Columns in brackets. `()` is none: the schema comes from the registry, or there is only a key."""
    cursor.expect_operator("(")
    if cursor.accept_operator(")"):
        return ()
    elements = parse_element_list(cursor)
    if not cursor.accept_operator(")"):
        raise cursor.expected("`,` or `)`")
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
    if cursor.accept_word("PRIMARY"):
        cursor.expect_word("KEY")
        return Element(column, type_, "primary")
    if cursor.accept_word("KEY"):
        return Element(column, type_, "key")
    if cursor.accept_word("HEADERS"):
        return Element(column, type_, "headers")
    if cursor.accept_word("HEADER"):
        cursor.expect_operator("(")
        header = cursor.string("a header's name in quotes")
        cursor.expect_operator(")")
        return Element(column, type_, "headers", header)
    return Element(column, type_)


def _parse_insert(cursor: Cursor) -> Statement:
    cursor.advance()
    cursor.expect_word("INTO")
    target = cursor.identifier("a stream or table")
    if cursor.at_word("SELECT", "WITH"):
        # Without its bracket, WITH names a part of the SELECT.
        properties = parse_properties(cursor) if cursor.peek().text == "(" else ()
        return InsertSelect(target, parse_query(cursor), properties)
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
    if cursor.at_word("CONNECTORS"):
        raise cursor.unsupported("SHOW CONNECTORS", hint=_CONNECTORS)
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
        raise cursor.unsupported("DESCRIBE CONNECTOR", hint=_CONNECTORS)
    if cursor.at_word("STREAMS", "TABLES") and (cursor.peek().text == ";" or cursor.peek().kind in ("word", "end")):
        # ksqlDB's other way to say SHOW … EXTENDED.
        subject = cast(ShowSubject, cursor.advance().value)
        cursor.accept_word("EXTENDED")
        return Show(subject, True)
    extended = _accept_extended(cursor)
    target = cursor.identifier("a stream or table")
    return Describe(target, cursor.accept_word("EXTENDED") is not None or extended)


def _parse_explain(cursor: Cursor) -> Statement:
    cursor.advance()
    extended = _accept_extended(cursor)
    first = cursor.token
    if not cursor.at_word("SELECT", "WITH", "CREATE", "INSERT"):
        return Explain(None, cursor.identifier("a query, or the id of one"), extended)
    explained = parse_query_statement(cursor)
    text = cursor.script.text[first.start : cursor.previous.end]
    start, end = first.start, cursor.previous.end
    return Explain(replace(explained, text=text, start=start, end=end, script=cursor.script), extended=extended)


def _accept_extended(cursor: Cursor) -> bool:
    """Unless something is called that."""
    extended = cursor.at_word("EXTENDED") and cursor.peek().kind in ("word", "quoted")
    if extended:
        cursor.advance()
    return extended


def parse_query_statement(cursor: Cursor) -> SelectStatement | CreateAsSelect | InsertSelect:
    first = cursor.token
    statement = _PARSERS[first.value](cursor)
    if isinstance(statement, SelectStatement | CreateAsSelect | InsertSelect):
        return statement
    raise cursor.error("only a query can be explained", first, "EXPLAIN SELECT …, or EXPLAIN CREATE … AS SELECT …")


def _parse_drop(cursor: Cursor) -> Statement:
    cursor.advance()
    if cursor.at_word("CONNECTOR"):
        raise cursor.unsupported("DROP CONNECTOR", hint=_CONNECTORS)
    if cursor.at_word("TYPE"):
        return parse_drop_type(cursor)
    if cursor.at_word("FUNCTION"):
        return parse_drop_function(cursor)
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


def _parse_alter(cursor: Cursor) -> Statement:
    cursor.advance()
    kind = _parse_kind(cursor)
    target = cursor.identifier(f"the name of a {kind}")
    elements: list[Element] = []
    while not elements or cursor.accept_operator(","):
        cursor.expect_word("ADD")
        cursor.accept_word("COLUMN")
        column = cursor.identifier("a column name")
        elements.append(Element(column, parse_type(cursor)))
    return AlterSource(kind, target, tuple(elements))


def _parse_assert(cursor: Cursor) -> Statement:
    cursor.advance()
    if cursor.at_word("STREAM", "TABLE"):
        kind = _parse_kind(cursor)
        target = cursor.identifier(f"the name of a {kind}")
        elements = parse_elements(cursor) if cursor.at_operator("(") else ()
        return AssertSource(kind, target, elements, parse_properties(cursor))
    return parse_assert(cursor)


_PARSERS: Mapping[str, Callable[[Cursor], Statement]] = {
    "ALTER": _parse_alter,
    "ASSERT": _parse_assert,
    "CREATE": _parse_create,
    "INSERT": _parse_insert,
    "SELECT": _parse_select,
    "WITH": _parse_select,
    "SHOW": _parse_show,
    "LIST": _parse_show,
    "DESCRIBE": _parse_describe,
    "EXPLAIN": _parse_explain,
    "DROP": _parse_drop,
    "TERMINATE": _parse_terminate,
    "PRINT": parse_print,
    "PAUSE": parse_pause,
    "RESUME": parse_pause,
    "DEFINE": parse_define,
    "UNDEFINE": parse_define,
    "SET": parse_set,
    "UNSET": parse_set,
    "RUN": parse_run,
}
KEYWORDS = tuple(_PARSERS)
