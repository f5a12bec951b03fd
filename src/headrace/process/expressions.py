"""Resolved expressions → Spark columns, meaning what `sql.evaluate` means.

The session must be one of `session.query_session`: without ANSI errors, integers wrap and what fails is null.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.errors import UsageError
from headrace.process.casts import lower_cast
from headrace.process.comparable import comparable
from headrace.process.functions import lower_call
from headrace.process.functions.arguments import Arguments, Scope
from headrace.process.functions.fallback import lower_lazily
from headrace.process.functions.numbers import divide_doubles, remainder_doubles
from headrace.process.spark_types import spark_type
from headrace.sql import expressions as E
from headrace.sql.walk import walk
from headrace.types import Array, BigInt, DataType, Decimal, Double, Integer, Map, Timestamp, Varchar

NO_SCOPE: Scope = MappingProxyType({})
# LIKE without ESCAPE has no escape character; Spark wants one, so it gets one that no pattern holds.
NO_ESCAPE = "\x00"


def lower_expression(expression: E.Expression, scope: Scope = NO_SCOPE) -> Column:
    """`scope` holds the parameters of enclosing lambdas."""
    lowering = _LOWERINGS.get(type(expression))
    if lowering is None:
        raise UsageError(f"`{type(expression).__name__}` cannot run in a query")
    return lowering(expression, scope)


def _type(expression: E.Expression) -> DataType:
    assert expression.type is not None, f"{expression} is not resolved"
    return expression.type


def _literal(node: E.Literal, scope: Scope) -> Column:
    type_ = _type(node)
    if isinstance(node.value, bytes):
        return F.lit(bytearray(node.value))
    if isinstance(type_, Decimal) and node.value is not None:
        return F.lit(decimal.Decimal(node.value)).cast(spark_type(type_))
    if isinstance(type_, Timestamp) and isinstance(node.value, int):
        # Milliseconds, as the evaluator has them; to Spark a number is seconds.
        return F.timestamp_millis(F.lit(node.value).cast("long"))
    return F.lit(node.value).cast(spark_type(type_))


def _column(node: E.ColumnRef, scope: Scope) -> Column:
    return F.col("`" + node.name.replace("`", "``") + "`")


def _variable(node: E.LambdaVariable, scope: Scope) -> Column:
    return scope[node.name]


def _call(node: E.Call, scope: Scope) -> Column:
    return lower_call(Arguments(node, scope, lower_expression))


def _arithmetic(node: E.Arithmetic, scope: Scope) -> Column:
    left, right, type_ = lower_expression(node.left, scope), lower_expression(node.right, scope), _type(node)
    match type_:
        case Varchar():
            return F.concat(left, right)
        case Integer() | BigInt() if node.operator == "/":
            # Towards zero, as in Java; by zero it is null.
            return F.call_function("div", left, right).cast(spark_type(type_))
        case Double() if node.operator == "/":
            return divide_doubles(left, right)
        case Double() if node.operator == "%":
            return remainder_doubles(left, right)
        case _:
            return _OPERATORS[node.operator](left, right).cast(spark_type(type_))


_OPERATORS: dict[str, Callable[[Column, Column], Column]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "%": lambda left, right: left % right,
}


def _negate(node: E.Negate, scope: Scope) -> Column:
    return -lower_expression(node.operand, scope)


def _comparison(node: E.Comparison, scope: Scope) -> Column:
    left = comparable(lower_expression(node.left, scope), _type(node.left))
    right = comparable(lower_expression(node.right, scope), _type(node.right))
    return _compare(node.operator, left, right, _type(node.left))


def _compare(operator: str, left: Column, right: Column, type_: DataType) -> Column:
    """To Spark, what is not a number equals itself and is larger than any; to everybody else it is unlike all."""
    compared = _COMPARISONS[operator](left, right)
    if not isinstance(type_, Double) or operator.startswith("IS"):
        return compared
    unlike = (F.isnan(left) & right.isNotNull()) | (F.isnan(right) & left.isNotNull())
    return F.when(unlike, F.lit(operator == "<>")).otherwise(compared)


_COMPARISONS: dict[str, Callable[[Column, Column], Column]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "IS DISTINCT FROM": lambda left, right: ~left.eqNullSafe(right),
    "IS NOT DISTINCT FROM": lambda left, right: left.eqNullSafe(right),
}


def _logical(node: E.Logical, scope: Scope) -> Column:
    if _calls_python(node):
        return lower_lazily(node, scope, lower_expression)
    left, right = lower_expression(node.left, scope), lower_expression(node.right, scope)
    return left & right if node.operator == "AND" else left | right


def _calls_python(node: E.Expression) -> bool:
    return any(isinstance(part, E.Call) and part.function is not None for part in walk(node))


def _not(node: E.Not, scope: Scope) -> Column:
    return ~lower_expression(node.operand, scope)


def _negated(value: Column, negated: bool) -> Column:
    return ~value if negated else value


def _is_null(node: E.IsNull, scope: Scope) -> Column:
    value = lower_expression(node.operand, scope)
    return value.isNotNull() if node.negated else value.isNull()


def _between(node: E.Between, scope: Scope) -> Column:
    value, low, high = (lower_expression(part, scope) for part in (node.operand, node.low, node.high))
    type_ = _type(node.operand)
    return _negated(_compare(">=", value, low, type_) & _compare("<=", value, high, type_), node.negated)


def _in(node: E.In, scope: Scope) -> Column:
    value = comparable(lower_expression(node.operand, scope), _type(node.operand))
    options = [comparable(lower_expression(option, scope), _type(option)) for option in node.options]
    # `isin` makes one hash set of constants, however many there are.
    return _negated(value.isin(*options), node.negated)


def _like(node: E.Like, scope: Scope) -> Column:
    value, pattern, escape = lower_expression(node.operand, scope), node.pattern, node.escape or NO_ESCAPE
    if isinstance(pattern, E.Literal) and isinstance(pattern.value, str):
        return _negated(
            F.like(value, F.lit(_plain_escapes(pattern.value, node.escape)), F.lit(NO_ESCAPE)), node.negated
        )
    return _negated(F.like(value, lower_expression(pattern, scope), F.lit(escape)), node.negated)


def _plain_escapes(pattern: str, escape: str | None) -> str:
    """Spark refuses an escape before anything but a wildcard; in SQL it stands for what follows."""
    result, characters = "", iter(pattern)
    for character in characters:
        if character != escape:
            result += character
            continue
        following = next(characters, "")
        result += NO_ESCAPE + following if following in ("%", "_") else following
    return result


def _case(node: E.Case, scope: Scope) -> Column:
    if _calls_python(node):
        return lower_lazily(node, scope, lower_expression)
    branches = [(lower_expression(when, scope), lower_expression(then, scope)) for when, then in node.branches]
    first, *others = branches
    chain = reduce(lambda chain, branch: chain.when(*branch), others, F.when(*first))
    return chain if node.otherwise is None else chain.otherwise(lower_expression(node.otherwise, scope))


def _cast(node: E.Cast, scope: Scope) -> Column:
    return lower_cast(lower_expression(node.operand, scope), _type(node.operand), node.target)


def _subscript(node: E.Subscript, scope: Scope) -> Column:
    base, index = lower_expression(node.base, scope), lower_expression(node.index, scope)
    if not isinstance(_type(node.base), Array):
        return F.try_element_at(base, index)
    # Place 0 is an error to Spark even here; to us it is as absent as one beyond the end.
    return F.when(index != 0, F.try_element_at(base, F.when(index != 0, index).cast("int")))


def _dereference(node: E.Dereference, scope: Scope) -> Column:
    return lower_expression(node.base, scope).getField(node.field)


def _array(node: E.ArrayLiteral, scope: Scope) -> Column:
    return F.array(*(lower_expression(element, scope) for element in node.elements)).cast(spark_type(_type(node)))


def _map(node: E.MapLiteral, scope: Scope) -> Column:
    type_ = _type(node)
    assert isinstance(type_, Map)
    parts = [lower_expression(part, scope) for entry in node.entries for part in entry]
    # A map has no null key; to Spark one is an error that would end the query. KSQL's JSON calls it `null`.
    if isinstance(type_.key, Varchar):
        parts[::2] = [F.coalesce(key, F.lit("null")) for key in parts[::2]]
        return F.create_map(*parts).cast(spark_type(type_))
    keyed = [key.isNotNull() for key in parts[::2]]
    return F.when(reduce(lambda one, other: one & other, keyed), F.create_map(*parts)).cast(spark_type(type_))


def _struct(node: E.StructLiteral, scope: Scope) -> Column:
    return F.struct(*(lower_expression(value, scope).alias(name) for name, value in node.fields))


_LOWERINGS: Mapping[type, Callable[[Any, Scope], Column]] = MappingProxyType(
    {
        E.Literal: _literal,
        E.ColumnRef: _column,
        E.LambdaVariable: _variable,
        E.Call: _call,
        E.Arithmetic: _arithmetic,
        E.Negate: _negate,
        E.Comparison: _comparison,
        E.Logical: _logical,
        E.Not: _not,
        E.IsNull: _is_null,
        E.Between: _between,
        E.In: _in,
        E.Like: _like,
        E.Case: _case,
        E.Cast: _cast,
        E.Subscript: _subscript,
        E.Dereference: _dereference,
        E.ArrayLiteral: _array,
        E.MapLiteral: _map,
        E.StructLiteral: _struct,
    }
)
