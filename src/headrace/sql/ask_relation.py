"""FROM of a question: streams, tables, ranges, subqueries and what WITH names, joined in any way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from headrace.sql import datetimes
from headrace.sql.ask_plan import AskNode, Pair, Read, Select
from headrace.sql.clauses import AsOf, JoinClause, Query, ReadRange, Relation, TimeRange
from headrace.sql.expressions import Arithmetic, Between, ColumnRef, Expression, Literal, Logical
from headrace.sql.plan import Named
from headrace.sql.resolve import resolve_predicate
from headrace.sql.scope import Scope, Side, columns_by_name, find_source
from headrace.sql.script import Script
from headrace.sql.source import Source, Sources
from headrace.types import BIGINT, BOOLEAN, display_name


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What names in a query can mean. `plan` plans a query inside of this one."""

    script: Script
    sources: Sources
    plan: Callable[[Query, Surroundings], AskNode]
    common: Mapping[str, tuple[Query, Surroundings]] = field(default_factory=dict)
    """What WITH names, each with what it may refer to itself: those before it."""


@dataclass(frozen=True, slots=True)
class From:
    node: AskNode
    scope: Scope
    streams: tuple[bool, ...]
    """Of each side, whether it is a stream."""


def read_from(relation: Relation, around: Surroundings) -> From:
    taken: set[str] = set()
    joined = bool(relation.joins)
    node, side, stream = _read(relation, around, joined, taken)
    types = around.sources.types()
    found = From(node, Scope(around.script, columns_by_name(node.columns), (side,), types=types), (stream,))
    for clause in relation.joins:
        found = _join(found, clause, around, taken)
    return found


def _read(
    read: Relation | JoinClause, around: Surroundings, joined: bool, taken: set[str]
) -> tuple[AskNode, Side, bool]:
    alias = (read.alias or read.source).name
    named = around.common.get(read.source.name) if read.query is None else (read.query, around)
    if named is not None:
        if read.range is not None:
            message = "AS OF is for tables" if isinstance(read.range, AsOf) else "only a stream has a range"
            raise around.script.error(message, read.range.span)
        below = around.plan(*named)
        # Stands for the result where names are looked up; nothing ever reads it.
        source = Source(alias, "table", "", (), below.columns)
        names = {column.name: _fresh(alias, column.name, joined, taken) for column in below.columns}
        return _renamed(below, tuple(names.values())), Side(alias, source, names), False
    source = find_source(around.script, around.sources, read.source)
    names = {column.name: _fresh(alias, column.name, joined, taken) for column in source.all_columns}
    node = Read(source, source.all_columns, tuple(names.values()), None, _range(read, source, around.script))
    return node, Side(alias, source, names), source.kind == "stream"


def _fresh(alias: str, column: str, joined: bool, taken: set[str]) -> str:
    """What a column is called in the plan: `ALIAS_COLUMN` in a join, as where a query runs on."""
    if not joined:
        return column
    name = f"{alias}_{column}"
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _renamed(below: AskNode, names: tuple[str, ...]) -> AskNode:
    if tuple(column.name for column in below.columns) == names:
        return below
    columns = zip(names, below.columns, strict=True)
    return Select(below, tuple(Named(name, ColumnRef(column.name, type=column.type)) for name, column in columns))


def _range(read: Relation | JoinClause, source: Source, script: Script) -> ReadRange | None:
    range_ = read.range
    if range_ is None:
        return None
    if isinstance(range_, AsOf):
        return _as_of(range_, source, script)
    if source.kind == "table":
        message = f"`{display_name(source.name)}` is a table: only a stream has a range"
        raise script.error(message, range_.span, "select the table's rows with WHERE")
    if isinstance(range_, TimeRange):
        return replace(range_, low=_moment(range_.low, range_, script), high=_moment(range_.high, range_, script))
    beyond = [number for number, _, _ in range_.bounds if number is not None and number >= source.partitions]
    if beyond:
        message = f"`{display_name(source.name)}` has no partition {beyond[0]}: it has {source.partitions}"
        raise script.error(message, range_.span)
    return range_


def _as_of(range_: AsOf, source: Source, script: Script) -> AsOf:
    name = display_name(source.name)
    if source.kind != "table":
        message = f"`{name}` is a stream: its records do not change, AS OF is for tables"
        raise script.error(message, range_.span, "BETWEEN … AND … reads a part of a stream")
    if isinstance(range_.at, tuple):
        if len(range_.at) != source.partitions:
            parts = "1 partition" if source.partitions == 1 else f"{source.partitions} partitions"
            example = ", ".join(str(12 + 3 * number) for number in range(min(source.partitions, 4)))
            example = f"({example}{', …' * (source.partitions > 4)})" if source.partitions > 1 else example
            message = f"`{name}` has {parts}, so AS OF OFFSET needs as many offsets"
            raise script.error(message, range_.span, f"such as AS OF OFFSET {example}")
        return range_
    return replace(range_, at=_moment(range_.at, range_, script)) if range_.kind == "timestamp" else range_


def _moment(written: str | int, range_: TimeRange | AsOf, script: Script) -> int:
    if isinstance(written, int):
        return written
    try:
        return datetimes.parse_moment(written)
    except (ValueError, OverflowError):
        hint = "such as '2026-11-15T14:00:00'"
        raise script.error(f"`{written}` is not a timestamp", range_.span, hint) from None


def _join(left: From, clause: JoinClause, around: Surroundings, taken: set[str]) -> From:
    node, side, stream = _read(clause, around, True, taken)
    if any(other.alias == side.alias for other in left.scope.sides):
        message = f"`{display_name(side.alias)}` is there twice"
        raise around.script.error(message, clause.source.span, "give one of them another name with AS")
    columns = {**left.scope.columns, **columns_by_name(node.columns)}
    scope = replace(left.scope, columns=columns, sides=(*left.scope.sides, side))
    condition = resolve_predicate(clause.on, scope, "ON", "ON")
    streams = (*left.streams, stream)
    if clause.within is not None:
        near = _near(clause, left.scope.sides, side, streams, around.script)
        condition = Logical("AND", condition, near, type=BOOLEAN)
    return From(Pair(clause.kind, left.node, node, condition), scope, streams)


def _near(
    clause: JoinClause, before: tuple[Side, ...], side: Side, streams: tuple[bool, ...], script: Script
) -> Expression:
    """WITHIN as a condition: right's time between left's less `before` and left's plus `after`."""
    assert clause.within is not None
    if clause.within.grace is not None:
        raise script.error("GRACE PERIOD is for EMIT CHANGES: here nothing is waited for", clause.span, "leave it out")
    if streams != (True, True):
        raise script.error("WITHIN is for joining two streams", clause.span, "leave it out")
    back = clause.within.before.milliseconds
    ahead = clause.within.after.milliseconds if clause.within.after is not None else back
    left, right = (ColumnRef(one.names["ROWTIME"], type=BIGINT) for one in (before[0], side))
    low = Arithmetic("-", left, Literal(back, type=BIGINT), type=BIGINT)
    high = Arithmetic("+", left, Literal(ahead, type=BIGINT), type=BIGINT)
    return Between(right, low, high, type=BOOLEAN)
