"""What statements are made of, as written: names, durations, properties, columns, the clauses of a SELECT."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from headrace.sql.expressions import Expression, OrderItem, Span
from headrace.types import DataType

SourceKind = Literal["stream", "table"]


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type of CREATE TYPE by its name, where a statement was parsed but its types not looked up yet. It stands where
    a `DataType` does, only until `named_types.known_type` has replaced it."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        # In quotes it is never one of the built-in types.
        return "`" + self.name.replace("`", "``") + "`"


UNIT_MS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}


@dataclass(frozen=True, slots=True)
class Identifier:
    """A name as SQL means it: upper case unless it was quoted."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Duration:
    """`10 SECONDS`; the unit is singular."""

    amount: int
    unit: str

    @property
    def milliseconds(self) -> int:
        return self.amount * UNIT_MS[self.unit]


@dataclass(frozen=True, slots=True)
class Property:
    """`NAME = value` of a WITH clause. The name is in upper case; a bare word as value is its text as written."""

    name: str
    value: str | int | bool | Any
    span: Span | None = field(default=None, compare=False, repr=False)
    value_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Element:
    """A column of CREATE STREAM or CREATE TABLE. `role` is `key` for KEY, `primary` for PRIMARY KEY, `headers` for
    HEADERS and for HEADER('name'), whose name is `header`. `type` may hold a `TypeName`."""

    column: Identifier
    type: DataType
    role: Literal["key", "primary", "headers"] | None = None
    header: str | None = None


@dataclass(frozen=True, slots=True)
class SelectItem:
    expression: Expression
    alias: Identifier | None = None


@dataclass(frozen=True, slots=True)
class SelectAll:
    """`*` or `source.*`."""

    source: Identifier | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SelectFields:
    """`struct->*`: every field of a struct."""

    struct: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WithinClause:
    """`WITHIN 1 HOUR` or `WITHIN (1 HOUR, 2 HOURS)`, `[GRACE PERIOD …]`; one duration is for both directions."""

    before: Duration
    after: Duration | None = None
    grace: Duration | None = None


@dataclass(frozen=True, slots=True)
class TimeRange:
    """`BETWEEN low AND high`: records by their event time, both bounds included. A timestamp as text, or
    milliseconds."""

    low: str | int
    high: str | int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """`OFFSETS BETWEEN low AND high`, where `partition` is None, or `OFFSETS (0 BETWEEN low AND high, …)`: both bounds
    are included. Partitions that are not named are not read."""

    bounds: tuple[tuple[int | None, int, int], ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AsOf:
    """`AS OF TIMESTAMP …`, `AS OF OFFSET …` or `AS OF ARRIVAL …`: a table as it was. A moment as text or milliseconds;
    the next offset of the changelog, one per partition; an arrival number of the log."""

    kind: Literal["timestamp", "offset", "arrival"]
    at: str | int | tuple[int, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


ReadRange: TypeAlias = TimeRange | OffsetRange | AsOf


@dataclass(frozen=True, slots=True)
class JoinClause:
    """`query` and `range` are as in `Relation`."""

    kind: Literal["inner", "left", "right", "full"]
    source: Identifier
    on: Expression
    alias: Identifier | None = None
    within: WithinClause | None = None
    query: Query | None = None
    range: ReadRange | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Relation:
    """What FROM names, and what is joined to it, from left to right. A subquery is `query`; `source` is then the name
    it was given."""

    source: Identifier
    alias: Identifier | None = None
    joins: tuple[JoinClause, ...] = ()
    query: Query | None = None
    range: ReadRange | None = None


@dataclass(frozen=True, slots=True)
class CommonTable:
    """`WITH name AS (SELECT …)`."""

    name: Identifier
    query: Query


@dataclass(frozen=True, slots=True)
class WindowClause:
    """`WINDOW TUMBLING (SIZE …)`, `WINDOW HOPPING (SIZE …, ADVANCE BY …)`, or `WINDOW SESSION (…)`, whose `size` is the
    gap."""

    kind: Literal["tumbling", "hopping", "session"]
    size: Duration
    advance: Duration | None = None
    retention: Duration | None = None
    grace: Duration | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT, wherever it stands."""

    items: tuple[SelectItem | SelectAll | SelectFields, ...]
    relation: Relation
    where: Expression | None = None
    window: WindowClause | None = None
    group_by: tuple[Expression, ...] = ()
    having: Expression | None = None
    order_by: tuple[OrderItem, ...] = ()
    emit: Literal["changes", "final"] | None = None
    limit: int | None = None
    partition_by: tuple[Expression, ...] = ()
    distinct: bool = False
    offset: int | None = None
    every: Duration | None = None
    """EMIT CHANGES EVERY …: of each key's changes the newest, that often."""
    common: tuple[CommonTable, ...] = ()
    refresh: Duration | None = None
    """REFRESH EVERY …: how often a Lambda view's batch layer is computed again."""
    span: Span | None = field(default=None, compare=False, repr=False)
    group_span: Span | None = field(default=None, compare=False, repr=False)
    """Where GROUP BY or PARTITION BY stands."""
