"""Expressions: columns, constants, functions, and operators between them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeAlias

from headrace.errors import UsageError
from headrace.sql.clauses import Identifier
from headrace.sql.expressions import (
    Arithmetic,
    Between,
    Call,
    Cast,
    Comparison,
    Dereference,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Logical,
    Name,
    Negate,
    Not,
    Subscript,
)
from headrace.sql.parser import parse_columns, parse_expression
from headrace.sql.printer import print_expression

Constant: TypeAlias = bool | int | float | Decimal | str | bytes | None


class Column:
    """A value per row. Operators make further ones; beside an operator, a Python value is a constant."""

    __slots__ = ("node",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, node: Expression) -> None:
        self.node = node

    def __repr__(self) -> str:
        return f"<{print_expression(self.node)}>"

    def __bool__(self) -> bool:
        raise UsageError("a column is neither true nor false", hint="write & for AND, | for OR, ~ for NOT")

    def __add__(self, other: Operand) -> Column:
        return Column(Arithmetic("+", self.node, operand(other)))

    def __sub__(self, other: Operand) -> Column:
        return Column(Arithmetic("-", self.node, operand(other)))

    def __mul__(self, other: Operand) -> Column:
        return Column(Arithmetic("*", self.node, operand(other)))

    def __truediv__(self, other: Operand) -> Column:
        return Column(Arithmetic("/", self.node, operand(other)))

    def __mod__(self, other: Operand) -> Column:
        return Column(Arithmetic("%", self.node, operand(other)))

    def __radd__(self, other: Constant) -> Column:
        return Column(Arithmetic("+", operand(other), self.node))

    def __rsub__(self, other: Constant) -> Column:
        return Column(Arithmetic("-", operand(other), self.node))

    def __rmul__(self, other: Constant) -> Column:
        return Column(Arithmetic("*", operand(other), self.node))

    def __neg__(self) -> Column:
        return Column(Negate(self.node))

    def __eq__(self, other: Operand) -> Column:  # type: ignore[override]
        return Column(IsNull(self.node) if other is None else Comparison("=", self.node, operand(other)))

    def __ne__(self, other: Operand) -> Column:  # type: ignore[override]
        return Column(IsNull(self.node, True) if other is None else Comparison("<>", self.node, operand(other)))

    def __lt__(self, other: Operand) -> Column:
        return Column(Comparison("<", self.node, operand(other)))

    def __le__(self, other: Operand) -> Column:
        return Column(Comparison("<=", self.node, operand(other)))

    def __gt__(self, other: Operand) -> Column:
        return Column(Comparison(">", self.node, operand(other)))

    def __ge__(self, other: Operand) -> Column:
        return Column(Comparison(">=", self.node, operand(other)))

    def __and__(self, other: Operand) -> Column:
        return Column(Logical("AND", self.node, operand(other)))

    def __or__(self, other: Operand) -> Column:
        return Column(Logical("OR", self.node, operand(other)))

    def __invert__(self) -> Column:
        return Column(Not(self.node))

    def __getitem__(self, index: Operand) -> Column:
        """An array's element, counted from 1, or a map's value."""
        return Column(Subscript(self.node, operand(index)))

    def field(self, name: str) -> Column:
        """A struct's field."""
        return Column(Dereference(self.node, identifier(name).name))

    def like(self, pattern: str) -> Column:
        return Column(Like(self.node, Literal(pattern)))

    def between(self, low: Operand, high: Operand) -> Column:
        return Column(Between(self.node, operand(low), operand(high)))

    def is_in(self, *options: Operand) -> Column:
        return Column(In(self.node, tuple(operand(option) for option in options)))

    def is_null(self) -> Column:
        return Column(IsNull(self.node))

    def is_not_null(self) -> Column:
        return Column(IsNull(self.node, True))

    def cast(self, type_: str) -> Column:
        """`type_` as in SQL: `"DECIMAL(10, 2)"`."""
        [element] = parse_columns(f"x {type_}")
        return Column(Cast(self.node, element.type))


Operand: TypeAlias = Column | Constant
Written: TypeAlias = Column | str
"""Where a column is expected, text is SQL."""


def operand(value: Operand) -> Expression:
    if isinstance(value, Column):
        return value.node
    if value is None or isinstance(value, bool | int | float | Decimal | str | bytes):
        return Literal(value)
    raise UsageError(f"`{value!r}` is no constant of SQL", hint="a number, text, bytes, True, False or None")


def written(value: Written) -> Expression:
    return value.node if isinstance(value, Column) else parse_expression(value)


def col(name: str) -> Column:
    """A column: `col("pageid")`, or of one side of a join `col("p.pageid")`.

    >>> col("views") + 1 > 10
    <VIEWS + 1 > 10>
    """
    node = parse_expression(name)
    if not isinstance(node, Name):
        raise UsageError(f"`{name}` is not a column's name", hint='expr("…") takes any expression of SQL')
    return Column(node)


def lit(value: Constant) -> Column:
    """A constant, where text would be SQL."""
    return Column(operand(value))


def expr(text: str) -> Column:
    """Any expression, in SQL."""
    return Column(parse_expression(text))


def identifier(name: str) -> Identifier:
    """A name as SQL reads it: upper case, unless in backticks."""
    node = parse_expression(name)
    if not isinstance(node, Name) or node.source is not None:
        raise UsageError(f"`{name}` is not a name", hint="names with other characters are written in `backticks`")
    return Identifier(node.name)


class _Functions:
    """`fn.ucase(col("name"))`: every function of SQL, by its name. Text among the arguments is SQL; `lit` is text."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments: Column | Constant) -> Column:
            parts = tuple(written(one) if isinstance(one, str) else operand(one) for one in arguments)
            return Column(Call(name.rstrip("_").upper(), parts))

        return call


fn = _Functions()
