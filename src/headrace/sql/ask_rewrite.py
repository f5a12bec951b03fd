"""Makes a question read less: predicates go down to what they are about, columns nobody uses are not read."""

from __future__ import annotations

from dataclasses import replace

from headrace.sql.ask_plan import (
    Around,
    AskNode,
    Cut,
    Expand,
    Group,
    Pair,
    Read,
    Select,
    Sort,
    Unique,
    Where,
    node_expressions,
)
from headrace.sql.expressions import ColumnRef, Expression, Literal
from headrace.sql.walk import conjunction, conjuncts, rebuild, walk
from headrace.types import BOOLEAN, Column

TRUE = Literal(True, type=BOOLEAN)


def narrow(node: AskNode) -> AskNode:
    return _prune(_sink(node, []), {column.name for column in node.columns})


def _sink(node: AskNode, predicates: list[Expression]) -> AskNode:
    """The node with those predicates on its rows, each as far down as it means the same."""
    match node:
        case Read():
            own = [_source_names(predicate, node) for predicate in predicates]
            return replace(node, predicate=conjunction([*conjuncts(node.predicate), *own])) if own else node
        case Where():
            return _sink(node.input, [*predicates, *conjuncts(node.predicate)])
        case Pair():
            return _sink_pair(node, predicates)
        case Sort() | Unique():
            return replace(node, input=_sink(node.input, predicates))
        case Select():
            passing, staying = _split(predicates, _plain_items(node))
            return _above(replace(node, input=_sink(node.input, passing)), staying)
        case Cut() | Group() | Around() | Expand():
            return _above(replace(node, input=_sink(node.input, [])), predicates)


def _above(node: AskNode, predicates: list[Expression]) -> AskNode:
    predicate = conjunction(predicates)
    return node if predicate is None else Where(node, predicate)


def _source_names(predicate: Expression, read: Read) -> Expression:
    own = {name: column.name for name, column in zip(read.names, read.wanted, strict=True)}
    return _renamed(predicate, {name: ColumnRef(column) for name, column in own.items()})


def _renamed(expression: Expression, by: dict[str, ColumnRef]) -> Expression:
    if isinstance(expression, ColumnRef):
        return replace(expression, name=by[expression.name].name)
    return rebuild(expression, lambda part: _renamed(part, by))


def _plain_items(node: Select) -> dict[str, ColumnRef]:
    return {item.name: item.expression for item in node.items if isinstance(item.expression, ColumnRef)}


def _split(predicates: list[Expression], by: dict[str, ColumnRef]) -> tuple[list[Expression], list[Expression]]:
    """Those that are about plain columns of what is below, in its names, and the others."""
    passing = [predicate for predicate in predicates if _names(predicate) <= set(by)]
    staying = [predicate for predicate in predicates if not _names(predicate) <= set(by)]
    return [_renamed(predicate, by) for predicate in passing], staying


def _sink_pair(node: Pair, predicates: list[Expression]) -> AskNode:
    """A predicate above must not be checked on a side that may be null instead: it decides over pairs. One of ON must
    not take away rows of a side that keeps those without a partner."""
    left, right = ({column.name for column in side.columns} for side in (node.left, node.right))
    keeps_left, keeps_right = node.kind in ("left", "full"), node.kind in ("right", "full")
    to_left, to_right, staying = _sides(predicates, left, right, not keeps_right, not keeps_left)
    on_left, on_right, on_both = _sides(conjuncts(node.condition), left, right, not keeps_left, not keeps_right)
    if node.kind == "inner":
        about_both = [predicate for predicate in staying if _names(predicate) & left and _names(predicate) & right]
        on_both += about_both
        staying = [predicate for predicate in staying if predicate not in about_both]
    condition = conjunction(on_both)
    joined = replace(
        node,
        left=_sink(node.left, to_left + on_left),
        right=_sink(node.right, to_right + on_right),
        condition=TRUE if condition is None else condition,
    )
    return _above(joined, staying)


def _sides(
    predicates: list[Expression], left: set[str], right: set[str], may_left: bool, may_right: bool
) -> tuple[list[Expression], list[Expression], list[Expression]]:
    found: tuple[list[Expression], list[Expression], list[Expression]] = ([], [], [])
    for predicate in predicates:
        names = _names(predicate)
        place = 0 if may_left and names and names <= left else 1 if may_right and names and names <= right else 2
        found[place].append(predicate)
    return found


def _names(expression: Expression) -> set[str]:
    return {part.name for part in walk(expression) if isinstance(part, ColumnRef)}


def _prune(node: AskNode, needed: set[str]) -> AskNode:
    """The node without columns that nothing above uses, as far as that saves reading."""
    used = needed | {name for expression in node_expressions(node) for name in _names(expression)}
    match node:
        case Read():
            return _prune_read(node, needed)
        case Pair():
            return replace(node, left=_prune(node.left, used), right=_prune(node.right, used))
        case Select():
            items = tuple(item for item in node.items if item.name in needed)
            below = {name for item in items for name in _names(item.expression)}
            return Select(_prune(node.input, below), items)
        case Group():
            below = {name for expression in node_expressions(node) for name in _names(expression)}
            times = {name for name in (node.time, node.stream_time) if name is not None}
            return replace(node, input=_prune(node.input, below | times))
        case Unique():
            return replace(node, input=_prune(node.input, {column.name for column in node.columns}))
        case _:
            return replace(node, input=_prune(node.input, used))


def _prune_read(node: Read, needed: set[str]) -> Read:
    kept: list[tuple[Column, str]] = [
        (column, name) for column, name in zip(node.wanted, node.names, strict=True) if name in needed
    ]
    # Rows must be counted, even if nobody asks what is in them.
    kept = kept or [(node.wanted[0], node.names[0])]
    return replace(node, wanted=tuple(column for column, _ in kept), names=tuple(name for _, name in kept))
