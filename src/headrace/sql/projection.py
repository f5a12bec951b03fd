"""The SELECT list: stars expanded, expressions resolved, every column with a name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.sql.clauses import Query, SelectAll, SelectFields, SelectItem
from headrace.sql.expressions import ColumnRef, Dereference, Expression, Name, Span
from headrace.sql.plan import Named
from headrace.sql.resolve import resolve
from headrace.sql.scope import SYSTEM_COLUMNS, Scope, Side, typed
from headrace.sql.source import PSEUDO_COLUMNS
from headrace.types import Column, Struct, display_name


@dataclass(frozen=True, slots=True)
class Item:
    """One column of the result. `starred` if `*` gave it."""

    name: str
    expression: Expression
    span: Span | None
    starred: bool = False

    @property
    def named(self) -> Named:
        return Named(self.name, self.expression)


def expand_items(query: Query, scope: Scope, *, persistent: bool, moved: tuple[Expression, ...] = ()) -> list[Item]:
    """The columns of the result, in order. A persistent query's sink has system columns of its own, so its items may
    not be called like one, and its `*` leaves them out. `moved` is the key of PARTITION BY, which `*` includes."""
    generated = _generated_names(query, scope)
    items: list[Item] = []
    for item in query.items:
        if isinstance(item, SelectAll):
            items += _expand_star(item, scope, persistent, moved, generated)
        elif isinstance(item, SelectFields):
            items += _expand_fields(item, scope, items)
        else:
            expression = typed(resolve(item.expression, scope), scope)
            name = item.alias.name if item.alias else _implied_name(item.expression, scope, items) or next(generated)
            span = item.alias.span if item.alias else expression.span
            _check_alias(item, scope)
            items.append(Item(name, expression, span))
    check_names(items, scope, persistent)
    return items


def _check_alias(item: SelectItem, scope: Scope) -> None:
    """Whoever reads ROWTIME must get the row's time, also of a query that writes nothing."""
    itself = isinstance(item.expression, Name) and item.alias and item.expression.name == item.alias.name
    if item.alias and item.alias.name in SYSTEM_COLUMNS and not itself:
        message = f"`{item.alias.name}` is a column every stream and table has already"
        raise scope.error(message, item.alias.span, "choose another name")


def _expand_star(
    star: SelectAll, scope: Scope, persistent: bool, moved: tuple[Expression, ...], generated: Iterator[str]
) -> list[Item]:
    if star.source is not None:
        side = scope.side(star.source.name, star.source.span)
        return _of_side(side, scope, star.span, persistent)
    items = [
        Item(name, ColumnRef(internal, type=scope.columns[internal], span=star.span), star.span, True)
        for name, internal in scope.extra.items()
    ]
    for side in scope.sides:
        items += _of_side(side, scope, star.span, persistent)
    return _with_moved(items, scope, star, moved, generated) if moved else items


def _of_side(side: Side, scope: Scope, span: Span | None, persistent: bool) -> list[Item]:
    """Of a join's side, under the names `ALIAS_COLUMN`: the bounds of its window, too, which then are columns like
    others."""
    return [_of_column(side, column, scope, span) for column in side.columns(persistent and not scope.joined)]


def _of_column(side: Side, column: Column, scope: Scope, span: Span | None) -> Item:
    name = f"{side.alias}_{column.name}" if scope.joined else column.name
    return Item(name, ColumnRef(side.names[column.name], type=column.type, span=span), span, True)


def _with_moved(
    items: list[Item], scope: Scope, star: SelectAll, moved: tuple[Expression, ...], generated: Iterator[str]
) -> list[Item]:
    """After PARTITION BY, `*` is the new key, then the values, the old key last among them."""
    if scope.joined:
        items = [item for side in scope.sides for item in _of_moved_side(side, scope, star.span)]
    old = [item for item in items if not scope.joined and _is_key(item, scope)]
    values = [item for item in items if item not in old]
    found = [next((item for item in items if item.expression == part), None) for part in moved]
    keys = [item or Item(next(generated), part, star.span, True) for item, part in zip(found, moved, strict=True)]
    return keys + [item for item in values + old if item not in keys]


def _of_moved_side(side: Side, scope: Scope, span: Span | None) -> list[Item]:
    """Of a join that gets another key: as ksqlDB has it, also the pseudo columns, and the key last."""
    source = side.source
    columns = (*source.value, *(header.column for header in source.headers), *PSEUDO_COLUMNS, *source.key)
    return [_of_column(side, column, scope, span) for column in columns]


def _is_key(item: Item, scope: Scope) -> bool:
    assert isinstance(item.expression, ColumnRef)
    return item.expression.name in {column.name for side in scope.sides for column in side.source.key}


def _expand_fields(item: SelectFields, scope: Scope, before: list[Item]) -> list[Item]:
    struct = resolve(item.struct, scope)
    if not isinstance(struct.type, Struct):
        raise scope.error(f"`->*` takes a STRUCT, not {struct.type or 'NULL'}", item.span)
    items: list[Item] = []
    for name, type_ in struct.type.fields:
        field = Dereference(struct, name, type=type_, span=item.span)
        items.append(Item(_field_name(name, scope, before + items), field, item.span, True))
    return items


def _implied_name(written: Expression, scope: Scope, items: list[Item]) -> str | None:
    """A column's own name, with its source's if another has one called so, or a field's."""
    if isinstance(written, Name):
        having = [side for side in scope.sides if written.name in side.names]
        return f"{written.source}_{written.name}" if written.source and len(having) > 1 else written.name
    return _field_name(written.field, scope, items) if isinstance(written, Dereference) else None


def _field_name(field: str, scope: Scope, items: list[Item]) -> str:
    """With a number if a column is called so already."""
    taken = {item.name for item in items} | _source_names(scope)
    names = (field if n == 0 else f"{field}_{n}" for n in range(len(taken) + 1))
    return next(name for name in names if name not in taken)


def _source_names(scope: Scope) -> set[str]:
    return {column.name for side in scope.sides for column in side.source.columns}


def _generated_names(query: Query, scope: Scope) -> Iterator[str]:
    taken = _source_names(scope)
    taken |= {item.alias.name for item in query.items if isinstance(item, SelectItem) and item.alias}
    number = 0
    while True:
        name = f"KSQL_COL_{number}"
        if name not in taken:
            yield name
        number += 1


def check_names(items: list[Item], scope: Scope, persistent: bool) -> None:
    seen: set[str] = set()
    for item in items:
        if item.name in seen:
            message = f"column `{display_name(item.name)}` is there twice"
            raise scope.error(message, item.span, "give one of them another name with AS")
        if persistent and item.name in SYSTEM_COLUMNS:
            message = f"`{item.name}` is a column every stream and table has already"
            raise scope.error(message, item.span, "leave it out, or give it another name with AS")
        seen.add(item.name)
