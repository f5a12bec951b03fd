"""Plans: what a statement means, as a tree of operators. Made by `plan_query`, lowered to Spark in `process/`,
evaluated in Python for pull queries and for stateless push queries.

Each node's `columns` are what nodes above may refer to by name. Beside them every row silently carries its
event time, and the operators of `process/` keep it right: a projection keeps its row's, an aggregate has the
largest of its rows'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.sql.expressions import Expression
from headrace.sql.source import WINDOW_COLUMNS, Source, Window
from headrace.types import Column


@dataclass(frozen=True, slots=True)
class Named:
    """An expression and the name its value gets. `expression.type` is set."""

    name: str
    expression: Expression

    @property
    def column(self) -> Column:
        assert self.expression.type is not None
        return Column(self.name, self.expression.type)


@dataclass(frozen=True, slots=True)
class Scan:
    """Read a source. A table is read as its changelog."""

    source: Source

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.source.all_columns


@dataclass(frozen=True, slots=True)
class Filter:
    """WHERE, or above an Aggregate HAVING. Only true passes. A table's row or a group that stops passing is deleted."""

    input: PlanNode
    predicate: Expression

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Project:
    """Evaluate `key` and `value`: the output's key and value columns, in order."""

    input: PlanNode
    key: tuple[Named, ...]
    value: tuple[Named, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(named.column for named in self.key + self.value)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Group by `keys` (and the window) and keep `aggregates` per group: each a `Call` of an aggregate
    function over expressions of the input. Rows with a null key are skipped. With a window, `columns` also has
    WINDOWSTART and WINDOWEND."""

    input: PlanNode
    keys: tuple[Named, ...]
    aggregates: tuple[Named, ...]
    window: Window | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        window = WINDOW_COLUMNS if self.window else ()
        return tuple(n.column for n in self.keys) + window + tuple(n.column for n in self.aggregates)


PlanNode = Scan | Filter | Project | Aggregate


@dataclass(frozen=True, slots=True)
class PersistentQuery:
    """CREATE STREAM|TABLE … AS SELECT: `root` is always a Project; its rows go to `sink`.

    The sink's key columns are `root.key`; in a windowed table the window bounds are part of the key."""

    sink: Source
    root: Project
    emit: Literal["changes", "final"] = "changes"

    @property
    def inputs(self) -> tuple[Source, ...]:
        return scanned(self.root)


@dataclass(frozen=True, slots=True)
class PushQuery:
    """SELECT … EMIT CHANGES. Stateless ones run in the server; others as a transient Spark query."""

    root: Project
    limit: int | None = None

    @property
    def stateless(self) -> bool:
        return not any(isinstance(node, Aggregate) for node in walk(self.root))

    @property
    def inputs(self) -> tuple[Source, ...]:
        return scanned(self.root)


@dataclass(frozen=True, slots=True)
class Ordering:
    expression: Expression
    descending: bool = False


@dataclass(frozen=True, slots=True)
class PullQuery:
    """SELECT without EMIT: over a table what it holds now; over a stream its records so far.

    `items` refer to the source's `all_columns`; `order` too."""

    source: Source
    items: tuple[Named, ...]
    predicate: Expression | None = None
    order: tuple[Ordering, ...] = ()
    limit: int | None = None


def walk(node: PlanNode) -> list[PlanNode]:
    """The node and everything below it, top first."""
    found = [node]
    while not isinstance(node, Scan):
        node = node.input
        found.append(node)
    return found


def scanned(node: PlanNode) -> tuple[Source, ...]:
    return tuple(below.source for below in walk(node) if isinstance(below, Scan))
