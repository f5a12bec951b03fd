"""What operators stand between: literals, names, calls, CASE, CAST, constructors, lambdas, parentheses."""

from __future__ import annotations

from headrace.sql.expressions import (
    ArrayLiteral,
    Call,
    Case,
    Cast,
    Expression,
    Lambda,
    LambdaVariable,
    Literal,
    MapLiteral,
    Name,
    StructLiteral,
)
from headrace.sql.parser.cursor import Cursor
from headrace.sql.parser.over import Parse, parse_over
from headrace.sql.parser.types import parse_type
from headrace.sql.tokens import RESERVED, Token

_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}


def parse_primary(cursor: Cursor, parse: Parse) -> Expression:
    token = cursor.token
    if token.kind in ("string", "bytes", "integer", "decimal", "double"):
        return Literal(cursor.advance().value, span=cursor.span(token))
    if _at_lambda(cursor):
        return _parse_lambda(cursor, parse)
    if cursor.accept_operator("("):
        return _parse_parenthesised(cursor, parse)
    if token.kind == "quoted":
        return _parse_name(cursor)
    if token.kind != "word":
        raise cursor.expected("an expression")
    return _parse_word(cursor, parse)


def _parse_word(cursor: Cursor, parse: Parse) -> Expression:
    token, following = cursor.token, cursor.peek()
    if token.value in _CONSTANTS:
        return Literal(_CONSTANTS[cursor.advance().value], span=cursor.span(token))
    if token.value == "CASE":
        return _parse_case(cursor, parse)
    opening = following.text if following.kind == "operator" else ""
    special = _CONSTRUCTORS.get((token.value, opening))
    if special:
        cursor.advance()
        cursor.advance()
        return special(cursor, parse, token)
    if opening == "(" and token.value not in RESERVED:
        return _parse_call(cursor, parse)
    if token.value == "SELECT":
        raise cursor.unsupported("a subquery")
    if token.value in RESERVED or (token.value == "EMIT" and following.value in ("CHANGES", "FINAL")):
        raise cursor.expected("an expression")
    return _parse_name(cursor)


def _parse_name(cursor: Cursor) -> Expression:
    first = cursor.token
    name = cursor.identifier("a name").name
    if not cursor.at_operator("."):
        if first.kind == "word" and any(name in scope for scope in cursor.lambda_scopes):
            return LambdaVariable(name, span=cursor.span(first))
        return Name(name, span=cursor.span(first))
    cursor.advance()
    column = cursor.identifier("a column name").name
    return Name(column, name, span=cursor.span_since(first))


TAKE_ALL = frozenset({"AVG", "COUNT", "COUNT_DISTINCT", "MAX", "MIN", "STDDEV_SAMP", "STDDEV_SAMPLE", "SUM"})
"""Of `*`, these are about the rows, or their times."""


def _parse_call(cursor: Cursor, parse: Parse) -> Expression:
    first = cursor.advance()
    cursor.expect_operator("(")
    arguments: list[Expression] = []
    if cursor.at_operator("*") and cursor.peek().text == ")":
        if first.value not in TAKE_ALL:
            hint = f"DESCRIBE FUNCTION {first.value}; shows its arguments"
            raise cursor.error("only COUNT takes `*`, and aggregates of one number", hint=hint)
        cursor.advance()
    elif cursor.at_word("DISTINCT"):
        return _parse_distinct(cursor, parse, first)
    elif not cursor.at_operator(")"):
        arguments.append(parse(cursor))
        while cursor.accept_operator(","):
            arguments.append(parse(cursor))
    cursor.expect_operator(")")
    return parse_over(cursor, parse, Call(first.value, tuple(arguments), span=cursor.span_since(first)), first)


def _parse_distinct(cursor: Cursor, parse: Parse, first: Token) -> Expression:
    """COUNT(DISTINCT x) is COUNT_DISTINCT(x)."""
    if first.value != "COUNT":
        raise cursor.unsupported(f"{first.value}(DISTINCT …)")
    cursor.advance()
    argument = parse(cursor)
    cursor.expect_operator(")")
    return parse_over(cursor, parse, Call("COUNT_DISTINCT", (argument,), span=cursor.span_since(first)), first)


