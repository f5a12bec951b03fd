"""A table's query as two that each read a part of the log: what both keep, and how it is put together again.

Only the parts of the aggregates are kept; HAVING and what the SELECT computes come after the merge. A query without an
aggregate keeps its rows, and the later one of a key replaces the earlier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.errors import UsageError
from headrace.sql.expressions import Call, ColumnRef, Expression
from headrace.sql.functions import steps_of
from headrace.sql.plan import Aggregate, Filter, Join, Named, PersistentQuery, PlanNode, Project, Scan, walk
from headrace.sql.source import Source
from headrace.sql.split import Split, split_call
from headrace.types import Column, display_name


class NotMergeable(UsageError):
    """Why a view cannot be made of two layers."""


@dataclass(frozen=True, slots=True)
class LayeredQuery:
    query: PersistentQuery
    """What the view shows."""
    partial: PersistentQuery
    """What each layer keeps: the same keys and windows, and the parts as values."""
    aggregate: Aggregate | None
    """None if rows are kept as they are."""
    splits: tuple[Split, ...] = ()
    having: tuple[Expression, ...] = ()

    @property
    def from_beginning(self) -> frozenset[str]:
        """Topics of tables that the stream meets: both layers need all of them, whatever the cut."""
        return frozenset(source.topic for source in self.query.inputs if source.kind == "table" and self.aggregate)


def layered_query(query: PersistentQuery) -> LayeredQuery:
    """`NotMergeable` says what stands against it."""
    _check(query)
    aggregates = [node for node in walk(query.root) if isinstance(node, Aggregate)]
    if not aggregates:
        return _of_rows(query)
    having, node = [], query.root.input
    while isinstance(node, Filter):
        having.append(node.predicate)
        node = node.input
    if not isinstance(node, Aggregate) or len(aggregates) > 1:
        raise NotMergeable("an aggregate of an aggregate cannot be merged")
    _check_aggregate(node, query)
    splits = tuple(_split(named) for named in node.aggregates)
    parts = _named_parts(splits, {column.name for column in node.columns})
    values = tuple(Named(part.name, ColumnRef(part.name, type=part.expression.type)) for part in parts)
    root = Project(replace(node, aggregates=parts), query.root.key, values)
    sink = _partial_sink(query.sink, tuple(named.column for named in values))
    return LayeredQuery(query, replace(query, sink=sink, root=root), node, splits, tuple(having))


def check_cut(query: PersistentQuery, apart: Mapping[str, int]) -> LayeredQuery:
    """The same where a cut may be offsets: `apart` says how many partitions topics have that are in no common order. A
    record behind such a cut may come before one that is not (docs/explanation/time-and-lateness.md), so what depends on
    order cannot have layers."""
    found = layered_query(query)
    _check_topics(query)
    if apart and any(isinstance(node, Join) for node in walk(query.root)):
        raise NotMergeable("it joins a table, and on Kafka a cut does not say which rows of it a stream's row has met")
    if found.aggregate is None or all(apart.get(source.topic, 1) == 1 for source in query.inputs):
        return found
    for named in found.aggregate.aggregates:
        call = named.expression
        if isinstance(call, Call) and steps_of(call).ordered:
            raise NotMergeable(f"{call.name} goes by order, and on Kafka partitions are not cut in order")
    return found


def _check_topics(query: PersistentQuery) -> None:
    """A table's topic is read from its beginning by both layers, a stream's by each from its own place."""
    tables = {source.topic: source.name for source in query.inputs if source.kind == "table"}
    for source in query.inputs:
        if source.kind == "stream" and source.topic in tables:
            names = f"as the stream `{display_name(source.name)}` and the table `{display_name(tables[source.topic])}`"
            why = "what is before the cut would be counted by both layers"
            raise NotMergeable(f"it reads topic `{source.topic}` twice, {names}: {why}")


def _check(query: PersistentQuery) -> None:
    name = display_name(query.sink.name)
    if query.sink.kind != "table":
        raise NotMergeable(f"`{name}` is a stream: only tables are made of layers")
    if query.emit == "final":
        raise NotMergeable("EMIT FINAL writes a window once, when it closes: a layer has only a part of it")
    if query.sink.timestamp is not None:
        raise NotMergeable("its rows take their time from a column, which is known only after the merge")
    for node in walk(query.root):
        if isinstance(node, Join) and node.form != "stream-table":
            raise NotMergeable(
                "it joins streams: a row may meet one on the other side of the cut"
                if node.form == "stream-stream"
                else "it joins tables: a change of one joins rows that are in the other layer"
            )


def _check_aggregate(node: Aggregate, query: PersistentQuery) -> None:
    if node.over == "table":
        raise NotMergeable("it aggregates a table: a change takes away a row that is in the other layer")
    if node.window is not None and node.window.kind == "session":
        raise NotMergeable("a session may begin in one layer and end in the other")
    kept = {named.expression.name for named in query.root.key if isinstance(named.expression, ColumnRef)}
    if any(key.name not in kept for key in node.keys):
        raise NotMergeable("its key is computed after the aggregate")


def _split(named: Named) -> Split:
    call = named.expression
    assert isinstance(call, Call)
    found = split_call(call)
    if found is None:
        why = "is written in Python" if call.function is not None else "keeps nothing that can be merged"
        raise NotMergeable(f"{call.name} {why}")
    return found


def _named_parts(splits: tuple[Split, ...], taken: set[str]) -> tuple[Named, ...]:
    """Under names that no key has."""
    prefix = "PART"
    while any(name.startswith(prefix) for name in taken):
        prefix = f"_{prefix}"
    calls = [part for split in splits for part in split.parts]
    return tuple(Named(f"{prefix}_{place}", call) for place, call in enumerate(calls))


def _partial_sink(sink: Source, values: tuple[Column, ...]) -> Source:
    """Nobody but Headrace reads it, so it has no format of its own."""
    return replace(
        sink,
        value=values,
        value_format="JSON",
        value_delimiter=None,
        wrap_single_value=None,
        value_schema_id=None,
        value_schema_name=None,
    )


def _of_rows(query: PersistentQuery) -> LayeredQuery:
    if any(isinstance(node, Join) for node in walk(query.root)) or not _reads_table(query.root):
        raise NotMergeable("its rows have no key by which a later one replaces an earlier one")
    return LayeredQuery(query, query, None)


def _reads_table(root: PlanNode) -> bool:
    return any(isinstance(node, Scan) and node.source.kind == "table" for node in walk(root))
