"""Expressions, by precedence: OR, AND, NOT, comparisons, + - ||, * / %, unary minus, subscripts and fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from headrace.sql.expressions import (
    Arithmetic,
    Between,
    Call,
    Comparison,
    Dereference,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Logical,
    Negate,
    Not,
    Subquery,
    Subscript,
)
from headrace.sql.parser.cursor import MAX_DEPTH, Cursor
from headrace.sql.parser.primary import parse_primary
from headrace.sql.tokens import LARGEST_INTEGER, Token
from headrace.sql.walk import depth

_OR, _AND, _NOT, _PREDICATE, _ADDITIVE, _MULTIPLICATIVE, _UNARY = range(1, 8)
_LOGICAL = {"OR": _OR, "AND": _AND}
_ARITHMETIC = {
    "+": _ADDITIVE,
    "-": _ADDITIVE,
    "||": _ADDITIVE,
    "*": _MULTIPLICATIVE,
    "/": _MULTIPLICATIVE,
    "%": _MULTIPLICATIVE,
}
_COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_PREDICATE_WORDS = ("IS", "BETWEEN", "IN", "LIKE")
# Longer chains of AND or OR become balanced trees, so that a generated filter of a thousand terms is not too deep.
LONGEST_CHAIN = 64


def parse_expression(cursor: Cursor) -> Expression:
    first = cursor.token
    expression = parse_nested(cursor)
    if depth(expression) > MAX_DEPTH:
        raise cursor.too_deep(cursor.span_since(first))
    return expression


def parse_nested(cursor: Cursor) -> Expression:
    """An expression inside another, whose whole depth is checked at the outermost."""
    with cursor.nested():
        return _climb(cursor, _OR)


def _climb(cursor: Cursor, minimum: int) -> Expression:
    """Operators that bind at least as tightly as `minimum`."""
    first = cursor.token
    left = _parse_prefix(cursor)
    compared, links = False, 0
    while True:
        word = cursor.token.value if cursor.at_word("OR", "AND", "NOT", *_PREDICATE_WORDS) else None
        operator = cursor.token.text if cursor.token.kind == "operator" else ""
        if word in _LOGICAL:
            if _LOGICAL[word] < minimum:
                return left
            left = _parse_chain(cursor, first, left, word)
        elif word is not None or operator in _COMPARISONS:
            if minimum > _PREDICATE or (word == "NOT" and not _is_negated_predicate(cursor)):
                return left
            if compared:
                raise cursor.error("comparisons cannot be chained", hint="join them with AND, or use parentheses")
            left, compared = _parse_predicate(cursor, first, left), True
        elif _ARITHMETIC.get(operator, 0) >= max(minimum, 1):
            # Each link makes the tree one level deeper on the left.
            links = _one_more(cursor, first, links)
            left = _parse_arithmetic(cursor, first, left, operator)
        else:
            return left


def _one_more(cursor: Cursor, first: Token, links: int) -> int:
    """One more link of a chain, refused as soon as the chain is too deep."""
    if links >= MAX_DEPTH:
        raise cursor.too_deep(cursor.span_since(first))
    return links + 1


def _parse_prefix(cursor: Cursor) -> Expression:
    first = cursor.token
    if cursor.accept_word("NOT"):
        with cursor.nested():
            operand = _climb(cursor, _NOT)
        return Not(operand, span=cursor.span_since(first))
    if cursor.accept_operator("+"):
        with cursor.nested():
            return _climb(cursor, _UNARY)
    if cursor.accept_operator("-"):
        return _parse_negative(cursor, first)
    return _parse_postfix(cursor)


def _parse_negative(cursor: Cursor, minus: Token) -> Expression:
    # `-5` is a number, not an operation on 5; otherwise the smallest BIGINT could not be written.
    if cursor.token.kind in ("integer", "decimal", "double") and cursor.peek().text not in ("[", "->"):
        number = cursor.advance()
        return Literal(-number.value, span=cursor.span(minus, number))
    with cursor.nested():
        operand = _climb(cursor, _UNARY)
    return Negate(operand, span=cursor.span_since(minus))


def _parse_postfix(cursor: Cursor) -> Expression:
    first = cursor.token
    base = parse_primary(cursor, parse_nested)
    if isinstance(base, Literal) and base.value == LARGEST_INTEGER and first.kind == "integer":
        raise cursor.error(f"`{first.text}` is too large for BIGINT", first, "write a DOUBLE, such as 1E30")
    return _parse_suffixes(cursor, first, base)


def _parse_suffixes(cursor: Cursor, first: Token, base: Expression) -> Expression:
    links = 0
    while True:
        if cursor.at_operator("[", "->"):
            links = _one_more(cursor, first, links)
        if cursor.accept_operator("["):
            index = parse_nested(cursor)
            cursor.expect_operator("]")
            base = Subscript(base, index, span=cursor.span_since(first))
        elif cursor.at_operator("->") and cursor.peek().text != "*":
            cursor.advance()
            field = cursor.identifier("a field name")
            base = Dereference(base, field.name, span=cursor.span_since(first))
        else:
            return base


def _parse_chain(cursor: Cursor, first: Token, left: Expression, word: str) -> Expression:
    operands = [left]
    while cursor.accept_word(word):
        operands.append(_climb(cursor, _LOGICAL[word] + 1))
    return replace(_fold(operands, word), span=cursor.span_since(first))


def _fold(operands: Sequence[Expression], word: Any) -> Expression:
    if len(operands) > LONGEST_CHAIN:
        middle = len(operands) // 2
        return Logical(word, _fold(operands[:middle], word), _fold(operands[middle:], word), span=operands[0].span)
    folded = operands[0]
    for operand in operands[1:]:
        folded = Logical(word, folded, operand, span=folded.span)
    return folded


def _parse_arithmetic(cursor: Cursor, first: Token, left: Expression, operator: str) -> Expression:
    cursor.advance()
    right = _climb(cursor, _ARITHMETIC[operator] + 1)
    span = cursor.span_since(first)
    if operator == "||":
        return Call("CONCAT", (left, right), span=span)
    return Arithmetic(cast(Any, operator), left, right, span=span)


def _is_negated_predicate(cursor: Cursor) -> bool:
    following = cursor.peek()
    return following.kind == "word" and following.value in ("BETWEEN", "IN", "LIKE")


def _parse_predicate(cursor: Cursor, first: Token, left: Expression) -> Expression:
    negated = cursor.accept_word("NOT") is not None
    if cursor.accept_word("IS"):
        predicate = _parse_is(cursor, left)
    elif cursor.accept_word("BETWEEN"):
        low = _climb(cursor, _ADDITIVE)
        cursor.expect_word("AND")
        predicate = Between(left, low, _climb(cursor, _ADDITIVE), negated)
    elif cursor.accept_word("IN"):
        predicate = In(left, _parse_options(cursor), negated)
    elif cursor.accept_word("LIKE"):
        pattern = _climb(cursor, _ADDITIVE)
        predicate = Like(left, pattern, _parse_escape(cursor), negated)
    else:
        operator = _COMPARISONS[cursor.advance().text]
        predicate = Comparison(cast(Any, operator), left, _climb(cursor, _ADDITIVE))
    return replace(predicate, span=cursor.span_since(first))


def _parse_is(cursor: Cursor, left: Expression) -> Expression:
    negated = cursor.accept_word("NOT") is not None
    if cursor.accept_word("DISTINCT"):
        cursor.expect_word("FROM")
        operator = "IS NOT DISTINCT FROM" if negated else "IS DISTINCT FROM"
        return Comparison(cast(Any, operator), left, _climb(cursor, _ADDITIVE))
    cursor.expect_word("NULL", "DISTINCT")
    return IsNull(left, negated)


def _parse_subquery(cursor: Cursor) -> Expression:
    if cursor.parse_query is None:
        raise cursor.unsupported("a subquery")
    first = cursor.token
    with cursor.nested():
        query = cursor.parse_query(cursor)
    return Subquery(query, span=cursor.span_since(first))


def _parse_options(cursor: Cursor) -> tuple[Expression, ...]:
    cursor.expect_operator("(")
    if cursor.at_word("SELECT", "WITH"):
        subquery = _parse_subquery(cursor)
        cursor.expect_operator(")")
        return (subquery,)
    options = [parse_nested(cursor)]
    while cursor.accept_operator(","):
        options.append(parse_nested(cursor))
    cursor.expect_operator(")")
    return tuple(options)


def _parse_escape(cursor: Cursor) -> str | None:
    if not cursor.accept_word("ESCAPE"):
        return None
    token = cursor.token
    escape = cursor.string("a character in quotes")
    if len(escape) != 1:
        raise cursor.error("ESCAPE takes one character", token)
    return escape