def _parse_parenthesised(cursor: Cursor, parse: Parse) -> Expression:
    inner = parse(cursor)
    cursor.expect_operator(")")
    return inner


def _parse_case(cursor: Cursor, parse: Parse) -> Expression:
    first = cursor.advance()
    operand = None if cursor.at_word("WHEN") else parse(cursor)
    branches: list[tuple[Expression, Expression]] = []
    while cursor.accept_word("WHEN"):
        condition = parse(cursor)
        cursor.expect_word("THEN")
        branches.append((condition, parse(cursor)))
    if not branches:
        raise cursor.expected("`WHEN`")
    otherwise = parse(cursor) if cursor.accept_word("ELSE") else None
    cursor.expect_word("END")
    return Case(tuple(branches), otherwise, operand, span=cursor.span_since(first))


def _parse_cast(cursor: Cursor, parse: Parse, first: Token) -> Expression:
    operand = parse(cursor)
    cursor.expect_word("AS")
    target = parse_type(cursor)
    cursor.expect_operator(")")
    return Cast(operand, target, span=cursor.span_since(first))


def _parse_array(cursor: Cursor, parse: Parse, first: Token) -> Expression:
    elements: list[Expression] = []
    while not cursor.at_operator("]"):
        if elements:
            cursor.expect_operator(",")
        elements.append(parse(cursor))
    cursor.expect_operator("]")
    return ArrayLiteral(tuple(elements), span=cursor.span_since(first))


def _parse_map(cursor: Cursor, parse: Parse, first: Token) -> Expression:
    entries: list[tuple[Expression, Expression]] = []
    while not cursor.at_operator(")"):
        if entries:
            cursor.expect_operator(",")
        key = parse(cursor)
        cursor.expect_operator(":=")
        entries.append((key, parse(cursor)))
    cursor.expect_operator(")")
    return MapLiteral(tuple(entries), span=cursor.span_since(first))


def _parse_struct(cursor: Cursor, parse: Parse, first: Token) -> Expression:
    fields: list[tuple[str, Expression]] = []
    while not cursor.at_operator(")"):
        if fields:
            cursor.expect_operator(",")
        token = cursor.token
        name = cursor.identifier("a field name").name
        if name in dict(fields):
            raise cursor.error(f"field `{name}` is there twice", token)
        cursor.expect_operator(":=")
        fields.append((name, parse(cursor)))
    cursor.expect_operator(")")
    return StructLiteral(tuple(fields), span=cursor.span_since(first))


_CONSTRUCTORS = {
    ("CAST", "("): _parse_cast,
    ("ARRAY", "["): _parse_array,
    ("MAP", "("): _parse_map,
    ("STRUCT", "("): _parse_struct,
}


def _at_lambda(cursor: Cursor) -> bool:
    """Whether `x =>` or `(x, y) =>` comes next."""
    if cursor.token.kind == "word":
        return cursor.peek().text == "=>"
    if not cursor.at_operator("("):
        return False
    ahead = 1
    while cursor.peek(ahead).kind == "word" and cursor.peek(ahead + 1).text == ",":
        ahead += 2
    return [cursor.peek(ahead).kind, cursor.peek(ahead + 1).text, cursor.peek(ahead + 2).text] == ["word", ")", "=>"]


def _parse_lambda(cursor: Cursor, parse: Parse) -> Expression:
    first = cursor.token
    parameters: list[str] = []
    bracketed = cursor.accept_operator("(") is not None
    while True:
        token = cursor.token
        name = cursor.identifier("a name").name
        if name in parameters:
            raise cursor.error(f"`{token.text}` is there twice", token)
        parameters.append(name)
        if not cursor.accept_operator(","):
            break
    if bracketed:
        cursor.expect_operator(")")
    cursor.expect_operator("=>")
    cursor.lambda_scopes.append(tuple(parameters))
    try:
        body = parse(cursor)
    finally:
        cursor.lambda_scopes.pop()
    return Lambda(tuple(parameters), body, span=cursor.span_since(first))
