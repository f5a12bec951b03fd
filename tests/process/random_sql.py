"""Random SQL expressions of a wanted type, and random rows to evaluate them on."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from headrace.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    TIME,
    TIMESTAMP,
    VARCHAR,
    Array,
    Column,
    DataType,
    Map,
    Struct,
)
from headrace.types import Decimal as DecimalType

MONEY = DecimalType(10, 2)
INTEGERS, TEXTS = Array(INTEGER), Array(VARCHAR)
COUNTS = Map(VARCHAR, INTEGER)
POINT = Struct((("X", INTEGER), ("Y", VARCHAR)))

COLUMNS = (
    Column("I1", INTEGER),
    Column("I2", INTEGER),
    Column("B1", BIGINT),
    Column("B2", BIGINT),
    Column("D1", DOUBLE),
    Column("D2", DOUBLE),
    Column("M1", MONEY),
    Column("M2", DecimalType(6, 3)),
    Column("S1", VARCHAR),
    Column("S2", VARCHAR),
    Column("F1", BOOLEAN),
    Column("F2", BOOLEAN),
    Column("T1", TIMESTAMP),
    Column("DT", DATE),
    Column("TM", TIME),
    Column("AI", INTEGERS),
    Column("AT", TEXTS),
    Column("MC", COUNTS),
    Column("ST", POINT),
)

_WORDS = (
    "",
    "a",
    "Page",
    "page/1",
    "  x ",
    "12",
    "-7",
    "3.5",
    "true",
    "no",
    "é中",
    "A,b,,C",
    "2026-11-15T13:59:00.5",
    "%_",
)
_INTEGERS = (0, 1, -1, 2, 7, -13, 100, 2**31 - 1, -(2**31))
_BIGINTS = (*_INTEGERS, 2**40, -(2**53), 2**63 - 1, -(2**63))
_DOUBLES = (0.0, 1.0, -1.5, 0.25, 1234.5, -98765.125, 1e9, 3e-5)


def random_row(chance: random.Random) -> dict[str, Any]:
    """Values as the Python evaluator has them: timestamps are milliseconds."""
    return {column.name: None if chance.random() < 0.15 else random_value(column.type, chance) for column in COLUMNS}


def random_value(type_: DataType, chance: random.Random) -> Any:
    if type_ == INTEGER:
        return chance.choice((*_INTEGERS, chance.randint(-50, 50)))
    if type_ == BIGINT:
        return chance.choice((*_BIGINTS, chance.randint(-(10**6), 10**6)))
    if type_ == DOUBLE:
        # Short in binary and in decimal: Java 17 writes some other doubles with a digit too many.
        return chance.choice((*_DOUBLES, chance.randint(-(2**20), 2**20) / 64))
    if type_ == VARCHAR:
        return chance.choice(_WORDS)
    if type_ == BOOLEAN:
        return chance.random() < 0.5
    if type_ == TIMESTAMP:
        return chance.choice((0, -1, 86_399_999, chance.randint(-(10**12), 4 * 10**12)))
    if type_ == DATE:
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=chance.randint(-20_000, 40_000))
    if type_ == TIME:
        return chance.choice((0, 60_000, 61_000, 86_399_999, chance.randint(0, 86_399_999)))
    return _random_nested(type_, chance)


def _random_nested(type_: DataType, chance: random.Random) -> Any:
    def inner(of: DataType) -> Any:
        return None if chance.random() < 0.2 else random_value(of, chance)

    match type_:
        case DecimalType(precision, scale):
            return Decimal(chance.randint(-(10**precision) + 1, 10**precision - 1)).scaleb(-scale)
        case Array(element):
            return [inner(element) for _ in range(chance.randint(0, 4))]
        case Map(_, value):
            return {key: inner(value) for key in chance.sample(("a", "b", "Page", ""), chance.randint(0, 3))}
        case Struct(fields):
            return {name: inner(field) for name, field in fields}
    raise TypeError(type_)


class RandomSql:
    """`expression(type, depth)` is text of an expression that has, or converts to, that type."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def expression(self, type_: DataType, depth: int) -> str:
        if depth <= 0 or self.chance.random() < 0.15:
            return self._leaf(type_)
        if type_ not in (BOOLEAN, VARCHAR) and self.chance.random() < 0.15:
            return self._conditional(type_, depth)
        makers = self._makers().get(type_)
        return self.chance.choice(makers)(depth - 1) if makers else self._leaf(type_)

    def _leaf(self, type_: DataType) -> str:
        columns = [column.name for column in COLUMNS if column.type == type_]
        if columns and self.chance.random() < 0.8:
            return self.chance.choice(columns)
        literals: dict[DataType, Callable[[], str]] = {
            INTEGER: lambda: str(self.chance.randint(-20, 20)),
            BIGINT: lambda: str(self.chance.choice((2**40, -(2**35), 5_000_000_000))),
            DOUBLE: lambda: self.chance.choice(("1.5E0", "-2.0E-1", "1E3", "0E0")),
            MONEY: lambda: self.chance.choice(("1.50", "-0.25", "100.00")),
            VARCHAR: lambda: "'" + self.chance.choice(_WORDS) + "'",
            BOOLEAN: lambda: self.chance.choice(("TRUE", "FALSE")),
        }
        if type_ in literals:
            return literals[type_]()
        return self.chance.choice(columns)

    def _conditional(self, type_: DataType, depth: int) -> str:
        first, second = self.expression(type_, depth - 1), self.expression(type_, depth - 1)
        condition = self.expression(BOOLEAN, depth - 1)
        return self.chance.choice(
            (
                f"CASE WHEN {condition} THEN {first} ELSE {second} END",
                f"CASE WHEN {condition} THEN {first} END",
                f"COALESCE({first}, {second})",
                f"NULLIF({first}, {second})" if not isinstance(type_, Array | Map | Struct) else first,
            )
        )

    def _makers(self) -> dict[DataType, list[Callable[[int], str]]]:
        return {
            BOOLEAN: [self._compare, self._compare, self._logic, self._test, self._like, self._from_text(BOOLEAN)],
            INTEGER: [self._operate(INTEGER, "+-*/%"), self._integer_call, self._from_text(INTEGER), self._from_double],
            BIGINT: [self._operate(BIGINT, "+-*/%"), self._widened, self._bigint_call, self._from_text(BIGINT)],
            DOUBLE: [self._operate(DOUBLE, "+-*/%"), self._double_call, self._from_text(DOUBLE), self._as_double],
            MONEY: [self._decimal],
            VARCHAR: [self._text_call, self._text_call, self._to_text, self._joined],
            TIMESTAMP: [self._moment],
            DATE: [lambda depth: f"CAST({self.expression(TIMESTAMP, depth)} AS DATE)"],
            TIME: [lambda depth: f"CAST({self.expression(TIMESTAMP, depth)} AS TIME)"],
            INTEGERS: [self._array],
            TEXTS: [lambda depth: f"SPLIT({self.expression(VARCHAR, depth)}, ',')", self._text_array],
        }

    def _operate(self, type_: DataType, operators: str) -> Callable[[int], str]:
        return lambda depth: (
            f"({self.expression(type_, depth)} {self.chance.choice(operators)} {self.expression(type_, depth)})"
        )

    def _from_text(self, type_: DataType) -> Callable[[int], str]:
        return lambda depth: f"CAST({self.expression(VARCHAR, depth)} AS {type_})"

    def _from_double(self, depth: int) -> str:
        return f"CAST({self.expression(self.chance.choice((DOUBLE, BIGINT, MONEY)), depth)} AS INTEGER)"

    def _as_double(self, depth: int) -> str:
        return f"CAST({self.expression(self.chance.choice((BIGINT, MONEY, INTEGER)), depth)} AS DOUBLE)"

    def _widened(self, depth: int) -> str:
        return f"({self.expression(INTEGER, depth)} + {self.expression(BIGINT, depth)})"

    def _compare(self, depth: int) -> str:
        type_ = self.chance.choice((INTEGER, BIGINT, MONEY, VARCHAR, TIMESTAMP, DATE, TIME, DOUBLE))
        left, right = self.expression(type_, depth), self.expression(type_, depth)
        if type_ == DOUBLE:
            operator = self.chance.choice(("=", "<>", "<", "<=", ">", ">="))
            return f"({left} {operator} {right})"
        operator = self.chance.choice(("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
        return self.chance.choice(
            (
                f"({left} {operator} {right})",
                f"({left} BETWEEN {right} AND {self.expression(type_, depth)})",
                f"({left} NOT IN ({right}, {self.expression(type_, depth)}))",
                f"({left} IN ({right}, {self.expression(type_, depth)}))",
            )
        )

    def _logic(self, depth: int) -> str:
        left, right = self.expression(BOOLEAN, depth), self.expression(BOOLEAN, depth)
        return self.chance.choice((f"({left} AND {right})", f"({left} OR {right})", f"(NOT {left})"))

    def _test(self, depth: int) -> str:
        type_ = self.chance.choice([column.type for column in COLUMNS])
        tested = self.expression(type_, depth)
        return self.chance.choice(
            (
                f"({tested} IS NULL)",
                f"({tested} IS NOT NULL)",
                f"ARRAY_CONTAINS({self.expression(INTEGERS, depth)}, {self.expression(INTEGER, depth)})",
                "(MC = MC)",
                "(ST = STRUCT(X := 1, Y := 'a'))",
            )
        )

    def _like(self, depth: int) -> str:
        pattern = self.chance.choice(("'%a%'", "'_a%'", "'page%'", "'!%!_' ESCAPE '!'", "''", "'%'", "'.*'"))
        negated = self.chance.choice(("", "NOT "))
        return f"({self.expression(VARCHAR, depth)} {negated}LIKE {pattern})"

    def _integer_call(self, depth: int) -> str:
        integer, text = self.expression(INTEGER, depth), self.expression(VARCHAR, depth)
        return self.chance.choice(
            (
                f"LEN({text})",
                f"INSTR({text}, {self.expression(VARCHAR, depth)})",
                f"AI[{integer}]",
                f"MC[{text}]",
                "ST->X",
                f"ARRAY_LENGTH({self.expression(INTEGERS, depth)})",
                f"ARRAY_MAX({self.expression(INTEGERS, depth)})",
                f"SIGN({self.expression(self.chance.choice((DOUBLE, MONEY, BIGINT)), depth)})",
                f"GREATEST({integer}, {self.expression(INTEGER, depth)}, 3)",
                f"LEAST({integer}, 3)",
                f"REDUCE({self.expression(INTEGERS, depth)}, 0, (total, one) => total + one)",
                f"(- {integer})",
            )
        )

    def _bigint_call(self, depth: int) -> str:
        double = self.expression(DOUBLE, depth)
        return self.chance.choice(
            (
                f"ROUND({double})",
                f"TRUNC({double})",
                f"UNIX_TIMESTAMP({self.expression(TIMESTAMP, depth)})",
                f"CAST({double} AS BIGINT)",
            )
        )

    def _double_call(self, depth: int) -> str:
        double = self.expression(DOUBLE, depth)
        return self.chance.choice(
            (f"CEIL({double})", f"FLOOR({double})", f"ABS({double})", f"SQRT({double})", f"LN({double})")
        )

    def _decimal(self, depth: int) -> str:
        operator = self.chance.choice("+-*")
        source = self.chance.choice((INTEGER, DOUBLE, VARCHAR))
        return self.chance.choice(
            (
                f"CAST((M1 {operator} M2) AS DECIMAL(10, 2))",
                "CAST((M1 / M2) AS DECIMAL(10, 2))",
                f"CAST({self.expression(source, depth)} AS DECIMAL(10, 2))",
                f"ABS({self.expression(MONEY, depth)})",
                f"ROUND({self.expression(MONEY, depth)}, 1)",
                f"CEIL({self.expression(MONEY, depth)})",
            )
        )

    def _text_call(self, depth: int) -> str:
        text, other, number = (
            self.expression(VARCHAR, depth),
            self.expression(VARCHAR, depth),
            self.chance.randint(-3, 6),
        )
        return self.chance.choice(
            (
                f"UCASE({text})",
                f"LCASE({text})",
                f"TRIM({text})",
                f"SUBSTRING({text}, {number})",
                f"SUBSTRING({text}, {number}, {self.chance.randint(-1, 4)})",
                f"({text} + {other})",
                f"CONCAT({text}, {other})",
                f"CONCAT_WS('-', {text}, {other})",
                f"REPLACE({text}, 'a', {other})",
                f"LPAD({text}, {number}, 'xy')",
                f"RPAD({text}, {number}, {other})",
                f"AT[{number}]",
                "ST->Y",
                f"IFNULL({text}, {other})",
                f"INITCAP({text})",
            )
        )

    def _to_text(self, depth: int) -> str:
        type_ = self.chance.choice(
            (INTEGER, BIGINT, MONEY, BOOLEAN, TIMESTAMP, DATE, TIME, INTEGERS, TEXTS, COUNTS, POINT)
        )
        return f"CAST({self.expression(type_, depth)} AS VARCHAR)"

    def _joined(self, depth: int) -> str:
        pattern = self.chance.choice(("yyyy-MM-dd HH:mm:ss.SSS", "dd.MM.yyyy", "EEE HH:mm"))
        return self.chance.choice(
            (
                f"ARRAY_JOIN({self.expression(TEXTS, depth)}, '|')",
                f"ARRAY_JOIN({self.expression(INTEGERS, depth)})",
                f"FORMAT_TIMESTAMP({self.expression(TIMESTAMP, depth)}, '{pattern}')",
            )
        )

    def _moment(self, depth: int) -> str:
        unit = self.chance.choice(("SECONDS", "HOURS", "DAYS"))
        number = self.chance.randint(-1000, 1000)
        return self.chance.choice(
            (
                f"TIMESTAMPADD({unit}, {number}, T1)",
                f"CAST({self.expression(DATE, depth)} AS TIMESTAMP)",
                f"CAST({self.expression(VARCHAR, depth)} AS TIMESTAMP)",
                f"FROM_UNIXTIME({self.expression(INTEGER, depth)})",
            )
        )

    def _array(self, depth: int) -> str:
        array, integer = self.expression(INTEGERS, depth), self.expression(INTEGER, depth)
        return self.chance.choice(
            (
                f"ARRAY[{integer}, {self.expression(INTEGER, depth)}]",
                f"TRANSFORM({array}, one => one * {integer})",
                f"FILTER({array}, one => one > {integer})",
                f"ARRAY_SORT({array}, 'DESC')",
                f"ARRAY_DISTINCT({array})",
                f"SLICE({array}, {self.chance.randint(-1, 3)}, {self.chance.randint(0, 3)})",
                "MAP_VALUES(MC)",
                f"CAST({self.expression(TEXTS, depth)} AS ARRAY<INTEGER>)",
            )
        )

    def _text_array(self, depth: int) -> str:
        array = self.expression(TEXTS, depth)
        return self.chance.choice(
            (f"ARRAY_SORT({array})", "MAP_KEYS(MC)", f"CAST({self.expression(INTEGERS, depth)} AS ARRAY<VARCHAR>)")
        )
