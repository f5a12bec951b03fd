"""EMIT CHANGES EVERY …: how often at most, and by which columns a change replaces the one before."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.sql.clauses import Query
from headrace.sql.expressions import ColumnRef, Expression
from headrace.sql.projection import Item
from headrace.sql.relation import Input
from headrace.sql.scope import Scope
from headrace.sql.source import WINDOW_COLUMNS, Window
from headrace.types import display_name

LONGEST_MS = 24 * 3_600_000


def every_ms(query: Query, scope: Scope) -> int | None:
    if query.every is None:
        return None
    milliseconds = query.every.milliseconds
    if not 0 < milliseconds <= LONGEST_MS:
        raise scope.error("EVERY takes more than 0 and at most 24 HOURS", query.span)
    return milliseconds


def every_of_table(query: Query, scope: Scope, grouped: bool) -> int | None:
    """Of a query that runs on: each of its batches has one change per group, so a batch that often does it."""
    if query.every is not None and not grouped:
        hint = "leave it out here, and give it to the SELECT that follows the changes"
        raise scope.error("EVERY needs GROUP BY", query.span, hint)
    return every_ms(query, scope)


def change_key(
    query: Query, items: Sequence[Item], keys: Sequence[Expression], source: Input, window: Window | None
) -> tuple[str, ...]:
    """The names of the selected columns that tell whose change a row is; all of them must be selected."""
    if query.every is None:
        return ()
    wanted = [[key] for key in keys]
    if source.key.column is not None and source.scope.joined and not query.group_by and not query.partition_by:
        # A join's key has several names: any of them will do.
        wanted = [[*source.key.parts, source.key.column]]
    if window is not None or (source.window is not None and not query.group_by):
        wanted.append([ColumnRef(bound.name, type=bound.type) for bound in WINDOW_COLUMNS])
    if not wanted:
        hint = "PARTITION BY, or GROUP BY, gives the rows one"
        raise source.scope.error("EVERY keeps the newest row of each key, and these rows have none", query.span, hint)
    return tuple(_selected(any_of, items, query, source.scope) for any_of in wanted)


def _selected(any_of: Sequence[Expression], items: Sequence[Item], query: Query, scope: Scope) -> str:
    found = next((item.name for item in items if item.expression in any_of), None)
    if found is None:
        names = " or ".join(display_name(one.name) for one in any_of if isinstance(one, ColumnRef)) or "its key"
        message = "EVERY keeps the newest row of each key, which is not selected"
        raise scope.error(message, query.span, f"add {names} to the SELECT list")
    return found
