"""SELECT … FROM … [WINDOW …] [WHERE …] [GROUP BY …] [HAVING …] [ORDER BY …] [EMIT CHANGES] [LIMIT n]."""

from __future__ import annotations

from typing import Literal

from headrace.sql.expressions import Expression
from headrace.sql.parser.cursor import Cursor
from headrace.sql.parser.expressions import parse_expression
from headrace.sql.statements import (
    UNIT_MS,
    Duration,
    OrderItem,
    Query,
    Relation,
    SelectAll,
    SelectItem,
    WindowClause,
)

_UNITS = {name: unit for unit in UNIT_MS for name in (unit, unit + "S")}
_JOINS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS")


def parse_query(cursor: Cursor) -> Query:
    first = cursor.token
    cursor.expect_word("SELECT")
    if cursor.at_word("DISTINCT"):
        raise cursor.unsupported("SELECT DISTINCT", hint="GROUP BY the columns instead")
    items = _parse_items(cursor)
    cursor.expect_word("FROM")
    relation = _parse_relation(cursor)
    window = _parse_window(cursor)
    where = parse_expression(cursor) if cursor.accept_word("WHERE") else None
    grouping = cursor.token
    group_by = _parse_group_by(cursor)
    group_span = cursor.span_since(grouping) if group_by else None
    if cursor.at_word("PARTITION"):
        raise cursor.unsupported("PARTITION BY")
    having = parse_expression(cursor) if cursor.accept_word("HAVING") else None
    order_by = _parse_order_by(cursor)
    emit = _parse_emit(cursor)
    limit = _parse_limit(cursor)
    # ksqlDB wants EMIT before LIMIT; either order is plain enough.
    emit = emit or _parse_emit(cursor)
    return Query(
        items, relation, where, window, group_by, having, order_by, emit, limit, cursor.span_since(first), group_span
    )


def _parse_items(cursor: Cursor) -> tuple[SelectItem | SelectAll, ...]:
    items = [_parse_item(cursor)]
    while cursor.accept_operator(","):
        items.append(_parse_item(cursor))
    return tuple(items)


def _parse_item(cursor: Cursor) -> SelectItem | SelectAll:
    first = cursor.token
    if cursor.accept_operator("*"):
        return SelectAll(None, cursor.span(first))
    if cursor.peek(1).text == "." and cursor.peek(2).text == "*":
        source = cursor.identifier("a stream or table")
        cursor.advance()
        cursor.advance()
        return SelectAll(source, cursor.span_since(first))
    expression = parse_expression(cursor)
    if cursor.at_operator("->"):
        raise cursor.unsupported("`->*`", hint="name the fields one by one: s->a, s->b")
    return SelectItem(expression, cursor.alias())


def _parse_relation(cursor: Cursor) -> Relation:
    if cursor.at_operator("(") or cursor.at_word("SELECT"):
        raise cursor.unsupported("a subquery", hint="CREATE STREAM … AS SELECT it first, then select from that")
    source = cursor.identifier("a stream or table")
    relation = Relation(source, cursor.alias())
    if cursor.at_operator(","):
        raise cursor.unsupported("a join")
    if cursor.at_word(*_JOINS):
        raise cursor.unsupported("JOIN")
    return relation


def _parse_group_by(cursor: Cursor) -> tuple[Expression, ...]:
    if not cursor.accept_words("GROUP", "BY"):
        if cursor.at_word("GROUP"):
            cursor.advance()
            raise cursor.expected("`BY`")
        return ()
    # `GROUP BY (a, b)` is a list too, but `GROUP BY (a + b) * 2` is not.
    if cursor.at_operator("(") and _is_list(cursor):
        cursor.advance()
        group_by = _parse_list(cursor)
        cursor.expect_operator(")")
        return group_by
    return _parse_list(cursor)


def _is_list(cursor: Cursor) -> bool:
    """Whether the bracket here holds a comma of its own."""
    level, ahead = 0, 0
    while True:
        token = cursor.peek(ahead)
        if token.kind == "end":
            return False
        if token.kind == "operator":
            level += (token.text in "([") - (token.text in ")]")
            if level == 0:
                return False
            if level == 1 and token.text == ",":
                return True
        ahead += 1


def _parse_list(cursor: Cursor) -> tuple[Expression, ...]:
    found = [parse_expression(cursor)]
    while cursor.accept_operator(","):
        found.append(parse_expression(cursor))
    return tuple(found)


def _parse_order_by(cursor: Cursor) -> tuple[OrderItem, ...]:
    if not cursor.accept_word("ORDER"):
        return ()
    cursor.expect_word("BY")
    found: list[OrderItem] = []
    while not found or cursor.accept_operator(","):
        expression = parse_expression(cursor)
        found.append(OrderItem(expression, cursor.accept_word("ASC", "DESC") == "DESC"))
    return tuple(found)


def _parse_emit(cursor: Cursor) -> Literal["changes"] | None:
    first = cursor.token
    if not cursor.accept_word("EMIT"):
        return None
    if cursor.at_word("FINAL"):
        raise cursor.unsupported("EMIT FINAL", first)
    cursor.expect_word("CHANGES")
    return "changes"


def _parse_limit(cursor: Cursor) -> int | None:
    return cursor.integer("a number of rows") if cursor.accept_word("LIMIT") else None


def _parse_window(cursor: Cursor) -> WindowClause | None:
    first = cursor.token
    if not cursor.accept_word("WINDOW"):
        return None
    if cursor.peek().kind == "word" and not cursor.at_word("TUMBLING", "HOPPING"):
        cursor.identifier("a window")  # a name for the window, which nothing refers to
    if cursor.at_word("SESSION"):
        raise cursor.unsupported("WINDOW SESSION", first)
    kind = cursor.expect_word("TUMBLING", "HOPPING")
    cursor.expect_operator("(")
    cursor.expect_word("SIZE")
    size = parse_duration(cursor)
    advance = None
    if kind == "HOPPING":
        cursor.expect_operator(",")
        cursor.expect_word("ADVANCE")
        cursor.expect_word("BY")
        advance = parse_duration(cursor)
    retention = grace = None
    while cursor.accept_operator(","):
        if cursor.expect_word("RETENTION", "GRACE") == "GRACE":
            cursor.expect_word("PERIOD")
            grace = parse_duration(cursor)
        else:
            retention = parse_duration(cursor)
    cursor.expect_operator(")")
    lowered: Literal["tumbling", "hopping"] = "hopping" if kind == "HOPPING" else "tumbling"
    return WindowClause(lowered, size, advance, retention, grace, cursor.span_since(first))


def parse_duration(cursor: Cursor) -> Duration:
    """`10 SECONDS`."""
    amount = cursor.integer("a number")
    word = cursor.accept_word(*_UNITS)
    if word is None:
        raise cursor.expected("a unit of time", hint="MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS")
    return Duration(amount, _UNITS[word])
