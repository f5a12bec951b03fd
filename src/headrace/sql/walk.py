"""Walking over expressions: their parts, and the same with other parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from headrace.sql.expressions import (
    Arithmetic,
    ArrayLiteral,
    Between,
    Call,
    Case,
    Cast,
    Comparison,
    Dereference,
    Expression,
    In,
    IsNull,
    Lambda,
    Like,
    Logical,
    MapLiteral,
    Negate,
    Not,
    Over,
    StructLiteral,
    Subscript,
)

Transform = Callable[[Expression], Expression]


def children(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside, in the order they are written."""
    match expression:
        case Arithmetic() | Comparison() | Logical():
            return (expression.left, expression.right)
        case Negate() | Not() | IsNull() | Cast():
            return (expression.operand,)
        case Between():
            return (expression.operand, expression.low, expression.high)
        case In():
            return (expression.operand, *expression.options)
        case Like():
            return (expression.operand, expression.pattern)
        case Case():
            operand = (expression.operand,) if expression.operand else ()
            otherwise = (expression.otherwise,) if expression.otherwise else ()
            return (*operand, *(part for branch in expression.branches for part in branch), *otherwise)
        case Call():
            return expression.arguments
        case Over():
            ordered = (one.expression for one in expression.order_by)
            return (*expression.arguments, *expression.partition_by, *ordered)
        case Subscript():
            return (expression.base, expression.index)
        case Dereference():
            return (expression.base,)
        case ArrayLiteral():
            return expression.elements
        case MapLiteral():
            return tuple(part for entry in expression.entries for part in entry)
        case StructLiteral():
            return tuple(value for _, value in expression.fields)
        case Lambda():
            return (expression.body,)
        case _:
            return ()


def rebuild(expression: Expression, change: Transform) -> Expression:
    """The same expression with every part directly inside changed; itself if no part changed."""
    old = children(expression)
    new = tuple(change(part) for part in old)
    if all(before is after for before, after in zip(old, new, strict=True)):
        return expression
    return with_children(expression, new)


def with_children(expression: Expression, parts: tuple[Expression, ...]) -> Expression:
    """The same expression with other parts, given in the order of `children`."""
    match expression:
        case Arithmetic() | Comparison() | Logical():
            return replace(expression, left=parts[0], right=parts[1])
        case Negate() | Not() | IsNull() | Cast():
            return replace(expression, operand=parts[0])
        case Between():
            return replace(expression, operand=parts[0], low=parts[1], high=parts[2])
        case In():
            return replace(expression, operand=parts[0], options=parts[1:])
        case Like():
            return replace(expression, operand=parts[0], pattern=parts[1])
        case Case():
            return _case_with(expression, list(parts))
        case Call():
            return replace(expression, arguments=parts)
        case Over():
            return _over_with(expression, list(parts))
        case Subscript():
            return replace(expression, base=parts[0], index=parts[1])
        case Dereference():
            return replace(expression, base=parts[0])
        case ArrayLiteral():
            return replace(expression, elements=parts)
        case MapLiteral():
            return replace(expression, entries=_pairs(parts))
        case StructLiteral():
            names = (name for name, _ in expression.fields)
            return replace(expression, fields=tuple(zip(names, parts, strict=True)))
        case Lambda():
            return replace(expression, body=parts[0])
        case _:
            return expression


def _case_with(case: Case, parts: list[Expression]) -> Case:
    operand = parts.pop(0) if case.operand else None
    otherwise = parts.pop() if case.otherwise else None
    return replace(case, operand=operand, branches=_pairs(tuple(parts)), otherwise=otherwise)


def _over_with(over: Over, parts: list[Expression]) -> Over:
    arguments, rest = parts[: len(over.arguments)], parts[len(over.arguments) :]
    partition, ordered = rest[: len(over.partition_by)], rest[len(over.partition_by) :]
    order = tuple(replace(one, expression=part) for one, part in zip(over.order_by, ordered, strict=True))
    return replace(over, arguments=tuple(arguments), partition_by=tuple(partition), order_by=order)


def _pairs(parts: tuple[Expression, ...]) -> tuple[tuple[Expression, Expression], ...]:
    return tuple(zip(parts[::2], parts[1::2], strict=True))


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything inside it, outer first. Without recursion."""
    pending = [expression]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(children(current)))


def depth(expression: Expression) -> int:
    """Levels of the tree. Without recursion: it is what keeps others from recursing too deeply."""
    deepest, level = 0, [expression]
    while level:
        deepest += 1
        level = [part for current in level for part in children(current)]
    return deepest


def conjuncts(predicate: Expression | None) -> list[Expression]:
    """What AND joins, left to right."""
    if predicate is None:
        return []
    found: list[Expression] = []
    pending = [predicate]
    while pending:
        current = pending.pop()
        if isinstance(current, Logical) and current.operator == "AND":
            pending += [current.right, current.left]
        else:
            found.append(current)
    return found


def conjunction(predicates: list[Expression]) -> Expression | None:
    """The predicates joined with AND, typed as they are; None for none."""
    joined: Expression | None = None
    for predicate in predicates:
        joined = predicate if joined is None else Logical("AND", joined, predicate, type=predicate.type)
    return joined
