"""Plans: what a statement means, as a tree of operators. Made by `plan_query`, lowered to Spark in `process/`,
evaluated in Python for pull queries and for stateless push queries.

Each node's `columns` are what nodes above may refer to by name. Beside them every row silently carries:

- its **event time**, kept by projections and filters, the largest of its rows' in an aggregate, the larger of both
  sides' in stream-stream and table-table joins, the stream row's in stream-table joins;
- whether it is a **deletion**: a stream's record whose whole value is null, a table's tombstone. A projection passes it
  on as null (from a stream) or as a tombstone (from a table), no predicate is true of it, GROUP BY over a stream skips
  it, a stream-table or stream-stream join skips it, in table-table joins and aggregates over tables it takes away;
- its **headers**, those of the record that caused it;
- its **arrival number**, which orders rows wherever order matters (contract 4).

A table's rows are changes by `primary_key(node)`: the newest replaces the one before. Where an operator needs the row
before (aggregates and joins over tables), it keeps the last one by that key (contract 8).

MATCH_RECOGNIZE is planned: it will be one more node with an input, between a Scan or Filter and a Project, whose
columns are its MEASURES. The parser knows the word and says so.
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
    """Read a source. A table is read as its changelog: a row with a null in its key is dropped, a tombstone deletes.
    A stream keeps rows with a null key. With `source.window` the window is part of the key, and WINDOWSTART and
    WINDOWEND are columns. Header columns come from the record's headers."""

    source: Source

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.source.all_columns


@dataclass(frozen=True, slots=True)
class Rename:
    """The input's columns under other names, in order: a side of a join, as `ALIAS_COLUMN`."""

    input: PlanNode
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, column.type) for name, column in zip(self.names, self.input.columns, strict=True))


@dataclass(frozen=True, slots=True)
class Filter:
    """WHERE, or above an Aggregate HAVING. Only true passes. A table's row or a group that stops passing is deleted."""

    input: PlanNode
    predicate: Expression

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Table functions of one SELECT list, such as EXPLODE. `functions` are calls whose type is that of one row's value;
    evaluated, each gives a list. A row becomes as many as the longest list has elements, in order, shorter lists are
    filled up with nulls; none if all are empty or null, or if one of them fails. Streams only; time, key and headers
    are the row's. Columns: the input's, then one per function."""

    input: PlanNode
    functions: tuple[Named, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns + tuple(named.column for named in self.functions)


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """Another key for a stream: rows move to its partition (repartition), each key's in the order they arrive. `key`
    may have several parts; a part that is null or fails is a null in the key, and the row is kept. A row whose value is
    null is kept if the key can be computed without it. Columns: the input's, then those parts that are not columns of
    it."""

    input: PlanNode
    key: tuple[Named, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns + tuple(new.column for new in self.key if new.column not in self.input.columns)


@dataclass(frozen=True, slots=True)
class Within:
    """The time a stream-stream join looks back and ahead: rows match if
    `left time - before_ms <= right time <= left time + after_ms`.

    `grace_ms` is None without GRACE PERIOD: state is then kept for a day, and the null-padded row of an outer join
    comes at once, the match later too. With it, a row older than stream time (the largest of both sides) less
    `before_ms` or `after_ms` and grace is late, and the padded row comes only once nothing can match any more."""

    before_ms: int
    after_ms: int
    grace_ms: int | None = None


JoinKind = Literal["inner", "left", "right", "full"]
JoinForm = Literal["stream-stream", "stream-table", "table-table", "foreign-key"]


@dataclass(frozen=True, slots=True)
class Join:
    """`left` and `right` where `left_key = right_key`: expressions over the left's and the right's columns, of one
    type. Null is equal to nothing: a stream's row with a null key is dropped, except by a left join's left side towards
    a table.

    - `stream-stream`: within a time of each other; every pair once. Output time: the later one's.
    - `stream-table`: each stream row with what the table holds when it arrives, by arrival number, not by event time.
      `inner` or `left`; table changes alone give nothing. Output time: the stream row's.
    - `table-table`: by primary key on both sides; a change of either gives a change, and a tombstone once the row is
      gone from the result. Output time: the later one's.
    - `foreign-key`: `left_key` is any expression over the left table, `right_key` the right one's primary key; the
      result has the left's primary key. `inner` or `left`.

    With `windowed` both sides are windowed sources, and WINDOWSTART of both must be equal too.

    `key` is the name of one more column, after both sides' columns: the join key, from whichever side has it. It is the
    result's key, and None for `foreign-key`, where that is the left's. More than two sources are joined as
    `Join(Join(a, b), c)`."""

    kind: JoinKind
    form: JoinForm
    left: PlanNode
    right: PlanNode
    left_key: Expression
    right_key: Expression
    key: str | None = None
    within: Within | None = None
    windowed: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        both = self.left.columns + self.right.columns
        if self.key is None:
            return both
        assert self.left_key.type is not None
        return (*both, Column(self.key, self.left_key.type))


@dataclass(frozen=True, slots=True)
class Project:
    """Evaluate `key` and `value`: the output's key and value columns, in order. An expression that fails is null."""

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
    WINDOWSTART and WINDOWEND.

    `over` says what the input is. A stream's rows are added. A table's changes are subtracted (`undo` with the row
    before, in its group) and added (the row after, in its own); a group that becomes empty stays, with COUNT 0. Where
    the table is written per batch, which groups there ever were depends on the cuts, so the plan has a Filter above
    that lets empty ones go. Over a table there is no window, except that of a windowed source, whose bounds are then
    plain columns.

    A `session` window has the gap as `size_ms`: a row joins the sessions it is within the gap of, merging them; a
    merged session's old ones are deleted. Its end is the time of its last row (inclusive), a time window's end is
    exclusive."""

    input: PlanNode
    keys: tuple[Named, ...]
    aggregates: tuple[Named, ...]
    window: Window | None = None
    over: Literal["stream", "table"] = "stream"

    @property
    def columns(self) -> tuple[Column, ...]:
        window = WINDOW_COLUMNS if self.window else ()
        return tuple(n.column for n in self.keys) + window + tuple(n.column for n in self.aggregates)


PlanNode = Scan | Rename | Filter | FlatMap | PartitionBy | Join | Project | Aggregate


@dataclass(frozen=True, slots=True)
class Limits:
    """What a query may take; where it says nothing, what the project's settings say."""

    state_rows: int | None = None
    state_bytes: int | None = None
    batch_rows: int | None = None


