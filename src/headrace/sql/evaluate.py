"""Resolved expressions → Python functions over rows. For pull queries, stateless push queries, INSERT … VALUES, and as
the reference that the Spark implementations are compared with.

Values: BOOLEAN bool, INTEGER and BIGINT int, DOUBLE float, DECIMAL decimal.Decimal, VARCHAR str, BYTES bytes, DATE
datetime.date, TIME int (milliseconds of the day), TIMESTAMP int (milliseconds since 1970), ARRAY list, MAP dict, STRUCT
dict. Null is None; logic has three values; what cannot be computed (division by zero, a failing cast, a function that
raises) is null; in a lambda, arithmetic that has no value makes the whole call null that the lambda is given to.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial, singledispatch
from typing import Any, TypeAlias

from headrace.clock import SystemClock
from headrace.errors import DeadlineExceeded
from headrace.sql.arithmetic import arithmetic
from headrace.sql.casting import caster
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
    In,
    IsNull,
    Lambda,
    LambdaVariable,
    Like,
    Literal,
    Logical,
    MapLiteral,
    Negate,
    Not,
    StructLiteral,
    Subscript,
)
from headrace.sql.functions import argument_types, function_of
from headrace.sql.like import like_matcher
from headrace.types import Array, Map, Varchar

Row: TypeAlias = Mapping[str, Any]
Compiled: TypeAlias = Callable[[Row], Any]
Now: TypeAlias = Callable[[], int]

_PARAMETER = "\0"

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compile_expression(expression: Expression, now: Now | None = None) -> Compiled:
    """A function from a row (column name → value) to the value. `now` gives the current time, in milliseconds."""
    return _compile(expression, now or SystemClock().now_ms)


@singledispatch
def _compile(node: Expression, now: Now) -> Compiled:
    raise TypeError(f"not a resolved expression: {node!r}")


@_compile.register
def _literal(node: Literal, now: Now) -> Compiled:
    value = node.value
    return lambda row: value


@_compile.register
def _column(node: ColumnRef, now: Now) -> Compiled:
    return operator.itemgetter(node.name)


@_compile.register
def _arithmetic(node: Arithmetic, now: Now) -> Compiled:
    assert node.type is not None
    left, right, compute = _compile(node.left, now), _compile(node.right, now), arithmetic(node.operator, node.type)

    def evaluate(row: Row) -> Any:
        a, b = left(row), right(row)
        if a is None or b is None:
            return _no_value(row)
        try:
            found = compute(a, b)
        except ArithmeticError:
            return _no_value(row)
        return _no_value(row) if found is None else found

    return evaluate


class NoValue(Exception):
    """Arithmetic in a lambda has none: then the call that the lambda is given to has none."""


def _no_value(row: Row) -> None:
    if _in_lambda(row):
        raise NoValue


class _Scope(dict[str, Any]):
    """A row as a lambda's body sees it: with its parameters."""


def _in_lambda(row: Row) -> bool:
    return isinstance(row, _Scope)


@_compile.register
def _negate(node: Negate, now: Now) -> Compiled:
    assert node.type is not None
    operand, compute = _compile(node.operand, now), arithmetic("*", node.type)

    def evaluate(row: Row) -> Any:
        value = operand(row)
        # Minus the smallest integer is itself: it wraps.
        if value is None:
            return _no_value(row)
        return -value if isinstance(value, float) else compute(value, -1)

    return evaluate


@_compile.register
def _comparison(node: Comparison, now: Now) -> Compiled:
    left, right = _compile(node.left, now), _compile(node.right, now)
    if node.operator == "IS DISTINCT FROM":
        return lambda row: left(row) != right(row)
    if node.operator == "IS NOT DISTINCT FROM":
        return lambda row: left(row) == right(row)
    compare = _COMPARE[node.operator]

    def evaluate(row: Row) -> bool | None:
        a, b = left(row), right(row)
        return None if a is None or b is None else compare(a, b)

    return evaluate


@_compile.register
def _logical(node: Logical, now: Now) -> Compiled:
    left, right = _compile(node.left, now), _compile(node.right, now)
    # FALSE decides an AND, TRUE an OR, whatever the other side is.
    deciding = node.operator == "OR"

    def evaluate(row: Row) -> bool | None:
        a: bool | None = left(row)
        if a is deciding:
            return deciding
        b: bool | None = right(row)
        if b is deciding:
            return deciding
        return None if a is None or b is None else not deciding

    return evaluate


@_compile.register
def _not(node: Not, now: Now) -> Compiled:
    return _negated(_compile(node.operand, now), True)


def _negated(compiled: Compiled, negated: bool) -> Compiled:
    """NOT of it, if asked; NOT null is null."""
    if not negated:
        return compiled

    def evaluate(row: Row) -> bool | None:
        value = compiled(row)
        return None if value is None else not value

    return evaluate


@_compile.register
def _is_null(node: IsNull, now: Now) -> Compiled:
    operand = _compile(node.operand, now)
    if node.negated:
        return lambda row: operand(row) is not None
    return lambda row: operand(row) is None


