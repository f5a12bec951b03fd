"""Which part of a predicate a store can check itself, in a form that names no store.

A predicate is split at its ANDs. What can be pushed becomes a `Condition`, with its constants taken out as
parameters, so that queries which differ only in constants are the same statement. The rest is the residual. Pushed
conditions mean exactly what the evaluator means, nulls included: whatever could differ is left to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import (
    Arithmetic,
    Between,
    Call,
    Cast,
    ColumnRef,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Logical,
    Negate,
    Not,
)
from headrace.sql.walk import conjunction, conjuncts, walk
from headrace.types import BIGINT, BOOLEAN, DOUBLE, Array, BigInt, DataType, Double, Integer, Map, Struct, Varchar


class Field(NamedTuple):
    """A column; `real`: converted to DOUBLE."""

    column: str
    real: bool = False


class Parameter(NamedTuple):
    """The n-th constant."""

    number: int


class Operation(NamedTuple):
    """`operator` is `= <> < <= > >= IS, IS NOT, AND OR NOT, IN, BETWEEN, IS NULL, LIKE` or `PREFIX` (between two
    bounds, the upper one excluded)."""

    operator: str
    operands: tuple[Condition, ...]


Condition: TypeAlias = Field | Parameter | Operation
Encode: TypeAlias = Callable[[Any, DataType], Any]
"""A constant in the form in which the store keeps a column of this type. `ValueError` if there is none."""


class NotPushable(Exception):
    """This part is for the evaluator."""


@dataclass(frozen=True, slots=True)
class Pushed:
    condition: Condition | None
    parameters: tuple[Any, ...]
    residual: Expression | None


@dataclass(slots=True)
class Pusher:
    """Translates expressions, collecting their constants. `columns`: the types of the store's columns."""

    columns: Mapping[str, DataType]
    encode: Encode
    parameters: list[Any] = field(default_factory=list)

    def condition(self, expression: Expression) -> Condition:
        """An expression that is true, false or null."""
        match expression:
            case Logical(operator, left, right):
                return Operation(operator, (self.condition(left), self.condition(right)))
            case Not(operand):
                return Operation("NOT", (self.condition(operand),))
            case Comparison(operator, left, right):
                terms = self._terms(left, right)
                compared = Operation(_COMPARISONS.get(operator, operator), terms)
                return self._without_nan(compared) if isinstance(self._type_of(terms), Double) else compared
            case Between(operand, low, high, negated):
                return _negated(Operation("BETWEEN", self._terms(operand, low, high)), negated)
            case In(operand, options, negated):
                return _negated(Operation("IN", self._terms(operand, *options)), negated)
            case IsNull(operand, negated):
                return _negated(Operation("IS NULL", (self._column(operand),)), negated)
            case Like():
                return _negated(self._like(expression), expression.negated)
            case ColumnRef(name) if self.columns.get(name) == BOOLEAN:
                return Field(name)
            case _ if is_constant(expression) and expression.type == BOOLEAN:
                return self._parameter(constant_value(expression), BOOLEAN)
            case _:
                raise NotPushable

    def _terms(self, *expressions: Expression) -> tuple[Condition, ...]:
        """Values that are compared with each other: columns of one type, and constants in that type's form."""
        fields = {place: self._field(part) for place, part in enumerate(expressions) if not is_constant(part)}
        types = {_compared_as(type_) for _, type_ in fields.values()}
        if len(types) != 1:
            raise NotPushable  # no column at all, or columns of several types
        [type_] = types
        if isinstance(type_, Double) and (len(fields) > 1 or any(map(_is_nan, expressions))):
            raise NotPushable  # what is not a number equals nothing, itself included; a store's sorts somewhere
        return tuple(
            fields[place][0] if place in fields else self._parameter(constant_value(part), type_)
            for place, part in enumerate(expressions)
        )

    def _field(self, expression: Expression) -> tuple[Field, DataType]:
        match expression:
            case ColumnRef(name) if name in self.columns and not isinstance(self.columns[name], Array | Map | Struct):
                return Field(name), self.columns[name]
            case Cast(ColumnRef(name), target) if isinstance(self.columns.get(name), Integer | BigInt):
                if isinstance(target, Double):
                    return Field(name, real=True), DOUBLE
                if isinstance(target, BigInt):
                    return Field(name), BIGINT
        raise NotPushable

    def _type_of(self, terms: tuple[Condition, ...]) -> DataType:
        """All have one type: any of the columns tells."""
        compared = next(term for term in terms if isinstance(term, Field))
        return DOUBLE if compared.real else self.columns[compared.column]

    def _without_nan(self, compared: Operation) -> Condition:
        """What is not a number is above nothing, but stores sort it above all numbers."""
        greater = compared.operands[1 if compared.operator in ("<", "<=") else 0]
        if compared.operator not in _ORDERS or not isinstance(greater, Field):
            return compared
        return Operation("AND", (compared, Operation("<=", (greater, self._parameter(math.inf, DOUBLE)))))

    def _column(self, expression: Expression) -> Field:
        if isinstance(expression, ColumnRef) and expression.name in self.columns:
            return Field(expression.name)
        raise NotPushable

    def _parameter(self, value: Any, type_: DataType) -> Parameter:
        if len(self.parameters) >= MAX_PARAMETERS:
            raise NotPushable
        try:
            self.parameters.append(self.encode(value, type_))
        except ValueError:
            raise NotPushable from None
        return Parameter(len(self.parameters) - 1)

    def _like(self, like: Like) -> Condition:
        column, type_ = self._field(like.operand)
        if not isinstance(type_, Varchar) or not is_constant(like.pattern):
            raise NotPushable
        pattern = constant_value(like.pattern)
        matches = Operation("LIKE", (column, self._parameter(pattern, type_), self._parameter(like.escape, type_)))
        prefix = like_prefix(pattern, like.escape) if isinstance(pattern, str) else ""
        after = text_after(prefix)
        if not after:
            return matches
        bounds = (column, self._parameter(prefix, type_), self._parameter(after, type_))
        # Says nothing the pattern does not say, nulls included, but lets an index find where to look.
        return Operation("AND", (Operation("PREFIX", bounds), matches))


