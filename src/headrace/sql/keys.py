"""Which of the selected columns are the sink's key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.errors import SqlError
from headrace.sql.clauses import Query
from headrace.sql.expressions import Expression
from headrace.sql.printer import print_expression
from headrace.sql.projection import Item
from headrace.sql.relation import Input
from headrace.sql.scope import Scope
from headrace.types import display_name

Keyed = tuple[list[Item], list[Item]]
"""The items that are the key, in its order, and the others."""


def all_of(
    items: Sequence[Item], keys: Sequence[Expression], scope: Scope, query: Query, optional: bool = False
) -> Keyed:
    """Every part of the key must be selected, once. With `optional` a key that is not selected is not kept."""
    found: list[Item] = []
    for key in keys:
        matching = [item for item in items if item.expression == key]
        if not matching and optional:
            continue
        if not matching:
            raise _missing(keys, scope, query)
        found.append(_once(matching, scope))
    return found, _values(items, found, scope, query)


def of_join(items: Sequence[Item], source: Input, query: Query, optional: bool = False) -> Keyed:
    """A join's key is one value with several names: the first of those that is selected."""
    column = source.key.column
    if column is None:
        return all_of(items, source.key.parts, source.scope, query, optional)
    for name in source.key.parts or (column,):
        matching = [item for item in items if item.expression == name]
        if matching:
            item = _once(matching, source.scope)
            key = replace(item, expression=replace(column, span=item.expression.span))
            return [key], _values(items, [item], source.scope, query)
    if optional:
        return [], list(items)
    raise _missing(source.key.parts, source.scope, query, any_one=True)


def _once(matching: Sequence[Item], scope: Scope) -> Item:
    if len(matching) > 1:
        name = display_name(matching[0].name)
        hint = f"a copy among the values is written AS_VALUE({name})"
        raise scope.error(f"the key `{name}` is selected twice", matching[1].span, hint)
    return matching[0]


def _values(items: Sequence[Item], keys: Sequence[Item], scope: Scope, query: Query) -> list[Item]:
    value = [item for item in items if item not in keys]
    if not value:
        raise scope.error("there are no value columns", query.span, "select something beside the key")
    return value


def _missing(keys: Sequence[Expression], scope: Scope, query: Query, any_one: bool = False) -> SqlError:
    shown = [shown_key(key, scope) for key in keys] or [next(iter(scope.extra), "rowkey").lower()]
    names = (" or " if any_one else " and ").join(f"`{name}`" for name in shown)
    message = f"the key {names} is not selected"
    return scope.error(message, query.group_span or query.span, f"add `{shown[0]}` to the SELECT list")


def shown_key(key: Expression, scope: Scope) -> str:
    """The key as it would be written."""
    text = print_expression(key)
    for side in scope.sides:
        for name, internal in side.names.items():
            if text == internal:
                return f"{display_name(side.alias)}.{display_name(name)}" if scope.joined else display_name(name)
    return text
