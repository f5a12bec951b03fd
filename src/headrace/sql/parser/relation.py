"""FROM: streams and tables, ranges of them, subqueries, and what is joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar

from headrace.sql.clauses import (
    UNIT_MS,
    AsOf,
    CommonTable,
    Duration,
    Identifier,
    JoinClause,
    OffsetRange,
    Query,
    ReadRange,
    Relation,
    TimeRange,
    WithinClause,
)
from headrace.sql.expressions import Literal as Constant
from headrace.sql.parser.cursor import Cursor
from headrace.sql.parser.expressions import parse_expression
from headrace.sql.script import Script
from headrace.sql.tokens import tokenize

# The parser of a whole SELECT, handed in because the two need each other.
ParseQuery: TypeAlias = Callable[[Cursor], Query]
Named: TypeAlias = tuple[Identifier, Identifier | None, Query | None, ReadRange | None]

T = TypeVar("T")
_UNITS = {name: unit for unit in UNIT_MS for name in (unit, unit + "S")}
_JOINS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS")
_AS_OF: dict[str, Literal["timestamp", "offset", "arrival"]] = {
    "TIMESTAMP": "timestamp",
    "OFFSET": "offset",
    "ARRIVAL": "arrival",
}
_JOIN_KINDS: dict[str, Literal["inner", "left", "right", "full"]] = {
    "INNER": "inner",
    "LEFT": "left",
    "RIGHT": "right",
    "FULL": "full",
    "OUTER": "full",
}


def parse_common(cursor: Cursor, parse: ParseQuery) -> tuple[CommonTable, ...]:
    """`WITH name AS (SELECT …), …`."""
    found: list[CommonTable] = []
    if cursor.accept_word("WITH"):
        while not found or cursor.accept_operator(","):
            token = cursor.token
            name = cursor.identifier("a name")
            if any(one.name == name for one in found):
                raise cursor.error(f"`{token.text}` is there twice", token)
            cursor.expect_word("AS")
            found.append(CommonTable(name, _parse_subquery(cursor, parse)))
    return tuple(found)


MOST_JOINS = 50
"""Each is a level of the plan, and every walk over it recurses."""


def parse_relation(cursor: Cursor, parse: ParseQuery) -> Relation:
    source, alias, query, range_ = _parse_named(cursor, parse)
    if cursor.at_operator(","):
        raise cursor.unsupported("a join without ON", hint="write a JOIN b ON a.x = b.y, or a CROSS JOIN b")
    joins: list[JoinClause] = []
    while cursor.at_word(*_JOINS):
        if len(joins) >= MOST_JOINS:
            hint = "join some of them in a stream or table of its own first"
            raise cursor.error(f"too many joins: more than {MOST_JOINS}", cursor.token, hint)
        joins.append(_parse_join(cursor, parse))
    return Relation(source, alias, tuple(joins), query, range_)


def _parse_named(cursor: Cursor, parse: ParseQuery) -> Named:
    if cursor.at_operator("("):
        first = cursor.token
        query = _parse_subquery(cursor, parse)
        name = cursor.alias()
        if name is None:
            raise cursor.error("a subquery needs a name", first, "write (SELECT …) AS name")
        return name, None, query, None
    source = cursor.identifier("a stream or table")
    range_ = _parse_range(cursor)
    alias = cursor.alias()
    if cursor.at_word("MATCH_RECOGNIZE"):
        raise cursor.script.error("MATCH_RECOGNIZE is planned", cursor.span(cursor.token), unsupported=True)
    return source, alias, None, range_


def _parse_subquery(cursor: Cursor, parse: ParseQuery) -> Query:
    cursor.expect_operator("(")
    with cursor.nested():
        query = parse(cursor)
    cursor.expect_operator(")")
    return query


def _parse_range(cursor: Cursor) -> ReadRange | None:
    first = cursor.token
    for word in _AS_OF:
        # Without one of these words, OF is an alias.
        if cursor.accept_words("AS", "OF", word):
            return AsOf(_AS_OF[word], _parse_place(cursor, word), cursor.span_since(first))
    if cursor.at_word("BETWEEN"):
        low, high = _parse_between(cursor, _moment)
        return TimeRange(low, high, cursor.span_since(first))
    # Followed by anything else, OFFSETS is an alias.
    if not cursor.at_word("OFFSETS") or cursor.peek().text.upper() not in ("BETWEEN", "("):
        return None
    cursor.advance()
    if not cursor.accept_operator("("):
        return OffsetRange(((None, *_parse_between(cursor, _offset)),), cursor.span_since(first))
    bounds: list[tuple[int | None, int, int]] = []
    while not bounds or cursor.accept_operator(","):
        partition = cursor.integer("a partition")
        if any(partition == known for known, _, _ in bounds):
            raise cursor.error(f"partition {partition} is there twice", cursor.previous)
        bounds.append((partition, *_parse_between(cursor, _offset)))
    cursor.expect_operator(")")
    return OffsetRange(tuple(bounds), cursor.span_since(first))


def _parse_place(cursor: Cursor, word: str) -> str | int | tuple[int, ...]:
    if word == "TIMESTAMP":
        return _moment(cursor)
    if word == "ARRIVAL":
        return cursor.integer("an arrival number")
    if not cursor.accept_operator("("):
        return (_offset(cursor),)
    found = [_offset(cursor)]
    while cursor.accept_operator(","):
        found.append(_offset(cursor))
    cursor.expect_operator(")")
    return tuple(found)


def _parse_between(cursor: Cursor, bound: Callable[[Cursor], T]) -> tuple[T, T]:
    cursor.expect_word("BETWEEN")
    low = bound(cursor)
    cursor.expect_word("AND")
    return low, bound(cursor)


def _moment(cursor: Cursor) -> str | int:
    if cursor.token.kind == "string":
        return cursor.string("")
    return cursor.integer("a timestamp such as '2026-11-15T14:00:00', or milliseconds")


def _offset(cursor: Cursor) -> int:
    return cursor.integer("an offset")


def _parse_join(cursor: Cursor, parse: ParseQuery) -> JoinClause:
    first = cursor.token
    crossed = cursor.accept_word("CROSS") is not None
    word = "INNER" if crossed else cursor.accept_word("INNER", "LEFT", "RIGHT", "FULL", "OUTER") or "INNER"
    if word in ("LEFT", "RIGHT", "FULL"):
        cursor.accept_word("OUTER")
    cursor.expect_word("JOIN")
    source, alias, query, range_ = _parse_named(cursor, parse)
    within = None if crossed else _parse_within(cursor)
    if crossed:
        on = Constant(True, span=cursor.span_since(first))
        return JoinClause("inner", source, on, alias, None, query, range_, cursor.span_since(first))
    cursor.expect_word("ON")
    condition = parse_expression(cursor)
    return JoinClause(_JOIN_KINDS[word], source, condition, alias, within, query, range_, cursor.span_since(first))


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


def duration_from(text: str) -> Duration:
    """
    >>> duration_from("90 seconds")
    Duration(amount=90, unit='SECOND')
    """
    script = Script(text)
    cursor = Cursor(script, tokenize(script))
    duration = parse_duration(cursor)
    if cursor.token.kind != "end":
        raise cursor.expected("the end of the duration")
    return duration


def parse_duration(cursor: Cursor) -> Duration:
    """`10 SECONDS`."""
    amount = cursor.integer("a number")
    word = cursor.accept_word(*_UNITS)
    if word is None:
        raise cursor.expected("a unit of time", hint="MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS")
    return Duration(amount, _UNITS[word])
