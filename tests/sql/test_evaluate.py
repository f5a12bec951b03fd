"""Expressions over rows: three-valued logic, Java's numbers, casts, nulls instead of errors."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sql.coerce import arithmetic_type, castable, common_type, literal_type, widens
from headrace.sql.like import like_matcher
from headrace.sql.numeric import double_text
from headrace.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    TIMESTAMP,
    VARCHAR,
    Array,
    DataType,
    Map,
    Struct,
)
from headrace.types import Decimal as DecimalType
from tests.sql.catalog import resolved, value

FLAGS: dict[str, DataType] = {"A": BOOLEAN, "B": BOOLEAN}
T, F, N = True, False, None


@pytest.mark.parametrize(
    ("a", "b", "both", "either"),
    [
        (T, T, T, T),
        (T, F, F, T),
        (T, N, N, T),
        (F, T, F, T),
        (F, F, F, F),
        (F, N, F, N),
        (N, T, N, T),
        (N, F, F, N),
        (N, N, N, N),
    ],
)
def test_three_valued_logic(a: bool | None, b: bool | None, both: bool | None, either: bool | None) -> None:
    assert value("a AND b", FLAGS, A=a, B=b) is both
    assert value("a OR b", FLAGS, A=a, B=b) is either
    # De Morgan's laws hold with three values too.
    assert value("NOT (a AND b)", FLAGS, A=a, B=b) is value("NOT a OR NOT b", FLAGS, A=a, B=b)
    assert value("NOT (a OR b)", FLAGS, A=a, B=b) is value("NOT a AND NOT b", FLAGS, A=a, B=b)


NUMBERS: dict[str, DataType] = {"A": INTEGER, "B": INTEGER, "C": BIGINT, "D": DOUBLE, "E": DecimalType(4, 2)}


@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("a = b", {"A": 1, "B": 1}, True),
        # As in KSQL, and unlike in other SQLs, comparing with null is false.
        ("a = b", {"A": None, "B": 1}, False),
        ("a <> b", {"A": None, "B": None}, False),
        ("NOT a = b", {"A": None, "B": None}, True),
        ("a IS DISTINCT FROM b", {"A": None, "B": 1}, True),
        ("a IS NOT DISTINCT FROM b", {"A": None, "B": None}, True),
        ("a IS NULL", {"A": None}, True),
        ("a IS NOT NULL", {"A": None}, False),
        ("a BETWEEN 1 AND 3", {"A": 3}, True),
        ("a NOT BETWEEN 1 AND 3", {"A": None}, True),
        # FALSE decides, whatever the null would have been.
        ("a BETWEEN b AND 3", {"A": 5, "B": None}, False),
        ("a IN (1, 2)", {"A": 2}, True),
        ("a IN (1, b)", {"A": 2, "B": None}, False),
        ("a NOT IN (1, b)", {"A": 1, "B": None}, False),
        ("a IN (1, 2.5)", {"A": 1}, True),
        ("d < 2.5", {"D": 2.0}, True),
        ("c = a", {"C": 7, "A": 7}, True),
        ("CASE WHEN a = 1 THEN 'one' WHEN b = 1 THEN 'b' END", {"A": None, "B": 1}, "b"),
        ("CASE a WHEN 1 THEN 'one' ELSE 'other' END", {"A": None}, "other"),
        ("CASE WHEN a = 1 THEN 1 ELSE 2.5 END", {"A": 1}, Decimal("1.0")),
    ],
)
def test_comparisons_and_choices(text: str, row: dict[str, Any], expected: Any) -> None:
    assert value(text, NUMBERS, **row) == expected
    assert type(value(text, NUMBERS, **row)) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("1 / 0", None),
        ("1 % 0", None),
        ("2147483647 + 1", -2147483648),
        ("-2147483648 - 1", 2147483647),
        ("2147483647 * 2", -2),
        ("2147483648 + 1", 2147483649),
        ("9223372036854775807 + 1", -9223372036854775808),
        ("-(-9223372036854775808)", -9223372036854775808),
        ("-9223372036854775808 / -1", -9223372036854775808),
        ("1E0 / 0", math.inf),
        ("-1E0 / 0E0", -math.inf),
        ("5E0 % 3", 2.0),
        ("1.10 + 2.2", Decimal("3.30")),
        ("1.10 * 2.2", Decimal("2.420")),
        ("1.0 / 3", Decimal("0.333333333333")),
        ("1.0 / 0", None),
        ("7.5 % 2", Decimal("1.5")),
        ("-1.50", Decimal("-1.50")),
        ("1 + 1.5E0", 2.5),
        ("'a' + 'b' || 'c'", "abc"),
        ("CAST(NULL AS INTEGER) + 1", None),
        ("-CAST(NULL AS INT)", None),
    ],
)
def test_arithmetic_is_javas(text: str, expected: Any) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(expected, Decimal):
        assert found.as_tuple() == expected.as_tuple()


def test_a_decimal_that_overflows_its_type_is_null() -> None:
    big: dict[str, DataType] = {"A": DecimalType(38, 0)}
    assert value("a + a", big, A=Decimal("9" * 38)) is None
    assert value("a + 1", big, A=Decimal("7")) == Decimal("8")


CASTS = [
    ("CAST('12' AS INT)", 12),
    ("CAST(' 12 ' AS BIGINT)", 12),
    ("CAST('1.5' AS INT)", None),
    ("CAST('x' AS INT)", None),
    ("CAST('3000000000' AS INT)", None),
    ("CAST('1_0' AS INT)", None),
    ("CAST('١' AS INT)", None),
    ("CAST('1.5' AS DOUBLE)", 1.5),
    ("CAST('x' AS DOUBLE)", None),
    ("CAST('1.555' AS DECIMAL(4, 2))", Decimal("1.56")),
    ("CAST('123.4' AS DECIMAL(4, 2))", None),
    ("CAST(1.9E0 AS INT)", 1),
    ("CAST(-1.9E0 AS BIGINT)", -1),
    ("CAST(1E20 AS INT)", 2147483647),
    ("CAST(-1E300 AS BIGINT)", -9223372036854775808),
    ("CAST(3000000000 AS INT)", -1294967296),
    ("CAST(1.99 AS INT)", 1),
    ("CAST(5 AS DOUBLE)", 5.0),
    ("CAST(5 AS DECIMAL(4, 2))", Decimal("5.00")),
    ("CAST(1.005E0 AS DECIMAL(4, 2))", Decimal("1.01")),
    ("CAST(500 AS DECIMAL(4, 2))", None),
    ("CAST('true' AS BOOLEAN)", True),
    ("CAST('YES' AS BOOLEAN)", True),
    ("CAST('t' AS BOOLEAN)", True),
    ("CAST('no' AS BOOLEAN)", False),
    ("CAST('' AS BOOLEAN)", False),
    ("CAST(TRUE AS VARCHAR)", "true"),
    ("CAST(5 AS VARCHAR)", "5"),
    ("CAST(1E0 AS VARCHAR)", "1.0"),
    ("CAST(1.50 AS VARCHAR)", "1.50"),
    ("CAST(12345678.9E0 AS VARCHAR)", "1.23456789E7"),
    ("CAST('2026-11-15' AS DATE)", datetime.date(2026, 11, 15)),
    ("CAST('soon' AS DATE)", None),
    ("CAST(CAST('2026-11-15' AS DATE) AS TIMESTAMP)", 1794700800000),
    ("CAST('2026-11-15T01:00:00.5+01:00' AS TIMESTAMP)", 1794700800500),
    ("CAST(CAST('2026-11-15T10:20:30.004' AS TIMESTAMP) AS VARCHAR)", "2026-11-15T10:20:30.004"),
    ("CAST(CAST('2026-11-15T10:20:30' AS TIMESTAMP) AS DATE)", datetime.date(2026, 11, 15)),
    ("CAST(CAST('2026-11-15T00:00:01' AS TIMESTAMP) AS TIME)", 1000),
    ("CAST('10:20:30' AS TIME)", 37230000),
    ("CAST('25:00' AS TIME)", None),
    ("CAST(CAST('10:20:30' AS TIME) AS VARCHAR)", "10:20:30"),
    ("CAST(CAST('10:20' AS TIME) AS VARCHAR)", "10:20"),
    ("CAST(ARRAY['1', 'x', NULL] AS ARRAY<INT>)", None),
    ("CAST(ARRAY['1', NULL] AS ARRAY<INT>)", [1, None]),
    ("CAST(MAP('a' := 1) AS MAP<VARCHAR, VARCHAR>)", {"a": "1"}),
    ("CAST(STRUCT(a := 1, b := 2) AS STRUCT<b VARCHAR, c INT>)", {"B": "2", "C": None}),
    ("CAST(ARRAY[1, 2] AS VARCHAR)", "[1, 2]"),
    ("CAST(MAP('a' := NULL, 'b' := TRUE) AS VARCHAR)", "{a=null, b=true}"),
    ("CAST(NULL AS INT)", None),
]


@pytest.mark.parametrize(("text", "expected"), CASTS)
def test_casts(text: str, expected: Any) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


NESTED: dict[str, DataType] = {
    "ARR": Array(INTEGER),
    "MAPPED": Map(VARCHAR, INTEGER),
    "S": Struct((("X", INTEGER), ("Y", Struct((("Z", VARCHAR),))))),
    "I": INTEGER,
}
ROW = {"ARR": [10, 20, None], "MAPPED": {"a": 1}, "S": {"X": 1, "Y": {"Z": "deep"}}, "I": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("arr[1]", 10),
        ("arr[-1]", None),
        ("arr[-2]", 20),
        ("arr[0]", None),
        ("arr[4]", None),
        ("arr[i]", 20),
        ("mapped['a']", 1),
        ("mapped['b']", None),
        ("s->y->z", "deep"),
        ("ARRAY[i, 3]", [2, 3]),
        ("MAP('k' := i, 'l' := 2.5)", {"k": Decimal("2.0"), "l": Decimal("2.5")}),
        ("STRUCT(a := i, b := 'x')", {"A": 2, "B": "x"}),
        ("TRANSFORM(arr, x => COALESCE(x, 0) + i)", [12, 22, 2]),
        ("FILTER(arr, x => x > 10)", [20]),
        ("FILTER(mapped, (k, v) => v > 1)", {}),
        ("REDUCE(ARRAY[1, 2, 3], 10, (sum, x) => sum + x)", 16),
        ("TRANSFORM(mapped, (k, v) => UCASE(k), (k, v) => v * 2)", {"A": 2}),
        ("TRANSFORM(ARRAY[ARRAY[1], ARRAY[2, 3]], x => REDUCE(x, 0, (s, y) => s + y))", [1, 5]),
    ],
)
def test_nested_values(text: str, expected: Any) -> None:
    assert value(text, NESTED, **ROW) == expected


def test_nested_nulls() -> None:
    nothing = dict.fromkeys(ROW)
    for text in ("arr[1]", "mapped['a']", "s->x", "s->y->z", "TRANSFORM(arr, x => x)"):
        assert value(text, NESTED, **nothing) is None


MOMENTS: dict[str, DataType] = {"AT": TIMESTAMP, "DAY": DATE, "ROWTIME": BIGINT}


@pytest.mark.parametrize(
    "text",
    [
        "at = '2026-11-15T14:00:00'",
        "at BETWEEN '2026-11-15' AND '2026-11-16'",
        "at IN ('2026-11-15T14', '2027')",
        "'2026-11-15T14' = at",
        "day = '2026-11-15'",
        "day < at",
        "ROWTIME >= '2026-11-15T14:00:00'",
        "ROWTIME < '2026-11-15T14:00:00.001'",
        "GREATEST(at, '2020-01-01') = at",
    ],
)
def test_text_constants_are_taken_for_moments(text: str) -> None:
    row = {"AT": 1794751200000, "DAY": datetime.date(2026, 11, 15), "ROWTIME": 1794751200000}
    assert value(text, MOMENTS, **row) is True


def test_text_is_read_as_a_date_where_one_is_compared_with_it() -> None:
    columns: dict[str, DataType] = {"A": VARCHAR, "B": DATE}
    day = datetime.date(2026, 11, 15)
    for text, same in (("2026-11-15", True), ("2026-11-14", False), ("soon", False), (None, False)):
        assert value("a = b", columns, A=text, B=day) is same
        assert value("b BETWEEN a AND a", columns, A=text, B=day) is same
        assert value("a BETWEEN b AND b", columns, A=text, B=day) is same
    assert value("a < b", columns, A="11/09", B=day) is False, "text that is no date is before nothing"
    assert value("a < b", columns, A="2026-11-09", B=day) is True


@pytest.mark.parametrize(
    ("text", "pattern", "escape", "expected"),
    [
        ("abc", "abc", None, True),
        ("abc", "a%", None, True),
        ("abc", "%c", None, True),
        ("abc", "%b%", None, True),
        ("abc", "a_c", None, True),
        ("abc", "a_", None, False),
        ("", "%", None, True),
        ("", "_", None, False),
        ("a%c", "a!%c", "!", True),
        ("abc", "a!%c", "!", False),
        ("a\nb", "a%b", None, True),
        ("aXbXc", "%_b_%", None, True),
        ("abab", "%ab", None, True),
        ("ab", "%ab%ab", None, False),
        ("a.c", "a.c", None, True),
        ("abc", "a.c", None, False),
        ("a!", "a!", "!", True),
    ],
)
def test_like(text: str, pattern: str, escape: str | None, expected: bool) -> None:
    assert like_matcher(pattern, escape)(text) is expected


def test_like_takes_no_longer_for_a_wicked_pattern() -> None:
    assert like_matcher("%a" * 40 + "%b", None)("a" * 20_000) is False


@given(st.floats(allow_nan=False))
def test_a_doubles_text_reads_back(number: float) -> None:
    text = double_text(number)
    assert float(text.replace("Infinity", "inf")) == number
    assert "." in text or "Infinity" in text


@pytest.mark.parametrize(
    ("operator", "left", "right", "expected"),
    [
        ("+", INTEGER, INTEGER, INTEGER),
        ("+", INTEGER, BIGINT, BIGINT),
        ("/", BIGINT, DOUBLE, DOUBLE),
        ("+", DecimalType(4, 2), DecimalType(5, 1), DecimalType(7, 2)),
        ("*", DecimalType(4, 2), DecimalType(5, 1), DecimalType(10, 3)),
        ("/", DecimalType(4, 2), DecimalType(5, 1), DecimalType(11, 8)),
        ("%", DecimalType(4, 2), DecimalType(5, 1), DecimalType(4, 2)),
        ("+", DecimalType(4, 2), INTEGER, DecimalType(13, 2)),
        ("*", DecimalType(38, 10), DecimalType(38, 10), DecimalType(38, 6)),
        ("+", DecimalType(4, 2), DOUBLE, DOUBLE),
        ("+", VARCHAR, INTEGER, None),
    ],
)
def test_what_arithmetic_gives(operator: str, left: DataType, right: DataType, expected: DataType | None) -> None:
    assert arithmetic_type(operator, left, right) == expected


def test_types_in_common() -> None:
    assert common_type(INTEGER, DecimalType(4, 2)) == DecimalType(12, 2)
    assert common_type(Array(INTEGER), Array(BIGINT)) == Array(BIGINT)
    assert common_type(Map(VARCHAR, INTEGER), Map(VARCHAR, DOUBLE)) == Map(VARCHAR, DOUBLE)
    assert common_type(Struct((("A", INTEGER),)), Struct((("A", BIGINT),))) == Struct((("A", BIGINT),))
    both = Struct((("B", BIGINT), ("A", INTEGER)))
    assert common_type(Struct((("A", INTEGER),)), Struct((("B", BIGINT),))) == both
    assert common_type(Struct((("A", INTEGER),)), Struct((("A", VARCHAR),))) is None
    assert common_type(DATE, TIMESTAMP) == TIMESTAMP
    assert common_type(VARCHAR, INTEGER) is None
    assert widens(INTEGER, DecimalType(10, 0))
    assert not widens(INTEGER, DecimalType(10, 2))
    assert not widens(BIGINT, INTEGER)
    assert not castable(BOOLEAN, INTEGER)
    assert [literal_type(number) for number in (1, 2**31, Decimal("0.05"))] == [INTEGER, BIGINT, DecimalType(2, 2)]


def test_constants_are_converted_once_and_columns_by_casts() -> None:
    assert str(resolved("d + 2.5", D=DOUBLE)) == (
        "Arithmetic(type=Double(), operator='+', left=ColumnRef(type=Double(), name='D'), "
        "right=Literal(type=Double(), value=2.5))"
    )
    assert "Cast(type=BigInt()" in str(resolved("a + c", A=INTEGER, C=BIGINT))


@pytest.mark.parametrize("a", [None, 5])
def test_not_in_and_not_between_are_true_where_the_test_is_not(a: int | None) -> None:
    for text in ("a NOT IN (1, NULL)", "a NOT IN (b)", "a NOT BETWEEN 1 AND 2", "a NOT BETWEEN 6 AND b"):
        assert value(text, NUMBERS, A=a, B=None) is True
        assert value(text.replace("a NOT", "NOT a"), NUMBERS, A=a, B=None) is True
    assert value("a NOT IN (5)", NUMBERS, A=a) is (a is None)
