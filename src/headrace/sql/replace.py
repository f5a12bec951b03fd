"""One definition and another: do they mean the same, and can the new one go on where the old one was?"""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import SqlError
from headrace.sql.parser import parse
from headrace.sql.plan import Filter, FlatMap, Join, PartitionBy, PersistentQuery, PlanNode, Project, Rename, Scan, walk
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect, CreateSource
from headrace.sql.used import used_columns
from headrace.types import display_name

_HOW_READ = (
    "window",
    "key_format",
    "value_format",
    "key_delimiter",
    "value_delimiter",
    "wrap_single_value",
    "timestamp",
    "timestamp_format",
)
_STATELESS = Scan | Rename | Filter | FlatMap | PartitionBy | Project


def same_definition(text: str, statement: CreateSource | CreateAsSelect) -> bool:
    """Whether a stored statement means the same: layout, comments and the words around it do not count."""
    try:
        [stored] = parse(text)
    except (SqlError, ValueError):
        return False
    if not isinstance(stored, CreateSource | CreateAsSelect):
        return False
    return replace(stored, or_replace=False, if_not_exists=False) == replace(
        statement, or_replace=False, if_not_exists=False
    )


def same_results(old: PersistentQuery, new: PersistentQuery) -> bool:
    """Whether both give the same, whatever else is declared about them or about what they read."""

    def results(query: PersistentQuery) -> tuple[object, ...]:
        sink = query.sink
        how = query.emit, query.insert, query.counts_late, _read(query.root, used_columns(query.root))
        return *how, sink.kind, sink.key, sink.value, sink.window, sink.timestamp

    return results(old) == results(new)


def _read(node: PlanNode, used: frozenset[str]) -> PlanNode:
    """The plan without what its sources declare beyond the columns it uses, and how those are read: nothing else is
    read, or kept as state."""
    if isinstance(node, Scan):
        source = node.source
        known = {name: getattr(source, name) for name in _HOW_READ}
        headers = tuple(header for header in source.headers if header.name in used)
        return Scan(Source(source.name, source.kind, source.topic, source.key, (), headers=headers, **known))
    if isinstance(node, Join):
        return replace(node, left=_read(node.left, used), right=_read(node.right, used))
    if isinstance(node, Rename):
        return Rename(_read(node.input, used), tuple(name for name in node.names if name in used))
    return replace(node, input=_read(node.input, used))


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
    for before, now in zip(old.value, new.value, strict=False):
        if before.name == now.name and before.type != now.type:
            return f"its column `{display_name(before.name)}` is {before.type}, and would be {now.type}"
    for index, column in enumerate(old.value):
        if index >= len(new.value) or new.value[index] != column:
            return f"its column `{display_name(column.name)}` would change, move or go"
    if old.kind == "table" and old.value != new.value:
        return "a table that is served keeps its columns"
    return None
