"""Calls: which signature of the function fits, and the arguments converted to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headrace.errors import SqlError, UsageError
from headrace.patterns import compile_pattern
from headrace.sql.coerce import common_type, is_nested, is_number, widens
from headrace.sql.expressions import Call, Expression, Lambda, Literal, Name
from headrace.sql.functions import FUNCTIONS, function_of
from headrace.sql.functions.elsewhere import function_hint
from headrace.sql.functions.function import Function
from headrace.sql.functions.patterns import PATTERN_ARGUMENT
from headrace.sql.functions.signatures import (
    ArrayOf,
    Exact,
    LambdaOf,
    MapOf,
    Pattern,
    Signature,
    Unit,
    Variable,
)
from headrace.sql.functions.times import UNITS_MS
from headrace.sql.implicit import convert
from headrace.sql.scope import Scope
from headrace.types import DATE, DOUBLE, INTEGER, TIME, TIMESTAMP, VARCHAR, Array, DataType, Map
from headrace.types import Decimal as DecimalType

_UNITS = {unit.removesuffix("S"): unit for unit in UNITS_MS} | {unit: unit for unit in UNITS_MS}

# Letters that do not stand for any type.
_ALLOWED: dict[str, Callable[[DataType], bool]] = {
    "N": is_number,
    "C": lambda type_: not is_nested(type_),
    "DECIMAL": lambda type_: isinstance(type_, DecimalType),
}


# From which argument on aggregates want constants.
_CONSTANT = {
    "TOPK": -1,
    "TOPKDISTINCT": -1,
    "LATEST_BY_OFFSET": 1,
    "EARLIEST_BY_OFFSET": 1,
    "APPROX_QUANTILE": 1,
    "APPROX_TOP_K": 1,
}


class Resolver(Protocol):
    """What a call needs of the walk it is part of."""

    scope: Scope
    aggregates: str | None

    def resolve(self, node: Expression) -> Expression: ...

    def constant(self, node: Expression, target: DataType) -> Expression | None: ...

    def error(self, message: str, node: Expression, hint: str | None = None) -> SqlError: ...

    def inside(self, scope: Scope, aggregates: str | None) -> Resolver:
        """A walk with other names, or where no aggregate may stand."""


@dataclass(slots=True)
class _Match:
    """A signature that fits: the arguments converted, what its letters stand for, how far types were stretched."""

    arguments: list[Expression]
    variables: dict[str, DataType]
    cost: int = 0


class _Mismatch(Exception):
    """This signature does not fit; another one may."""


def resolve_call(call: Call, resolver: Resolver) -> Call:
    function = function_of(call)
    if function is None:
        raise _unknown(call, resolver)
    if function.kind == "aggregate":
        if resolver.aggregates is not None:
            hint = "filter groups with HAVING" if resolver.aggregates == "WHERE" else None
            raise resolver.error(f"the aggregate {call.name} cannot stand in {resolver.aggregates}", call, hint)
        resolver = resolver.inside(resolver.scope, "another aggregate")
        if not call.arguments and not any(not signature.parameters for signature in function.signatures):
            # As in KSQL: of no column, or of `*`, an aggregate is that of the rows' times.
            call = replace(call, arguments=(Name("ROWTIME", span=call.span),))
    if function.kind == "table" and resolver.aggregates is not None:
        place = "an aggregate" if resolver.aggregates == "another aggregate" else resolver.aggregates
        hint = "first CREATE STREAM … AS SELECT the rows it gives"
        raise resolver.error(f"the table function {call.name} cannot stand in {place}", call, hint)
    # Lambdas wait until their parameters' types are known, units of time are not columns.
    arguments = [
        argument if isinstance(argument, Lambda) or _is_unit(argument, index, function) else resolver.resolve(argument)
        for index, argument in enumerate(call.arguments)
    ]
    for index, argument in enumerate(arguments):
        if isinstance(argument, Name) and _is_unit(argument, index, function) and argument.name not in _UNITS:
            units = ", ".join(UNITS_MS)
            raise resolver.error(f"`{argument.name}` is not a unit of time here", argument, f"units are {units}")
    fitting = [found for found in (_fit(sig, arguments, resolver) for sig in function.signatures) if found]
    if not fitting:
        raise _no_signature(call, function, arguments, resolver)
    match, signature = min(fitting, key=lambda found: found[0].cost)
    result = _substitute(signature.result, match.variables)
    if function.type_rule is not None:
        result = function.type_rule(tuple(argument.type for argument in match.arguments if argument.type))
    _check_constants(call, match.arguments, resolver)
    _check_pattern(call, match.arguments, resolver)
    return replace(call, arguments=tuple(match.arguments), type=result)


def _check_constants(call: Call, arguments: Sequence[Expression], resolver: Resolver) -> None:
    """What says how many, or which part, is the same for all rows: an aggregate is kept by it."""
    for argument in arguments[_CONSTANT.get(call.name, len(arguments)) :]:
        if not isinstance(argument, Literal) or argument.value is None:
            raise resolver.error(f"{call.name} needs a constant here", argument)
        if argument.type == INTEGER and argument.value < 1:
            raise resolver.error(f"{call.name} needs a number of at least 1, got `{argument.value}`", argument)
        if argument.type == DOUBLE and not 0 <= argument.value <= 1:
            raise resolver.error(f"{call.name} needs a number from 0 to 1, got `{argument.value:g}`", argument)


def _check_pattern(call: Call, arguments: Sequence[Expression], resolver: Resolver) -> None:
    """Refuse a constant regular expression that would be null for every row."""
    at = PATTERN_ARGUMENT.get(call.name) if call.function is None else None
    pattern = None if at is None else arguments[at]
    if isinstance(pattern, Literal) and isinstance(pattern.value, str):
        try:
            compile_pattern(pattern.value)
        except UsageError as error:
            raise resolver.error(error.message, pattern, error.hint) from None


def _is_unit(argument: Expression, index: int, function: Function) -> bool:
    takes = any(index < len(sig.parameters) and isinstance(sig.parameters[index], Unit) for sig in function.signatures)
    return takes and isinstance(argument, Name)


def _fit(signature: Signature, arguments: list[Expression], resolver: Resolver) -> tuple[_Match, Signature] | None:
    parameters = signature.expand(len(arguments))
    if parameters is None:
        return None
    try:
        match = _bind(parameters, arguments, resolver)
        return match, signature
    except _Mismatch:
        return None


def _bind(parameters: tuple[Pattern, ...], arguments: list[Expression], resolver: Resolver) -> _Match:
    match = _Match(list(arguments), {})
    for parameter, argument in zip(parameters, arguments, strict=True):
        if argument.type is not None and not isinstance(argument, Lambda):
            _gather(parameter, argument, match)
    for index, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True)):
        if isinstance(parameter, Unit):
            match.arguments[index] = _unit(argument)
        elif isinstance(parameter, LambdaOf):
            match.arguments[index] = _resolve_lambda(parameter, argument, match, resolver)
        elif isinstance(argument, Lambda):
            raise _Mismatch
        else:
            target = _substitute(parameter, match.variables)
            if argument.type is not None and argument.type != target:
                match.cost += 1 + 4 * (target == VARCHAR)
                argument = _text_constant(argument, target, resolver) or argument
                if argument.type != target and not widens(argument.type, target):  # type: ignore[arg-type]
                    raise _Mismatch
            match.arguments[index] = convert(argument, target)
    return match


def _text_constant(argument: Expression, target: DataType, resolver: Resolver) -> Expression | None:
    """Text constants are taken for dates and times."""
    return resolver.constant(argument, target) if target in (DATE, TIME, TIMESTAMP) else None


def _gather(parameter: Pattern, argument: Expression, match: _Match) -> None:
    """What the argument's type says about the parameter's letters."""
    assert argument.type is not None
    text = isinstance(argument, Literal) and argument.type == VARCHAR
    _gather_type(parameter, argument.type, match, text)


def _gather_type(parameter: Pattern, type_: DataType, match: _Match, text: bool = False) -> None:
    match parameter, type_:
        case Variable(name), _:
            _bind_variable(name, type_, match, text)
        case ArrayOf(element), Array(inner):
            _gather_type(element, inner, match)
        case MapOf(key, value), Map(inner_key, inner_value):
            _gather_type(key, inner_key, match)
            _gather_type(value, inner_value, match)
        case (ArrayOf() | MapOf() | LambdaOf(), _):
            raise _Mismatch
        case _:
            return


def _bind_variable(name: str, type_: DataType, match: _Match, text: bool) -> None:
    if name in _ALLOWED and not _ALLOWED[name](type_):
        raise _Mismatch
    known = match.variables.get(name)
    shared = type_ if known is None else common_type(known, type_)
    if shared is None and text and known in (DATE, TIME, TIMESTAMP):
        shared = known
    if shared is None:
        raise _Mismatch
    match.variables[name] = shared


def _resolve_lambda(pattern: LambdaOf, argument: Expression, match: _Match, resolver: Resolver) -> Expression:
    if not isinstance(argument, Lambda) or len(argument.parameters) != len(pattern.parameters):
        raise _Mismatch
    types = [_substitute(parameter, match.variables) for parameter in pattern.parameters]
    variables = dict(resolver.scope.variables) | dict(zip(argument.parameters, types, strict=True))
    inner = resolver.inside(replace(resolver.scope, variables=variables), resolver.aggregates or "a lambda")
    body = inner.resolve(argument.body)
    if body.type is None:
        raise resolver.error("the type of NULL is not known here", argument, "write CAST(NULL AS VARCHAR)")
    if isinstance(pattern.result, Variable) and pattern.result.name not in match.variables:
        match.variables[pattern.result.name] = body.type
    result = _substitute(pattern.result, match.variables)
    if body.type != result and not widens(body.type, result):
        raise resolver.error(f"the lambda should give {result}, not {body.type}", argument)
    return replace(argument, body=convert(body, result), type=result)


def _substitute(pattern: Pattern, variables: Mapping[str, DataType]) -> DataType:
    match pattern:
        case Exact(type_):
            return type_
        case Variable(name):
            if name not in variables:
                raise _Mismatch
            return variables[name]
        case ArrayOf(element):
            return Array(_substitute(element, variables))
        case MapOf(key, value):
            return Map(_substitute(key, variables), _substitute(value, variables))
        case _:
            raise _Mismatch


def _unit(argument: Expression) -> Expression:
    if not isinstance(argument, Name) or argument.name not in _UNITS:
        raise _Mismatch
    return Literal(_UNITS[argument.name], type=VARCHAR, span=argument.span)


def _unknown(call: Call, resolver: Resolver) -> SqlError:
    hint = function_hint(call.name, FUNCTIONS)
    return resolver.error(f"function `{call.name}` does not exist", call, hint)


def _no_signature(call: Call, function: Function, arguments: list[Expression], resolver: Resolver) -> SqlError:
    given = ", ".join(_shown(argument) for argument in arguments)
    takes = " or ".join(f"{call.name}{signature.shown_parameters}" for signature in function.signatures)
    return resolver.error(f"{call.name} does not take ({given})", call, f"it takes {takes}")


def _shown(argument: Expression) -> str:
    if isinstance(argument, Lambda):
        return "a lambda"
    return "NULL" if argument.type is None else str(argument.type)
