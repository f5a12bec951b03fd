"""Statements → text that parses to the same."""

from __future__ import annotations

from functools import singledispatch

from headrace.sql.printer import print_expression, print_literal, print_name, print_string, print_type
from headrace.sql.statements import (
    CreateAsSelect,
    CreateSource,
    Describe,
    DescribeFunction,
    Drop,
    Duration,
    Element,
    Explain,
    InsertValues,
    Print,
    Property,
    Query,
    SelectAll,
    SelectItem,
    SelectStatement,
    Show,
    Statement,
    Terminate,
    WindowClause,
)


def print_statement(statement: Statement) -> str:
    """With its semicolon."""
    return _print(statement) + ";"


@singledispatch
def _print(statement: Statement) -> str:
    raise TypeError(f"not a statement: {statement!r}")


@_print.register
def _create_source(statement: CreateSource) -> str:
    elements = f" ({', '.join(map(_element, statement.elements))})" if statement.elements else ""
    return _create(statement) + elements + _properties(statement.properties)


@_print.register
def _create_as_select(statement: CreateAsSelect) -> str:
    return f"{_create(statement)}{_properties(statement.properties)} AS {print_query(statement.query)}"


def _create(statement: CreateSource | CreateAsSelect) -> str:
    replace = "OR REPLACE " if statement.or_replace else ""
    unless = "IF NOT EXISTS " if statement.if_not_exists else ""
    return f"CREATE {replace}{statement.kind.upper()} {unless}{print_name(statement.name)}"


def _element(element: Element) -> str:
    role = {"key": " KEY", "primary": " PRIMARY KEY", None: ""}[element.role]
    return f"{print_name(element.column.name)} {print_type(element.type)}{role}"


def _properties(properties: tuple[Property, ...]) -> str:
    if not properties:
        return ""
    return " WITH (" + ", ".join(f"{_property_name(one.name)}={print_literal(one.value)}" for one in properties) + ")"


def _property_name(name: str) -> str:
    plain = print_name(name)
    return plain if not plain.startswith("`") else print_string(name)


@_print.register
def _insert(statement: InsertValues) -> str:
    names = ", ".join(print_name(column.name) for column in statement.columns)
    rows = ", ".join("(" + ", ".join(map(print_expression, row)) + ")" for row in statement.rows)
    return f"INSERT INTO {print_name(statement.name)}{f' ({names})' if names else ''} VALUES {rows}"


@_print.register
def _select(statement: SelectStatement) -> str:
    return print_query(statement.query)


def print_query(query: Query) -> str:
    """The SELECT, wherever it stands."""
    source, alias = query.relation.source, query.relation.alias
    parts = [
        "SELECT " + ", ".join(map(_item, query.items)),
        f"FROM {print_name(source.name)}" + (f" AS {print_name(alias.name)}" if alias else ""),
        _window(query.window) if query.window else "",
        f"WHERE {print_expression(query.where)}" if query.where is not None else "",
        "GROUP BY " + ", ".join(map(print_expression, query.group_by)) if query.group_by else "",
        f"HAVING {print_expression(query.having)}" if query.having is not None else "",
        _order_by(query),
        "EMIT CHANGES" if query.emit else "",
        f"LIMIT {query.limit}" if query.limit is not None else "",
    ]
    return " ".join(part for part in parts if part)


def _item(item: SelectItem | SelectAll) -> str:
    if isinstance(item, SelectAll):
        return f"{print_name(item.source.name)}.*" if item.source else "*"
    return print_expression(item.expression) + (f" AS {print_name(item.alias.name)}" if item.alias else "")


def _order_by(query: Query) -> str:
    if not query.order_by:
        return ""
    return "ORDER BY " + ", ".join(
        print_expression(one.expression) + (" DESC" if one.descending else "") for one in query.order_by
    )


def _window(window: WindowClause) -> str:
    parts = [f"SIZE {_duration(window.size)}"]
    if window.advance:
        parts.append(f"ADVANCE BY {_duration(window.advance)}")
    if window.retention:
        parts.append(f"RETENTION {_duration(window.retention)}")
    if window.grace:
        parts.append(f"GRACE PERIOD {_duration(window.grace)}")
    return f"WINDOW {window.kind.upper()} ({', '.join(parts)})"


def _duration(duration: Duration) -> str:
    return f"{duration.amount} {duration.unit}{'S' if duration.amount != 1 else ''}"


@_print.register
def _show(statement: Show) -> str:
    all_, extended = "ALL " if statement.all else "", " EXTENDED" if statement.extended else ""
    return f"SHOW {all_}{statement.subject}{extended}"


@_print.register
def _describe(statement: Describe) -> str:
    return f"DESCRIBE {print_name(statement.name)}" + (" EXTENDED" if statement.extended else "")


@_print.register
def _describe_function(statement: DescribeFunction) -> str:
    return f"DESCRIBE FUNCTION {print_name(statement.name)}"


@_print.register
def _explain(statement: Explain) -> str:
    explained = _print(statement.statement) if statement.statement else print_name(statement.query_id or "")
    return f"EXPLAIN {explained}"


@_print.register
def _drop(statement: Drop) -> str:
    if_exists = "IF EXISTS " if statement.if_exists else ""
    delete = " DELETE TOPIC" if statement.delete_topic else ""
    return f"DROP {statement.kind.upper()} {if_exists}{print_name(statement.name)}{delete}"


@_print.register
def _terminate(statement: Terminate) -> str:
    return f"TERMINATE {print_name(statement.query_id) if statement.query_id else 'ALL'}"


@_print.register
def _print_topic(statement: Print) -> str:
    parts = [
        f"PRINT {print_string(statement.topic)}",
        "FROM BEGINNING" if statement.from_beginning else "",
        f"INTERVAL {statement.interval}" if statement.interval is not None else "",
        f"LIMIT {statement.limit}" if statement.limit is not None else "",
    ]
    return " ".join(part for part in parts if part)
