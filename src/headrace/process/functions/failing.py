"""Whether a lambda fails: arithmetic in it that has no value, as with a null or by zero, makes the call that the lambda
is given to null as a whole, as in KSQL. What need not be computed does not fail."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.process.functions.arguments import Lower, Scope
from headrace.sql.expressions import Arithmetic, Call, Case, Expression, Lambda, Logical, Negate
from headrace.sql.walk import children, walk
from headrace.types import Map


def may_fail(function: Lambda) -> bool:
    return any(isinstance(part, Arithmetic | Negate) for part in walk(function.body))


def elements_fail(call: Call, scope: Scope, lower: Lower) -> Column | None:
    """Where one of the call's lambdas fails for an element, or entry, of its first argument; None if they never do."""
    functions = [part for part in call.arguments if isinstance(part, Lambda) and may_fail(part)]
    values = lower(call.arguments[0], scope)
    found = [_element_fails(one, values, isinstance(call.arguments[0].type, Map), scope, lower) for one in functions]
    return _any([F.coalesce(one, F.lit(False)) for one in found])


def _element_fails(function: Lambda, values: Column, of_map: bool, scope: Scope, lower: Lower) -> Column:
    def fails(*given: Column) -> Column:
        return fails_with(function, given, scope, lower)

    if of_map:
        return F.exists(F.map_entries(values), lambda entry: fails(entry.getField("key"), entry.getField("value")))
    return F.exists(values, lambda element: fails(element))


def fails_with(function: Lambda, given: tuple[Column, ...], scope: Scope, lower: Lower) -> Column:
    inner = {**scope, **dict(zip(function.parameters, given, strict=True))}
    found = _fails(function.body, inner, lower)
    return F.lit(False) if found is None else found


def _fails(expression: Expression, scope: Scope, lower: Lower) -> Column | None:
    match expression:
        case Arithmetic() | Negate():
            return _any([lower(expression, scope).isNull(), *_parts_fail(expression, scope, lower)])
        case Logical():
            left = F.coalesce(lower(expression.left, scope), F.lit(False))
            goes_on = left if expression.operator == "AND" else ~left
            right = _fails(expression.right, scope, lower)
            return _any([_fails(expression.left, scope, lower), _where(goes_on, right)])
        case Case():
            return _case_fails(expression, scope, lower)
        case Call() if expression.name == "REDUCE":
            # Where it fails it is null, and then hardly else.
            given = [lower(part, scope).isNotNull() for part in expression.arguments[:2]]
            failed = given[0] & given[1] & lower(expression, scope).isNull()
            return _any([failed, *_parts_fail(expression, scope, lower)])
        case Call() if any(isinstance(part, Lambda) for part in expression.arguments):
            return _any([elements_fail(expression, scope, lower), *_parts_fail(expression, scope, lower)])
        case _:
            return _any(_parts_fail(expression, scope, lower))


def _parts_fail(expression: Expression, scope: Scope, lower: Lower) -> list[Column | None]:
    return [_fails(part, scope, lower) for part in children(expression) if not isinstance(part, Lambda)]


def _case_fails(case: Case, scope: Scope, lower: Lower) -> Column | None:
    found: list[Column | None] = []
    reached = F.lit(True)
    for condition, result in case.branches:
        holds = F.coalesce(lower(condition, scope), F.lit(False))
        found += [_where(reached, _fails(condition, scope, lower))]
        found += [_where(reached & holds, _fails(result, scope, lower))]
        reached = reached & ~holds
    if case.otherwise is not None:
        found.append(_where(reached, _fails(case.otherwise, scope, lower)))
    return _any(found)


def _any(found: list[Column | None]) -> Column | None:
    there = [one for one in found if one is not None]
    return reduce(Column.__or__, there) if there else None


def _where(condition: Column, found: Column | None) -> Column | None:
    return None if found is None else condition & found
