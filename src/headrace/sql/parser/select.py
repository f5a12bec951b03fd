"""SELECT … FROM … [WINDOW …] [WHERE …] [GROUP BY …] [PARTITION BY …] [HAVING …] [ORDER BY …] [EMIT …] [LIMIT n]."""

from __future__ import annotations

from typing import Literal

from headrace.sql.clauses import (
    UNIT_MS,
    Duration,
    JoinClause,
    OrderItem,
    Query,
    Relation,
    SelectAll,
    SelectFields,
    SelectItem,
    WindowClause,
    WithinClause,
)
from headrace.sql.expressions import Expression
from headrace.sql.parser.cursor import Cursor
from headrace.sql.parser.expressions import parse_expression

_UNITS = {name: unit for unit in UNIT_MS for name in (unit, unit + "S")}
_WINDOWS: dict[str, Literal["tumbling", "hopping", "session"]] = {
    "TUMBLING": "tumbling",
    "HOPPING": "hopping",
    "SESSION": "session",
}
_JOINS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS")
_JOIN_KINDS: dict[str, Literal["inner", "left", "right", "full"]] = {
    "INNER": "inner",
    "LEFT": "left",
    "RIGHT": "right",
    "FULL": "full",
    "OUTER": "full",
}


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
    group_by = _parse_by(cursor, "GROUP")
    group_span = cursor.span_since(grouping) if group_by else None
    partition_by = _parse_by(cursor, "PARTITION")
    group_span = group_span or (cursor.span_since(grouping) if partition_by else None)
    having = parse_expression(cursor) if cursor.accept_word("HAVING") else None
    order_by = _parse_order_by(cursor)
    emit = _parse_emit(cursor)
    limit = _parse_limit(cursor)
    # ksqlDB wants EMIT before LIMIT; either order is plain enough.
    emit = emit or _parse_emit(cursor)
    return Query(
        items=items,
        relation=relation,
        where=where,
        window=window,
        group_by=group_by,
        having=having,
        order_by=order_by,
        emit=emit,
        limit=limit,
        partition_by=partition_by,
        span=cursor.span_since(first),
        group_span=group_span,
    )


def _parse_items(cursor: Cursor) -> tuple[SelectItem | SelectAll | SelectFields, ...]:
    items = [_parse_item(cursor)]
    while cursor.accept_operator(","):
        items.append(_parse_item(cursor))
    return tuple(items)


def _parse_item(cursor: Cursor) -> SelectItem | SelectAll | SelectFields:
    first = cursor.token
    if cursor.accept_operator("*"):
        return SelectAll(None, cursor.span(first))
    if cursor.peek(1).text == "." and cursor.peek(2).text == "*":
        source = cursor.identifier("a stream or table")
        cursor.advance()
        cursor.advance()
        return SelectAll(source, cursor.span_since(first))
    expression = parse_expression(cursor)
    if cursor.accept_operator("->"):
        cursor.expect_operator("*")
        return SelectFields(expression, cursor.span_since(first))
    return SelectItem(expression, cursor.alias())


def _parse_relation(cursor: Cursor) -> Relation:
    if cursor.at_operator("(") or cursor.at_word("SELECT"):
        raise cursor.unsupported("a subquery", hint="CREATE STREAM … AS SELECT it first, then select from that")
    source = cursor.identifier("a stream or table")
    alias = cursor.alias()
    if cursor.at_word("MATCH_RECOGNIZE"):
        raise cursor.script.error("MATCH_RECOGNIZE is planned", cursor.span(cursor.token), unsupported=True)
    if cursor.at_operator(","):
        raise cursor.unsupported("a join without ON", hint="write a JOIN b ON a.x = b.y")
    joins: list[JoinClause] = []
    while cursor.at_word(*_JOINS):
        joins.append(_parse_join(cursor))
    return Relation(source, alias, tuple(joins))


def _parse_join(cursor: Cursor) -> JoinClause:
    first = cursor.token
    if cursor.at_word("CROSS"):
        raise cursor.unsupported("CROSS JOIN", hint="write a JOIN b ON a.x = b.y")
    word = cursor.accept_word("INNER", "LEFT", "RIGHT", "FULL", "OUTER") or "INNER"
    if word in ("LEFT", "RIGHT", "FULL"):
        cursor.accept_word("OUTER")
    cursor.expect_word("JOIN")
    source = cursor.identifier("a stream or table")
    alias = cursor.alias()
    within = _parse_within(cursor)
    cursor.expect_word("ON")
    on = parse_expression(cursor)
    return JoinClause(_JOIN_KINDS[word], source, on, alias, within, cursor.span_since(first))


def _parse_within(cursor: Cursor) -> WithinClause | None:
    """`WITHIN 10 SECONDS`, or `WITHIN (10 SECONDS, 1 MINUTE)`: before and after."""
    if not cursor.accept_word("WITHIN"):
        return None
    after = None
    if cursor.accept_operator("("):
        before = parse_duration(cursor)
        if cursor.accept_operator(","):
            after = parse_duration(cursor)
        cursor.expect_operator(")")
    else:
        before = parse_duration(cursor)
    grace = parse_duration(cursor) if cursor.accept_words("GRACE", "PERIOD") else None
    return WithinClause(before, after, grace)


def _parse_by(cursor: Cursor, word: str) -> tuple[Expression, ...]:
    """GROUP BY or PARTITION BY."""
    if not cursor.accept_words(word, "BY"):
        if cursor.at_word(word):
            cursor.advance()
            raise cursor.expected("`BY`")
        return ()
    if cursor.at_operator("(") and cursor.peek().text == ")":
        raise cursor.error(f"{word} BY needs at least one expression")
    # `GROUP BY (a, b)` is a list too, but `GROUP BY (a + b) * 2` is not.
    if cursor.at_operator("(") and _is_list(cursor):
        cursor.advance()
        found = _parse_list(cursor)
        cursor.expect_operator(")")
        return found
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


def _parse_emit(cursor: Cursor) -> Literal["changes", "final"] | None:
    if not cursor.accept_word("EMIT"):
        return None
    return "final" if cursor.expect_word("CHANGES", "FINAL") == "FINAL" else "changes"


def _parse_limit(cursor: Cursor) -> int | None:
    return cursor.integer("a number of rows") if cursor.accept_word("LIMIT") else None


def _parse_window(cursor: Cursor) -> WindowClause | None:
    first = cursor.token
    if not cursor.accept_word("WINDOW"):
        return None
    if cursor.peek().kind == "word" and not cursor.at_word(*_WINDOWS):
        cursor.identifier("a window")  # a name for the window, which nothing refers to
    kind = _WINDOWS[cursor.expect_word(*_WINDOWS)]
    cursor.expect_operator("(")
    if kind != "session":
        cursor.expect_word("SIZE")
    size, advance = parse_duration(cursor), None
    if kind == "hopping":
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
    return WindowClause(kind, size, advance, retention, grace, cursor.span_since(first))


def parse_duration(cursor: Cursor) -> Duration:
    """`10 SECONDS`."""
    amount = cursor.integer("a number")
    word = cursor.accept_word(*_UNITS)
    if word is None:
        raise cursor.expected("a unit of time", hint="MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS")
    return Duration(amount, _UNITS[word])