MAX_PARAMETERS = 1_000
"""Stores have limits: a condition with more constants is for the evaluator."""
DIFFERENT_EACH_TIME = {"RANDOM", "UUID"}
_ORDERS = {"<", "<=", ">", ">="}
_COMPARISONS = {"IS DISTINCT FROM": "IS NOT", "IS NOT DISTINCT FROM": "IS"}


def push(predicate: Expression | None, columns: Mapping[str, DataType], encode: Encode) -> Pushed:
    pusher = Pusher(columns, encode)
    pushed: list[Condition] = []
    left: list[Expression] = []
    for part in conjuncts(predicate):
        constants = len(pusher.parameters)
        try:
            pushed.append(pusher.condition(part))
        except NotPushable:
            del pusher.parameters[constants:]
            left.append(part)
    condition = None if not pushed else pushed[0] if len(pushed) == 1 else Operation("AND", tuple(pushed))
    return Pushed(condition, tuple(pusher.parameters), conjunction(left))


def is_constant(expression: Expression) -> bool:
    """Has it the same value for every row? The time now counts as constant: it is the time the query is run."""
    return all(
        isinstance(part, Literal | Cast | Negate | Arithmetic)
        or (isinstance(part, Call) and part.name not in DIFFERENT_EACH_TIME)
        for part in walk(expression)
    )


def constant_value(expression: Expression) -> Any:
    if isinstance(expression, Literal):
        return expression.value
    return compile_expression(expression)({})


def _is_nan(expression: Expression) -> bool:
    value = constant_value(expression) if is_constant(expression) else None
    return isinstance(value, float) and math.isnan(value)


def _compared_as(type_: DataType) -> DataType:
    return BIGINT if isinstance(type_, Integer) else type_


def _negated(condition: Condition, negated: bool) -> Condition:
    return Operation("NOT", (condition,)) if negated else condition


def like_prefix(pattern: str, escape: str | None) -> str:
    """What every match begins with.

    >>> like_prefix("ab%c", None), like_prefix("a!%b_", "!")
    ('ab', 'a%b')
    """
    prefix = ""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, character)
        elif character in "%_":
            break
        prefix += character
    return prefix


def text_after(prefix: str) -> str:
    """The least text above everything that begins with `prefix`; empty if there is none.

    >>> text_after("ab"), text_after("")
    ('ac', '')
    """
    last = prefix[-1:]
    if not last or ord(last) in (0x10FFFF, 0xD7FF):
        return ""  # what follows is no character of its own
    return prefix[:-1] + chr(ord(last) + 1)