@_compile.register
def _between(node: Between, now: Now) -> Compiled:
    above = Comparison(">=", node.operand, node.low)
    below = Comparison("<=", node.operand, node.high)
    return _negated(_compile(Logical("AND", above, below), now), node.negated)


@_compile.register
def _in(node: In, now: Now) -> Compiled:
    operand, options = _compile(node.operand, now), [_compile(option, now) for option in node.options]

    def evaluate(row: Row) -> bool | None:
        value = operand(row)
        if value is None:
            return None
        unknown = False
        for option in options:
            candidate = option(row)
            if candidate is None:
                unknown = True
            elif candidate == value:
                return True
        return None if unknown else False

    return _negated(evaluate, node.negated)


@_compile.register
def _like(node: Like, now: Now) -> Compiled:
    operand, pattern, escape = _compile(node.operand, now), _compile(node.pattern, now), node.escape

    def evaluate(row: Row) -> bool | None:
        text, wanted = operand(row), pattern(row)
        return None if text is None or wanted is None else like_matcher(wanted, escape)(text)

    return _negated(evaluate, node.negated)


@_compile.register
def _case(node: Case, now: Now) -> Compiled:
    branches = [(_compile(condition, now), _compile(result, now)) for condition, result in node.branches]
    otherwise = _compile(node.otherwise, now) if node.otherwise is not None else lambda row: None

    def evaluate(row: Row) -> Any:
        for condition, result in branches:
            if condition(row) is True:
                return result(row)
        return otherwise(row)

    return evaluate


@_compile.register
def _cast(node: Cast, now: Now) -> Compiled:
    assert node.operand.type is not None
    operand, convert = _compile(node.operand, now), caster(node.operand.type, node.target)

    def evaluate(row: Row) -> Any:
        value = operand(row)
        if value is None:
            return None
        try:
            return convert(value)
        except (ValueError, ArithmeticError):
            return None

    return evaluate


@_compile.register
def _subscript(node: Subscript, now: Now) -> Compiled:
    base, index = _compile(node.base, now), _compile(node.index, now)
    of_array = isinstance(node.base.type, Array)

    def evaluate(row: Row) -> Any:
        container, at = base(row), index(row)
        if container is None or at is None:
            return None
        if not of_array:
            return container.get(at)
        position = at if at < 0 else at - 1
        return container[position] if at != 0 and -len(container) <= position < len(container) else None

    return evaluate


@_compile.register
def _dereference(node: Dereference, now: Now) -> Compiled:
    base, field = _compile(node.base, now), node.field

    def evaluate(row: Row) -> Any:
        struct = base(row)
        return None if struct is None else struct.get(field)

    return evaluate


@_compile.register
def _array_literal(node: ArrayLiteral, now: Now) -> Compiled:
    elements = [_compile(element, now) for element in node.elements]
    return lambda row: [element(row) for element in elements]


@_compile.register
def _map_literal(node: MapLiteral, now: Now) -> Compiled:
    entries = [(_compile(key, now), _compile(value, now)) for key, value in node.entries]
    # No map of the log has a null key; KSQL's JSON calls it so.
    unnamed = "null" if isinstance(node.type, Map) and isinstance(node.type.key, Varchar) else None

    def name(key: Any) -> Any:
        return unnamed if key is None else key

    return lambda row: {name(key(row)): value(row) for key, value in entries}


@_compile.register
def _struct_literal(node: StructLiteral, now: Now) -> Compiled:
    fields = [(name, _compile(value, now)) for name, value in node.fields]
    return lambda row: {name: value(row) for name, value in fields}


@_compile.register
def _lambda(node: Lambda, now: Now) -> Compiled:
    """Its value is a function; the body sees the row it stands in and its parameters."""
    body, names = _compile(node.body, now), [_variable(name) for name in node.parameters]
    return lambda row: lambda *values: body(_Scope({**row, **dict(zip(names, values, strict=True))}))


@_compile.register
def _lambda_variable(node: LambdaVariable, now: Now) -> Compiled:
    return operator.itemgetter(_variable(node.name))


def _variable(name: str) -> str:
    """The parameter's key in the row, which no column can have."""
    return _PARAMETER + name


@_compile.register
def _call(node: Call, now: Now) -> Compiled:
    function = function_of(node)
    assert function is not None
    assert node.type is not None
    arguments, apply, nulls = (
        [_compile(argument, now) for argument in node.arguments],
        function.evaluate,
        function.nulls,
    )
    clock, types = function.clock, tuple(argument.type for argument in node.arguments)
    if function.typed:
        apply = partial(apply, types)
    if function.prepare is not None:
        apply = function.prepare(argument_types(node), node.type)

    def evaluate(row: Row) -> Any:
        values = [argument(row) for argument in arguments]
        if not nulls and None in values:
            return None
        try:
            return apply(now(), *values) if clock else apply(*values)
        except DeadlineExceeded:
            raise
        except NoValue:
            if _in_lambda(row):
                raise
            return None
        except Exception:
            # Whatever a function raises over a value it was not made for, the rule is the same: null.
            return None

    return evaluate
