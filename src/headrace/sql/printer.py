"""Expressions and types → text that parses to the same, in brackets only where they are needed."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import singledispatch
from typing import Any

from headrace.sql.expressions import (
    Arithmetic,
    ArrayLiteral,
    Between,
    Call,
    Case,
    Cast,
    ColumnRef,
    Comparison,
    Dereference,
    Expression,
    Frame,
    In,
    IsNull,
    Lambda,
    LambdaVariable,
    Like,
    Literal,
    Logical,
    MapLiteral,
    Name,
    Negate,
    Not,
    OrderItem,
    Over,
    StructLiteral,
    Subscript,
)
from headrace.sql.tokens import RESERVED
from headrace.types import Array, DataType, Map, Struct, quote_name

_OR, _AND, _NOT, _PREDICATE, _ADDITIVE, _MULTIPLICATIVE, _UNARY, _PRIMARY = range(1, 9)


def print_name(name: str) -> str:
    """The name as it must be written to mean itself."""
    return f"`{name}`" if name in RESERVED else quote_name(name)


def print_string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def print_type(type_: DataType) -> str:
    match type_:
        case Array(element):
            return f"ARRAY<{print_type(element)}>"
        case Map(key, value):
            return f"MAP<{print_type(key)}, {print_type(value)}>"
        case Struct(fields):
            return "STRUCT<" + ", ".join(f"{print_name(name)} {print_type(field)}" for name, field in fields) + ">"
        case _:
            return str(type_)


def print_literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return print_string(value)
        case bytes():
            return f"X'{value.hex().upper()}'"
        case float():
            return _with_exponent(value)
        case Decimal():
            text = format(value, "f")
            return text if "." in text else text + "."
        case _:
            return str(value)


def _with_exponent(value: float) -> str:
    """A DOUBLE is told from a DECIMAL by its exponent."""
    text = repr(value).upper()
    return text if "E" in text else text + "E0"


def print_expression(expression: Expression) -> str:
    """
    >>> from headrace.sql.parser import parse_expression
    >>> print_expression(parse_expression("(a + b) * c - (d)"))
    '(A + B) * C - D'
    """
    return _print(expression)


def print_operand(expression: Expression) -> str:
    """As it must be written before `->` or `[`."""
    return _inside(expression, _PRIMARY)


def _inside(expression: Expression, minimum: int) -> str:
    """In brackets if it binds less tightly than its place asks for."""
    text = _print(expression)
    return f"({text})" if _precedence(expression) < minimum else text


def _precedence(expression: Expression) -> int:
    match expression:
        case Logical():
            return _OR if expression.operator == "OR" else _AND
        case Not():
            return _NOT
        case Comparison() | IsNull() | Between() | In() | Like():
            return _PREDICATE
        case Arithmetic():
            return _ADDITIVE if expression.operator in "+-" else _MULTIPLICATIVE
        case Negate():
            return _UNARY
        case Literal() if print_literal(expression.value).startswith("-"):
            return _UNARY
        case Lambda():
            return 0
        case _:
            return _PRIMARY


def _list(expressions: Iterable[Expression]) -> str:
    return ", ".join(_print(expression) for expression in expressions)


def _not_word(negated: bool) -> str:
    return "NOT " if negated else ""


@singledispatch
def _print(node: Expression) -> str:
    """A subquery is printed where queries are."""
    raise TypeError(f"not an expression: {node!r}")


print_part = _print


@_print.register
def _literal(node: Literal) -> str:
    return print_literal(node.value)


@_print.register
def _name(node: Name) -> str:
    return print_name(node.name) if node.source is None else f"{print_name(node.source)}.{print_name(node.name)}"


@_print.register
def _column(node: ColumnRef) -> str:
    return print_name(node.name)


@_print.register
def _call(node: Call) -> str:
    return f"{node.name}({_list(node.arguments) if node.arguments or node.name != 'COUNT' else '*'})"


@_print.register
def _over(node: Over) -> str:
    parts = [
        f"PARTITION BY {_list(node.partition_by)}" if node.partition_by else "",
        print_order_by(node.order_by),
        _frame(node.frame) if node.frame is not None else "",
    ]
    call = _call(Call(node.name, node.arguments))
    return f"{call} OVER ({' '.join(part for part in parts if part)})"


def _frame(frame: Frame) -> str:
    return f"{frame.unit} BETWEEN {_bound(frame.start, 'PRECEDING')} AND {_bound(frame.end, 'FOLLOWING')}"


def _bound(rows: int | None, unbounded: str) -> str:
    if rows is None:
        return f"UNBOUNDED {unbounded}"
    return "CURRENT ROW" if rows == 0 else f"{abs(rows)} {'PRECEDING' if rows < 0 else 'FOLLOWING'}"


def print_order_by(order: Iterable[OrderItem]) -> str:
    """Empty for no order."""
    parts = [_print(one.expression) + (" DESC" if one.descending else "") for one in order]
    return "ORDER BY " + ", ".join(parts) if parts else ""


@_print.register
def _arithmetic(node: Arithmetic) -> str:
    precedence = _precedence(node)
    return f"{_inside(node.left, precedence)} {node.operator} {_inside(node.right, precedence + 1)}"


@_print.register
def _negate(node: Negate) -> str:
    # `-5` is a number and `--` begins a comment, so minus before a number or a minus gets brackets.
    bare = not isinstance(node.operand, Negate | Literal)
    return f"-{_inside(node.operand, _UNARY)}" if bare else f"-({_print(node.operand)})"


@_print.register
def _comparison(node: Comparison) -> str:
    return f"{_inside(node.left, _ADDITIVE)} {node.operator} {_inside(node.right, _ADDITIVE)}"


@_print.register
def _logical(node: Logical) -> str:
    precedence = _precedence(node)
    return f"{_inside(node.left, precedence)} {node.operator} {_inside(node.right, precedence + 1)}"


@_print.register
def _not(node: Not) -> str:
    return f"NOT {_inside(node.operand, _NOT)}"


@_print.register
def _is_null(node: IsNull) -> str:
    return f"{_inside(node.operand, _ADDITIVE)} IS {_not_word(node.negated)}NULL"


@_print.register
def _between(node: Between) -> str:
    low, high = _inside(node.low, _ADDITIVE), _inside(node.high, _ADDITIVE)
    return f"{_inside(node.operand, _ADDITIVE)} {_not_word(node.negated)}BETWEEN {low} AND {high}"


@_print.register
def _in(node: In) -> str:
    return f"{_inside(node.operand, _ADDITIVE)} {_not_word(node.negated)}IN ({_list(node.options)})"


@_print.register
def _like(node: Like) -> str:
    escape = f" ESCAPE {print_string(node.escape)}" if node.escape is not None else ""
    pattern = _inside(node.pattern, _ADDITIVE)
    return f"{_inside(node.operand, _ADDITIVE)} {_not_word(node.negated)}LIKE {pattern}{escape}"


@_print.register
def _case(node: Case) -> str:
    operand = f" {_print(node.operand)}" if node.operand is not None else ""
    branches = "".join(f" WHEN {_print(condition)} THEN {_print(result)}" for condition, result in node.branches)
    otherwise = f" ELSE {_print(node.otherwise)}" if node.otherwise is not None else ""
    return f"CASE{operand}{branches}{otherwise} END"


@_print.register
def _cast(node: Cast) -> str:
    return f"CAST({_print(node.operand)} AS {print_type(node.target)})"


@_print.register
def _subscript(node: Subscript) -> str:
    return f"{_inside(node.base, _PRIMARY)}[{_print(node.index)}]"


@_print.register
def _dereference(node: Dereference) -> str:
    return f"{_inside(node.base, _PRIMARY)}->{print_name(node.field)}"


@_print.register
def _array(node: ArrayLiteral) -> str:
    return f"ARRAY[{_list(node.elements)}]"


@_print.register
def _map(node: MapLiteral) -> str:
    return "MAP(" + ", ".join(f"{_print(key)} := {_print(value)}" for key, value in node.entries) + ")"


@_print.register
def _struct(node: StructLiteral) -> str:
    return "STRUCT(" + ", ".join(f"{print_name(name)} := {_print(value)}" for name, value in node.fields) + ")"


@_print.register
def _lambda(node: Lambda) -> str:
    names = ", ".join(print_name(name) for name in node.parameters)
    return f"{names if len(node.parameters) == 1 else f'({names})'} => {_print(node.body)}"


@_print.register
def _lambda_variable(node: LambdaVariable) -> str:
    return print_name(node.name)
