"""CREATE OR REPLACE: can the new definition go on where the old one was? If not, why not."""

from __future__ import annotations

from headrace.sql.plan import Filter, FlatMap, PartitionBy, PersistentQuery, PlanNode, Project, Rename, Scan, walk
from headrace.sql.source import Source
from headrace.types import display_name

_STATELESS = Scan | Rename | Filter | FlatMap | PartitionBy | Project


def replaced_source_problem(old: Source, new: Source) -> str | None:
    """Why a declared stream or table cannot become another one; None if it can: with further columns, nothing else."""
    return _source_problem(old, new)


def replaced_query_problem(old: PersistentQuery, new: PersistentQuery) -> str | None:
    """Why a query cannot go on as another one; None if it can, and then what it writes from now on is the new one's.

    Without state, any filter and projection of the same sources will do. With state, everything below the projection
    must be the same: what was kept for one query says nothing about another."""
    if old.inputs != new.inputs:
        names = [", ".join(display_name(source.name) for source in query.inputs) for query in (old, new)]
        return (
            f"it would read {names[1]} instead of {names[0]}" if names[0] != names[1] else "what it reads has changed"
        )
    if (old.emit, old.insert) != (new.emit, new.insert):
        return "it would emit something else"
    if not (_stateless(old.root) and _stateless(new.root)) and old.root.input != new.root.input:
        return "what it has kept so far would mean something else"
    return _source_problem(old.sink, new.sink)


def has_state(query: PersistentQuery) -> bool:
    return not _stateless(query.root)


def _stateless(node: PlanNode) -> bool:
    return all(isinstance(below, _STATELESS) for below in walk(node))


def _source_problem(old: Source, new: Source) -> str | None:
    if old.kind != new.kind:
        return f"it is a {old.kind}"
    for what in ("topic", "key", "key_format", "value_format", "window", "timestamp", "headers"):
        if getattr(old, what) != getattr(new, what):
            return f"its {what.replace('_', ' ')} would change"
    for index, column in enumerate(old.value):
        if index >= len(new.value) or new.value[index] != column:
            return f"its column `{display_name(column.name)}` would change, move or go"
    if old.kind == "table" and old.value != new.value:
        return "a table that is served keeps its columns"
    return None
