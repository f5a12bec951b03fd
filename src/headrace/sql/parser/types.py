"""Types as written: `INT`, `DECIMAL(10, 2)`, `ARRAY<STRUCT<a VARCHAR, b MAP<VARCHAR, BIGINT>>>`."""

from __future__ import annotations

from typing import cast

from headrace.sql.clauses import TypeName
from headrace.sql.parser.cursor import Cursor
from headrace.types import SIMPLE_TYPES, VARCHAR, Array, DataType, Decimal, Map, Struct

ALIASES = {"INT": "INTEGER", "STRING": "VARCHAR"}
NESTED = ("ARRAY", "MAP", "STRUCT", "DECIMAL")
MAX_PRECISION = 38


def parse_type(cursor: Cursor) -> DataType:
    token = cursor.token
    if token.kind not in ("word", "quoted"):
        raise cursor.expected("a type")
    with cursor.nested():
        name = ALIASES.get(token.value, token.value) if token.kind == "word" else ""
        if name in NESTED:
            cursor.advance()
            return _NESTED_PARSERS[name](cursor)
        if name not in SIMPLE_TYPES:
            # One of CREATE TYPE, looked up when the statement is planned.
            named = cursor.identifier("a type")
            return cast(DataType, TypeName(named.name, named.span))
        cursor.advance()
        type_ = SIMPLE_TYPES[name]
        if type_ == VARCHAR and cursor.accept_operator("("):
            # A length is accepted as other dialects write it; it means nothing.
            if not cursor.accept_word("STRING"):
                cursor.integer("a length")
            cursor.expect_operator(")")
        return type_


def _parse_decimal(cursor: Cursor) -> DataType:
    cursor.expect_operator("(")
    first = cursor.token
    precision = cursor.integer("a precision")
    scale = cursor.integer("a scale") if cursor.accept_operator(",") else 0
    cursor.expect_operator(")")
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        span = cursor.span(first, cursor.tokens[cursor.index - 2])
        raise cursor.script.error(
            f"DECIMAL({precision}, {scale}) is not a type",
            span,
            f"1 ≤ precision ≤ {MAX_PRECISION} and 0 ≤ scale ≤ precision",
        )
    return Decimal(precision, scale)


def _parse_array(cursor: Cursor) -> DataType:
    cursor.expect_operator("<")
    element = parse_type(cursor)
    cursor.expect_operator(">")
    return Array(element)


def _parse_map(cursor: Cursor) -> DataType:
    cursor.expect_operator("<")
    key = parse_type(cursor)
    cursor.expect_operator(",")
    value = parse_type(cursor)
    cursor.expect_operator(">")
    return Map(key, value)


def _parse_struct(cursor: Cursor) -> DataType:
    if cursor.accept_operator("<>"):
        return Struct(())
    cursor.expect_operator("<")
    fields: list[tuple[str, DataType]] = []
    while not cursor.at_operator(">"):
        if fields:
            cursor.expect_operator(",")
        token = cursor.token
        name = cursor.identifier("a field name").name
        if name in dict(fields):
            raise cursor.error(f"field `{name}` is there twice", token)
        fields.append((name, parse_type(cursor)))
    cursor.expect_operator(">")
    return Struct(tuple(fields))


_NESTED_PARSERS = {"ARRAY": _parse_array, "MAP": _parse_map, "STRUCT": _parse_struct, "DECIMAL": _parse_decimal}
