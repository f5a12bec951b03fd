"""The SELECT list: stars expanded, expressions resolved, every column with a name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.sql.expressions import ColumnRef, Dereference, Expression, Name, Span
from headrace.sql.plan import Named
from headrace.sql.resolve import resolve, typed
from headrace.sql.scope import SYSTEM_COLUMNS, Scope
from headrace.sql.script import did_you_mean
from headrace.sql.source import Source
from headrace.sql.statements import Query, SelectAll, SelectItem
from headrace.types import Column, display_name


@dataclass(frozen=True, slots=True)
class Item:
    """One column of the result."""

    name: str
    expression: Expression
    span: Span | None

    @property
    def named(self) -> Named:
        return Named(self.name, self.expression)


def expand_items(query: Query, source: Source, scope: Scope, *, persistent: bool) -> list[Item]:
    """The columns of the result, in order. A persistent query's sink has system columns of its own, so its items may
    not be called like one, and its `*` leaves them out."""
    generated = _generated_names(query, source)
    items: list[Item] = []
    for item in query.items:
        if isinstance(item, SelectAll):
            items += _expand_star(item, source, scope, persistent)
        else:
            expression = typed(resolve(item.expression, scope), scope)
            name = item.alias.name if item.alias else _implied_name(item.expression, source, items) or next(generated)
            span = item.alias.span if item.alias else expression.span
            items.append(Item(name, expression, span))
    _check_names(items, scope, persistent)
    return items


def _expand_star(star: SelectAll, source: Source, scope: Scope, persistent: bool) -> list[Item]:
    if star.source is not None and star.source.name not in scope.qualifiers:
        message = f"`{display_name(star.source.name)}` is not a stream or table of this query"
        raise scope.error(
            message, star.source.span, did_you_mean(star.source.name, scope.qualifiers, show=display_name)
        )
    columns: tuple[Column, ...] = source.key + source.value if persistent else source.columns
    return [
        Item(column.name, ColumnRef(column.name, type=column.type, span=star.span), star.span) for column in columns
    ]


def _implied_name(written: Expression, source: Source, items: list[Item]) -> str | None:
    """A column's own name, or a field's, with a number if a column is called so already."""
    if isinstance(written, Name):
        return written.name
    if not isinstance(written, Dereference):
        return None
    taken = {item.name for item in items} | {column.name for column in source.columns}
    names = (written.field if n == 0 else f"{written.field}_{n}" for n in range(len(taken) + 1))
    return next(name for name in names if name not in taken)


def _generated_names(query: Query, source: Source) -> Iterator[str]:
    taken = {column.name for column in source.columns}
    taken |= {item.alias.name for item in query.items if isinstance(item, SelectItem) and item.alias}
    number = 0
    while True:
        name = f"KSQL_COL_{number}"
        if name not in taken:
            yield name
        number += 1


def _check_names(items: list[Item], scope: Scope, persistent: bool) -> None:
    seen: set[str] = set()
    for item in items:
        if item.name in seen:
            message = f"column `{display_name(item.name)}` is there twice"
            raise scope.error(message, item.span, "give one of them another name with AS")
        if persistent and item.name in SYSTEM_COLUMNS:
            message = f"`{item.name}` is a column every stream and table has already"
            raise scope.error(message, item.span, "leave it out, or give it another name with AS")
        seen.add(item.name)