@dataclass(frozen=True, slots=True)
class PersistentQuery:
    """CREATE STREAM|TABLE … AS SELECT, or INSERT INTO … SELECT: `root` is always a Project; its rows go to `sink`.

    The sink's key columns are `root.key`; in a windowed table the window bounds are part of the key. With `insert` the
    sink exists and is not this query's own: several may write to it, the order between them is that of arrival.
    `emit="final"`: every window's result exactly once, when stream time has passed its end and grace."""

    sink: Source
    root: Project
    emit: Literal["changes", "final"] = "changes"
    insert: bool = False
    limits: Limits = Limits()
    every_ms: int | None = None
    """EMIT CHANGES EVERY: the least time between two batches, each of which has one change of a group."""
    refresh_ms: int | None = None
    """REFRESH EVERY: how often its batch layer is computed again. None if it need not have one."""
    counts_late: bool = False
    """BATCH_COUNTS_LATE: its batch layer, if it has one, has what came too late for the stream, too."""

    @property
    def inputs(self) -> tuple[Source, ...]:
        return scanned(self.root)


@dataclass(frozen=True, slots=True)
class PushQuery:
    """SELECT … EMIT CHANGES. Stateless ones run in the server; others as a transient Spark query."""

    root: Project
    limit: int | None = None
    emit: Literal["changes", "final"] = "changes"
    every_ms: int | None = None
    """EMIT CHANGES EVERY: of rows with the same `key` the newest, that often."""
    key: tuple[str, ...] = ()
    """Names of columns of `root`; only with `every_ms`."""

    @property
    def stateless(self) -> bool:
        """Only scans, filters and projections: what the server does itself."""
        return all(isinstance(node, Scan | Filter | Project) for node in walk(self.root))

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


def node_inputs(node: PlanNode) -> tuple[PlanNode, ...]:
    """The nodes directly below, left before right."""
    match node:
        case Scan():
            return ()
        case Join():
            return (node.left, node.right)
        case _:
            return (node.input,)


def walk(node: PlanNode) -> list[PlanNode]:
    """The node and everything below it, top first, left before right."""
    found = [node]
    for below in node_inputs(node):
        found += walk(below)
    return found


def scanned(node: PlanNode) -> tuple[Source, ...]:
    """The sources read, each as often as it is."""
    return tuple(below.source for below in walk(node) if isinstance(below, Scan))


def may_be_late(node: PlanNode) -> bool:
    """Whether rows can come too late for it: there is a window, or a join within a time."""
    return any(
        (isinstance(below, Aggregate) and below.window is not None)
        or (isinstance(below, Join) and below.within is not None)
        for below in walk(node)
    )


def waits_for_time(query: PersistentQuery) -> bool:
    """Are there results that come only with time: windows that close, rows that nothing matched? Then a batch without
    input has work to do."""
    joins = [below for below in walk(query.root) if isinstance(below, Join) and below.kind != "inner"]
    return query.emit == "final" or any(join.within and join.within.grace_ms is not None for join in joins)


def keeps_headers(node: PlanNode) -> bool:
    """Whether each of its rows has the headers of the record that caused it. What an aggregate gives has none: it is
    made of many records."""
    return not any(isinstance(below, Aggregate) for below in walk(node))


def is_per_batch(node: PlanNode) -> bool:
    """Of a table's node: whether there is an aggregate somewhere below it, in this query or in one that it reads."""
    return any(
        isinstance(below, Aggregate) or (isinstance(below, Scan) and below.source.per_batch) for below in walk(node)
    )


def is_table(node: PlanNode) -> bool:
    """Whether the node's rows are changes by a primary key."""
    match node:
        case Scan():
            return node.source.kind == "table"
        case Join():
            return node.form in ("table-table", "foreign-key")
        case Aggregate():
            return True
        case _:
            return is_table(node.input)


def primary_key(node: PlanNode) -> tuple[str, ...]:
    """Of a table's node: the columns that tell its rows apart, the window's bounds among them."""
    match node:
        case Scan():
            window = WINDOW_COLUMNS if node.source.window else ()
            return tuple(column.name for column in node.source.key + window)
        case Rename():
            renamed = dict(zip((column.name for column in node.input.columns), node.names, strict=True))
            return tuple(renamed[name] for name in primary_key(node.input))
        case Join():
            return (node.key,) if node.key is not None else primary_key(node.left)
        case Project():
            return tuple(named.name for named in node.key)
        case Aggregate():
            window = WINDOW_COLUMNS if node.window else ()
            return tuple(named.name for named in node.keys) + tuple(column.name for column in window)
        case _:
            return primary_key(node.input)
