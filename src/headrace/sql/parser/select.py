"""[WITH …] SELECT … FROM … [WINDOW …] [WHERE …] [GROUP BY …] [PARTITION BY …] [HAVING …] [ORDER BY …] [EMIT …]
[LIMIT n]."""

from __future__ import annotations

from typing import Literal

from headrace.sql.clauses import Duration, Query, SelectAll, SelectFields, SelectItem, WindowClause
from headrace.sql.expressions import Expression
from headrace.sql.parser.cursor import Cursor
from headrace.sql.parser.expressions import parse_expression
from headrace.sql.parser.over import parse_list, parse_order_by
from headrace.sql.parser.relation import parse_common, parse_duration, parse_relation

_WINDOWS: dict[str, Literal["tumbling", "hopping", "session"]] = {
    "TUMBLING": "tumbling",
    "HOPPING": "hopping",
    "SESSION": "session",
}


def parse_query(cursor: Cursor) -> Query:
    first = cursor.token
    common = parse_common(cursor, parse_query)
    cursor.expect_word("SELECT")
    distinct = cursor.accept_word("DISTINCT") is not None
    items = _parse_items(cursor)
    cursor.expect_word("FROM")
    relation = parse_relation(cursor, parse_query)
    window = _parse_window(cursor)
    where = parse_expression(cursor) if cursor.accept_word("WHERE") else None
    grouping = cursor.token
    group_by = _parse_by(cursor, "GROUP")
    group_span = cursor.span_since(grouping) if group_by else None
    partition_by = _parse_by(cursor, "PARTITION")
    group_span = group_span or (cursor.span_since(grouping) if partition_by else None)
    having = parse_expression(cursor) if cursor.accept_word("HAVING") else None
    order_by = parse_order_by(cursor, parse_expression)
    emit, every = _parse_emit(cursor)
    limit, offset = _parse_limit(cursor)
    # ksqlDB wants EMIT before LIMIT; either order is plain enough.
    if emit is None:
        emit, every = _parse_emit(cursor)
    refresh = _parse_refresh(cursor)
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
        distinct=distinct,
        offset=offset,
        every=every,
        refresh=refresh,
        common=common,
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
    return SelectItem(expression, cursor.alias(in_list=True))


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
        found = parse_list(cursor, parse_expression)
        cursor.expect_operator(")")
        return found
    return parse_list(cursor, parse_expression)


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


def _parse_emit(cursor: Cursor) -> tuple[Literal["changes", "final"] | None, Duration | None]:
    """`EMIT FINAL`, or `EMIT CHANGES [EVERY duration]`."""
    if not cursor.accept_word("EMIT"):
        return None, None
    if cursor.expect_word("CHANGES", "FINAL") == "FINAL":
        return "final", None
    return "changes", parse_duration(cursor) if cursor.accept_word("EVERY") else None


def _parse_refresh(cursor: Cursor) -> Duration | None:
    """`REFRESH EVERY duration`."""
    if not cursor.accept_word("REFRESH"):
        return None
    cursor.expect_word("EVERY")
    return parse_duration(cursor)


def _parse_limit(cursor: Cursor) -> tuple[int | None, int | None]:
    if not cursor.accept_word("LIMIT"):
        return None, None
    limit = cursor.integer("a number of rows")
    return limit, cursor.integer("a number of rows") if cursor.accept_word("OFFSET") else None


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
        if not cursor.accept_operator(","):
            raise cursor.expected("`,`", "such as HOPPING (SIZE 1 MINUTE, ADVANCE BY 10 SECONDS)")
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
