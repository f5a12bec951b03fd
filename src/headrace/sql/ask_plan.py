"""Plans of questions: a SELECT without EMIT that groups, joins, or does whatever else one look at one table does not.

A plain SELECT from one stream or table stays a `PullQuery`, which a store answers almost alone. Everything else is a
tree of these nodes, evaluated in `deliver/ask` over rows that the stores and the log find. It means what SQL means: a
table is what it holds now, a stream the records it has so far (or those of a range), and a join pairs what matches.
Expressions, aggregates, windows and their lateness mean what they mean in a query that runs on.

A node's `columns` are what nodes above may refer to by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.sql.clauses import ReadRange
from headrace.sql.expressions import Expression
from headrace.sql.plan import JoinKind, Named, Ordering
from headrace.sql.source import WINDOW_COLUMNS, Source, Window
from headrace.types import Column


@dataclass(frozen=True, slots=True)
class Read:
    """`wanted` columns of a source, under `names`. `predicate` is over the source's own names and may be checked
    wherever that is cheapest. In a `TimeRange` and an `AsOf` moments are milliseconds."""

    source: Source
    wanted: tuple[Column, ...]
    names: tuple[str, ...]
    predicate: Expression | None = None
    range: ReadRange | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, column.type) for name, column in zip(self.names, self.wanted, strict=True))


@dataclass(frozen=True, slots=True)
class Where:
    """Also HAVING. Only true passes."""

    input: AskNode
    predicate: Expression

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Pair:
    """Every row of `left` with every row of `right` for which `condition` is true; the outer kinds keep rows that have
    no partner, with nulls. With `tests` the right side only decides which of the left one's rows pass: each has one
    partner at most, and is still the record it was."""

    kind: JoinKind
    left: AskNode
    right: AskNode
    condition: Expression
    tests: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.left.columns + self.right.columns


@dataclass(frozen=True, slots=True)
class Expand:
    """Table functions: as `plan.FlatMap`."""

    input: AskNode
    functions: tuple[Named, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns + tuple(named.column for named in self.functions)


@dataclass(frozen=True, slots=True)
class Group:
    """As `plan.Aggregate`: rows with a null in a key are left out. Without keys there is one group, always. With a
    `window`, `time` and `stream_time` name the columns that say to which windows a row belongs, and whether it is
    late."""

    input: AskNode
    keys: tuple[Named, ...]
    aggregates: tuple[Named, ...]
    window: Window | None = None
    time: str | None = None
    stream_time: str | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        window = WINDOW_COLUMNS if self.window else ()
        return tuple(n.column for n in self.keys) + window + tuple(n.column for n in self.aggregates)


@dataclass(frozen=True, slots=True)
class Around:
    """OVER: the input's columns, then one per function, each an `Over`."""

    input: AskNode
    functions: tuple[Named, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns + tuple(named.column for named in self.functions)


@dataclass(frozen=True, slots=True)
class Select:
    input: AskNode
    items: tuple[Named, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(named.column for named in self.items)


@dataclass(frozen=True, slots=True)
class Unique:
    """DISTINCT: the first of equal rows. Null is equal to null."""

    input: AskNode

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Sort:
    """Nulls first, last if descending; what is equal stays as it came."""

    input: AskNode
    order: tuple[Ordering, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Cut:
    """LIMIT and OFFSET."""

    input: AskNode
    limit: int | None
    offset: int = 0

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


AskNode = Read | Where | Pair | Expand | Group | Around | Select | Unique | Sort | Cut


@dataclass(frozen=True, slots=True)
class AskQuery:
    """A whole question."""

    root: AskNode

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.root.columns

    @property
    def inputs(self) -> tuple[Source, ...]:
        """The sources read, each once, in the order they are named."""
        found = {node.source.name: node.source for node in walk_nodes(self.root) if isinstance(node, Read)}
        return tuple(found.values())


def ask_inputs(node: AskNode) -> tuple[AskNode, ...]:
    """The nodes directly below, left before right."""
    match node:
        case Read():
            return ()
        case Pair():
            return (node.left, node.right)
        case _:
            return (node.input,)


def walk_nodes(node: AskNode) -> Iterator[AskNode]:
    """The node and everything below it, top first, left before right."""
    yield node
    for below in ask_inputs(node):
        yield from walk_nodes(below)


def node_expressions(node: AskNode) -> list[Expression]:
    """What a node computes, over its input's columns. Not a Read's predicate, which is over its source's."""
    match node:
        case Where():
            return [node.predicate]
        case Pair():
            return [node.condition]
        case Expand() | Around():
            return [named.expression for named in node.functions]
        case Group():
            return [named.expression for named in node.keys + node.aggregates]
        case Select():
            return [named.expression for named in node.items]
        case Sort():
            return [one.expression for one in node.order]
        case _:
            return []
