"""`… OVER (PARTITION BY … ORDER BY … ROWS|RANGE …)` after a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from headrace.sql.expressions import Call, Expression, Frame, OrderItem, Over
from headrace.sql.parser.cursor import Cursor
from headrace.sql.tokens import Token

# The parser of a whole expression, handed in because the two need each other.
Parse: TypeAlias = Callable[[Cursor], Expression]


def parse_over(cursor: Cursor, parse: Parse, call: Call, first: Token) -> Expression:
    """The call itself, unless OVER follows. Without its bracket, OVER is a name like others."""
    if not cursor.at_word("OVER") or cursor.peek().text != "(":
        return call
    cursor.advance()
    cursor.expect_operator("(")
    partition: tuple[Expression, ...] = ()
    if cursor.accept_words("PARTITION", "BY"):
        partition = parse_list(cursor, parse)
    order = parse_order_by(cursor, parse)
    frame = _parse_frame(cursor)
    cursor.expect_operator(")")
    return Over(call.name, call.arguments, partition, order, frame, span=cursor.span_since(first))


def parse_list(cursor: Cursor, parse: Parse) -> tuple[Expression, ...]:
    found = [parse(cursor)]
    while cursor.accept_operator(","):
        found.append(parse(cursor))
    return tuple(found)


def parse_order_by(cursor: Cursor, parse: Parse) -> tuple[OrderItem, ...]:
    if not cursor.accept_word("ORDER"):
        return ()
    cursor.expect_word("BY")
    found: list[OrderItem] = []
    while not found or cursor.accept_operator(","):
        expression = parse(cursor)
        found.append(OrderItem(expression, cursor.accept_word("ASC", "DESC") == "DESC"))
    return tuple(found)


def _parse_frame(cursor: Cursor) -> Frame | None:
    if cursor.at_word("GROUPS"):
        raise cursor.unsupported("GROUPS in OVER", hint="ROWS counts rows, RANGE measures what they are ordered by")
    word = cursor.accept_word("ROWS", "RANGE")
    if word is None:
        return None
    unit: Literal["ROWS", "RANGE"] = "RANGE" if word == "RANGE" else "ROWS"
    first = cursor.token
    if not cursor.accept_word("BETWEEN"):
        return Frame(_parse_bound(cursor, "PRECEDING"), 0, unit)
    start = _parse_bound(cursor, "PRECEDING")
    cursor.expect_word("AND")
    end = _parse_bound(cursor, "FOLLOWING")
    if start is not None and end is not None and start > end:
        raise cursor.error("the frame ends before it begins", first)
    return Frame(start, end, unit)


def _parse_bound(cursor: Cursor, unbounded: str) -> int | None:
    """`UNBOUNDED` only goes outwards."""
    if cursor.accept_word("UNBOUNDED"):
        cursor.expect_word(unbounded)
        return None
    if cursor.accept_word("CURRENT"):
        cursor.expect_word("ROW")
        return 0
    rows = cursor.integer("a number of rows, `UNBOUNDED` or `CURRENT ROW`")
    return -rows if cursor.expect_word("PRECEDING", "FOLLOWING") == "PRECEDING" else rows
