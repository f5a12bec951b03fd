"""Statements → text that parses to the same."""

from __future__ import annotations

from functools import singledispatch

from headrace.sql.clauses import (
    AsOf,
    CommonTable,
    Duration,
    Element,
    JoinClause,
    OffsetRange,
    Property,
    Query,
    ReadRange,
    Relation,
    SelectAll,
    SelectFields,
    SelectItem,
    TimeRange,
    WindowClause,
    WithinClause,
)
from headrace.sql.expressions import Subquery
from headrace.sql.printer import (
    print_expression,
    print_literal,
    print_name,
    print_operand,
    print_order_by,
    print_part,
    print_string,
    print_type,
)
from headrace.sql.statements import (
    AlterSource,
    AssertSchema,
    AssertSource,
    AssertTopic,
    CreateAsSelect,
    CreateFunction,
    CreateSource,
    CreateType,
    Define,
    Describe,
    DescribeFunction,
    Drop,
    DropFunction,
    DropType,
    Explain,
    InsertSelect,
    InsertValues,
    Pause,
    Print,
    RunScript,
    SelectStatement,
    SetProperty,
    Show,
    Statement,
    Terminate,
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
    source = "SOURCE " if isinstance(statement, CreateSource) and statement.read_only else ""
    return f"CREATE {replace}{source}{statement.kind.upper()} {unless}{print_name(statement.name)}"


def _element(element: Element) -> str:
    role = {"key": " KEY", "primary": " PRIMARY KEY", "headers": " HEADERS", None: ""}[element.role]
    if element.header is not None:
        role = f" HEADER({print_string(element.header)})"
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


@print_part.register
def _subquery(node: Subquery) -> str:
    return print_query(node.query)


def print_query(query: Query) -> str:
    """The SELECT, wherever it stands."""
    parts = [
        _common(query.common),
        ("SELECT DISTINCT " if query.distinct else "SELECT ") + ", ".join(map(_item, query.items)),
        f"FROM {_source(query.relation)}",
        *map(_join, query.relation.joins),
        _window(query.window) if query.window else "",
        f"WHERE {print_expression(query.where)}" if query.where is not None else "",
        "GROUP BY " + ", ".join(map(print_expression, query.group_by)) if query.group_by else "",
        "PARTITION BY " + ", ".join(map(print_expression, query.partition_by)) if query.partition_by else "",
        f"HAVING {print_expression(query.having)}" if query.having is not None else "",
        print_order_by(query.order_by),
        f"EMIT {query.emit.upper()}" if query.emit else "",
        f"EVERY {_duration(query.every)}" if query.every else "",
        f"LIMIT {query.limit}" if query.limit is not None else "",
        f"OFFSET {query.offset}" if query.offset is not None else "",
        f"REFRESH EVERY {_duration(query.refresh)}" if query.refresh else "",
    ]
    return " ".join(part for part in parts if part)


def _common(common: tuple[CommonTable, ...]) -> str:
    named = (f"{print_name(one.name.name)} AS ({print_query(one.query)})" for one in common)
    return "WITH " + ", ".join(named) if common else ""


def _source(read: Relation | JoinClause) -> str:
    if read.query is not None:
        return f"({print_query(read.query)}) AS {print_name(read.source.name)}"
    alias = f" AS {print_name(read.alias.name)}" if read.alias else ""
    return print_name(read.source.name) + (f" {print_range(read.range)}" if read.range else "") + alias


def print_range(range_: ReadRange) -> str:
    match range_:
        case AsOf(kind, tuple(at)):
            return f"AS OF {kind.upper()} " + (f"({', '.join(map(str, at))})" if len(at) > 1 else str(at[0]))
        case AsOf(kind, at):
            return f"AS OF {kind.upper()} {print_literal(at)}"
        case TimeRange(low, high):
            return f"BETWEEN {print_literal(low)} AND {print_literal(high)}"
        case OffsetRange(((None, low, high),)):
            return f"OFFSETS BETWEEN {low} AND {high}"
        case OffsetRange(bounds):
            parts = ", ".join(f"{partition} BETWEEN {low} AND {high}" for partition, low, high in bounds)
            return f"OFFSETS ({parts})"


def _join(join: JoinClause) -> str:
    within = f" {_within(join.within)}" if join.within else ""
    return f"{join.kind.upper()} JOIN {_source(join)}{within} ON {print_expression(join.on)}"


def _within(within: WithinClause) -> str:
    before, after = _duration(within.before), within.after
    grace = f" GRACE PERIOD {_duration(within.grace)}" if within.grace else ""
    return f"WITHIN {f'({before}, {_duration(after)})' if after else before}{grace}"


def _item(item: SelectItem | SelectAll | SelectFields) -> str:
    if isinstance(item, SelectFields):
        return f"{print_operand(item.struct)}->*"
    if isinstance(item, SelectAll):
        return f"{print_name(item.source.name)}.*" if item.source else "*"
    return print_expression(item.expression) + (f" AS {print_name(item.alias.name)}" if item.alias else "")


def _window(window: WindowClause) -> str:
    parts = [("" if window.kind == "session" else "SIZE ") + _duration(window.size)]
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
def _insert_select(statement: InsertSelect) -> str:
    target = print_name(statement.name) + _properties(statement.properties)
    return f"INSERT INTO {target} {print_query(statement.query)}"


@_print.register
def _alter(statement: AlterSource) -> str:
    added = ", ".join(f"ADD COLUMN {_element(element)}" for element in statement.elements)
    return f"ALTER {statement.kind.upper()} {print_name(statement.name)} {added}"


@_print.register
def _create_type(statement: CreateType) -> str:
    unless = "IF NOT EXISTS " if statement.if_not_exists else ""
    return f"CREATE TYPE {unless}{print_name(statement.name)} AS {print_type(statement.type)}"


@_print.register
def _drop_type(statement: DropType) -> str:
    return f"DROP TYPE {'IF EXISTS ' if statement.if_exists else ''}{print_name(statement.name)}"


@_print.register
def _create_function(statement: CreateFunction) -> str:
    replace = "OR REPLACE " if statement.or_replace else ""
    unless = "IF NOT EXISTS " if statement.if_not_exists else ""
    parameters = ", ".join(map(_element, statement.parameters))
    returns = ("TABLE " if statement.table else "") + print_type(statement.returns)
    plain = "$$" not in statement.body + "$"
    body = f"$${statement.body}$$" if plain else print_string(statement.body)
    head = f"CREATE {replace}FUNCTION {unless}{print_name(statement.name)}({parameters})"
    return f"{head} RETURNS {returns} LANGUAGE PYTHON AS {body}"


@_print.register
def _drop_function(statement: DropFunction) -> str:
    return f"DROP FUNCTION {'IF EXISTS ' if statement.if_exists else ''}{print_name(statement.name)}"


@_print.register
def _pause(statement: Pause) -> str:
    word = "RESUME" if statement.resume else "PAUSE"
    return f"{word} {print_name(statement.query_id) if statement.query_id else 'ALL'}"


@_print.register
def _define(statement: Define) -> str:
    if statement.value is None:
        return f"UNDEFINE {print_name(statement.variable.name)}"
    return f"DEFINE {print_name(statement.variable.name)} = {print_string(statement.value)}"


@_print.register
def _set(statement: SetProperty) -> str:
    if statement.value is None:
        return f"UNSET {print_string(statement.property)}"
    return f"SET {print_string(statement.property)} = {print_string(statement.value)}"


@_print.register
def _run_script(statement: RunScript) -> str:
    return f"RUN SCRIPT {print_string(statement.path)}"


@_print.register
def _assert_topic(statement: AssertTopic) -> str:
    topic = f"TOPIC {print_string(statement.topic)}{_properties(statement.properties)}"
    return f"ASSERT {_exists(statement)}{topic}{_timeout(statement)}"


@_print.register
def _assert_schema(statement: AssertSchema) -> str:
    subject = f" SUBJECT {print_string(statement.subject)}" if statement.subject is not None else ""
    id_ = f" ID {statement.id}" if statement.id is not None else ""
    return f"ASSERT {_exists(statement)}SCHEMA{subject}{id_}{_timeout(statement)}"


def _exists(statement: AssertTopic | AssertSchema) -> str:
    return "" if statement.exists else "NOT EXISTS "


def _timeout(statement: AssertTopic | AssertSchema) -> str:
    return f" TIMEOUT {_duration(statement.timeout)}" if statement.timeout else ""


@_print.register
def _assert_source(statement: AssertSource) -> str:
    elements = f" ({', '.join(map(_element, statement.elements))})" if statement.elements else ""
    head = f"ASSERT {statement.kind.upper()} {print_name(statement.name)}"
    return head + elements + _properties(statement.properties)


@_print.register
def _show(statement: Show) -> str:
    all_, extended = "ALL " if statement.all else "", " EXTENDED" if statement.extended else ""
    return f"SHOW {all_}{statement.subject}{extended}"


@_print.register
def _describe(statement: Describe) -> str:
    # These two would be the question what streams or tables there are.
    name = f"`{statement.name}`" if statement.name in ("STREAMS", "TABLES") else print_name(statement.name)
    return f"DESCRIBE {name}" + (" EXTENDED" if statement.extended else "")


@_print.register
def _describe_function(statement: DescribeFunction) -> str:
    return f"DESCRIBE FUNCTION {print_name(statement.name)}"


@_print.register
def _explain(statement: Explain) -> str:
    explained = _print(statement.statement) if statement.statement else print_name(statement.query_id or "")
    return f"EXPLAIN {'EXTENDED ' if statement.extended else ''}{explained}"


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
