"""Text → tokens: what is one token, what its value is, and where it stands."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from headrace.errors import SqlError
from headrace.nearest import nearest
from headrace.sql.script import Script
from headrace.sql.tokens import tokenize


def values(text: str, **variables: str) -> list[Any]:
    return [token.value for token in tokenize(Script(text), variables)[:-1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select Page_1", ["SELECT", "PAGE_1"]),
        ("`pageId` \"pageId\" `a``b`", ["pageId", "pageId", "a`b"]),
        ("'it''s' ''", ["it's", ""]),
        ("1 1.5 .5 1. 1e3 1.5E-2", [1, Decimal("1.5"), Decimal(".5"), Decimal("1"), 1000.0, 0.015]),
        ("9223372036854775808 007", [9223372036854775808, 7]),
        ("X'CAFE' x''", [b"\xca\xfe", b""]),
        ("a->b[1] => x", ["A", "->", "B", "[", 1, "]", "=>", "X"]),
        (":= <> != <= >= || /", [":=", "<>", "!=", "<=", ">=", "||", "/"]),
        ("1 -- one\n/* two\n lines */ 2", [1, 2]),
        ("ARRAY<ARRAY<INT>>", ["ARRAY", "<", "ARRAY", "<", "INT", ">", ">"]),
        ("1R", ["1R"]),
        ("'a\nb'", ["a\nb"]),
    ],
)  # fmt: skip
def test_tokens(text: str, expected: list[Any]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("SELECT 'abc", 1, 8, "this string does not end"),
        ("SELECT\n  `abc", 2, 3, "this quoted name does not end"),
        ('SELECT "abc', 1, 8, "this quoted name does not end"),
        ("/* abc", 1, 1, "this comment does not end"),
        ("SELECT ${a", 1, 8, "this variable does not end"),
        ("SELECT é", 1, 8, "unexpected character `é`"),
        ("SELECT 1.5x", 1, 11, "a name cannot begin with a digit"),
        ("SELECT 92233720368547758080", 1, 8, "`92233720368547758080` is too large for BIGINT"),
        ("SELECT 1.8E308", 1, 8, "`1.8E308` is too large for DOUBLE"),
        ("SELECT X'ABC'", 1, 8, "bytes are written as pairs of hexadecimal digits"),
        ("SELECT 1." + "1" * 39, 1, 8, "a decimal has at most 38 digits"),
        ("SELECT ${missing}", 1, 8, "variable `missing` is not defined"),
    ],
)
def test_unreadable_text_is_pointed_at(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        tokenize(Script(text), {"other": "1"})
    error = caught.value
    assert (error.line, error.column, error.message) == (line, column, message)
    assert error.source_line == text.split("\n")[line - 1]


def test_a_very_long_number_is_refused_at_once() -> None:
    with pytest.raises(SqlError, match="too large for BIGINT"):
        tokenize(Script("9" * 100_000))


def test_variables_are_replaced_in_text_and_strings() -> None:
    assert values("${Column} = '${value}'", column="a + 1", VALUE="x") == ["A", "+", 1, "=", "x"]


def test_lines_end_with_newlines_only() -> None:
    script = Script("a\r\n\x0b\u2028b c")
    token = tokenize(Script("a\r\n\x0bb c"))[2]
    assert (script.line(1), script.line(2)) == ("a", "\x0b\u2028b c")
    span = Script("a\r\n\x0bb c").span(token.start, token.end)
    assert (span.line, span.column) == (2, 4)


def test_a_span_of_several_lines_is_cut_at_the_first() -> None:
    script = Script("one two\nthree")
    span = script.span(4, 13)
    assert (span.line, span.column, span.length) == (1, 5, 3)
    assert script.offset(span) == 4


def test_nearest_gives_up_on_the_absurd() -> None:
    assert nearest("PAGEVIEW", ["USERS", "PAGEVIEWS"]) == "PAGEVIEWS"
    assert nearest("ZZZ", ["USERS"]) is None
    assert nearest("A" * 100_000, ["A" * 99_999]) is None


def test_a_variable_may_be_part_of_a_name() -> None:
    variables = {"region": "eu", "n": "1"}
    tokens = tokenize(Script("${region}_orders x${n} a.${region} ${n}+${n}"), variables)
    assert [token.value for token in tokens][:-1] == ["EU_ORDERS", "X1", "A", ".", "EU", 1, "+", 1]
