"""Statements as parsed: what was written, nothing looked up yet.

Every statement knows its `text` as written, its place `start:end` in the text given to `parse`, and that whole text
(`script`), so that errors found later, when it is planned, point at the right line. None of that takes part in
comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from headrace.sql.expressions import Expression, Span
from headrace.sql.script import Script
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
class JoinClause:
    kind: Literal["inner", "left", "right", "full"]
    source: Identifier
    on: Expression
    alias: Identifier | None = None
    within: WithinClause | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Relation:
    """What FROM names, and what is joined to it, from left to right."""

    source: Identifier
    alias: Identifier | None = None
    joins: tuple[JoinClause, ...] = ()


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
class OrderItem:
    expression: Expression
    descending: bool = False


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
    span: Span | None = field(default=None, compare=False, repr=False)
    group_span: Span | None = field(default=None, compare=False, repr=False)
    """Where GROUP BY or PARTITION BY stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Base of all statements: where it stood."""

    text: str = field(default="", compare=False)
    start: int = field(default=0, compare=False, repr=False)
    end: int = field(default=0, compare=False, repr=False)
    script: Script = field(default_factory=lambda: Script(""), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CreateSource(Position):
    """CREATE [SOURCE] STREAM|TABLE name (…) WITH (…)."""

    kind: SourceKind
    target: Identifier
    elements: tuple[Element, ...] = ()
    properties: tuple[Property, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    read_only: bool = False

    @property
    def name(self) -> str:
        return self.target.name


@dataclass(frozen=True, slots=True)
class CreateAsSelect(Position):
    """CREATE STREAM|TABLE name [WITH (…)] AS SELECT …."""

    kind: SourceKind
    target: Identifier
    query: Query
    properties: tuple[Property, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False

    @property
    def name(self) -> str:
        return self.target.name


@dataclass(frozen=True, slots=True)
class InsertSelect(Position):
    """INSERT INTO name [WITH (…)] SELECT …."""

    target: Identifier
    query: Query
    properties: tuple[Property, ...] = ()

    @property
    def name(self) -> str:
        return self.target.name


@dataclass(frozen=True, slots=True)
class AlterSource(Position):
    """ALTER STREAM|TABLE name ADD [COLUMN] column type, …."""

    kind: SourceKind
    target: Identifier
    elements: tuple[Element, ...]

    @property
    def name(self) -> str:
        return self.target.name


@dataclass(frozen=True, slots=True)
class CreateType(Position):
    """CREATE TYPE [IF NOT EXISTS] name AS type."""

    target: Identifier
    type: DataType
    if_not_exists: bool = False

    @property
    def name(self) -> str:
        return self.target.name


@dataclass(frozen=True, slots=True)
class DropType(Position):
    """DROP TYPE [IF EXISTS] name."""

    target: Identifier
    if_exists: bool = False

    @property
    def name(self) -> str:
        return self.target.name


@dataclass(frozen=True, slots=True)
class InsertValues(Position):
    """INSERT INTO name [(columns)] VALUES (…), …; one tuple of expressions per row."""

    target: Identifier
    columns: tuple[Identifier, ...]
    rows: tuple[tuple[Expression, ...], ...]
    row_spans: tuple[Span | None, ...] = field(default=(), compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.target.name


@dataclass(frozen=True, slots=True)
class SelectStatement(Position):
    """A pull query, or with EMIT CHANGES a push query."""

    query: Query

    @property
    def push(self) -> bool:
        return self.query.emit is not None


ShowSubject = Literal["STREAMS", "TABLES", "TOPICS", "QUERIES", "FUNCTIONS", "PROPERTIES", "TYPES", "VARIABLES"]


@dataclass(frozen=True, slots=True)
class Show(Position):
    """SHOW|LIST STREAMS|TABLES|TOPICS|QUERIES|FUNCTIONS|PROPERTIES|TYPES|VARIABLES [EXTENDED]; `all` for SHOW ALL
    TOPICS."""

    subject: ShowSubject
    extended: bool = False
    all: bool = False


@dataclass(frozen=True, slots=True)
class Describe(Position):
    """DESCRIBE [EXTENDED] name."""

    target: Identifier
    extended: bool = False

    @property
    def name(self) -> str:
        return self.target.name


@dataclass(frozen=True, slots=True)
class DescribeFunction(Position):
    """DESCRIBE FUNCTION name."""

    function: Identifier

    @property
    def name(self) -> str:
        return self.function.name


@dataclass(frozen=True, slots=True)
class Explain(Position):
    """EXPLAIN of a statement, or of a running query by its id: exactly one is set."""

    statement: SelectStatement | CreateAsSelect | InsertSelect | None = None
    query: Identifier | None = None

    @property
    def query_id(self) -> str | None:
        return self.query.name if self.query else None


@dataclass(frozen=True, slots=True)
class Drop(Position):
    """DROP STREAM|TABLE [IF EXISTS] name [DELETE TOPIC]."""

    kind: SourceKind
    target: Identifier
    if_exists: bool = False
    delete_topic: bool = False

    @property
    def name(self) -> str:
        return self.target.name


@dataclass(frozen=True, slots=True)
class Terminate(Position):
    """TERMINATE id, or TERMINATE ALL, where `query` is None."""

    query: Identifier | None = None

    @property
    def query_id(self) -> str | None:
        return self.query.name if self.query else None


@dataclass(frozen=True, slots=True)
class Print(Position):
    """PRINT 'topic' [FROM BEGINNING] [INTERVAL n] [LIMIT n]."""

    topic: str
    from_beginning: bool = False
    interval: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Pause(Position):
    """PAUSE id, or PAUSE ALL, where `query` is None; with `resume` RESUME."""

    query: Identifier | None = None
    resume: bool = False

    @property
    def query_id(self) -> str | None:
        return self.query.name if self.query else None


@dataclass(frozen=True, slots=True)
class Define(Position):
    """DEFINE name = 'value'; UNDEFINE name, where `value` is None. What follows in the text sees it already."""

    variable: Identifier
    value: str | None = None


@dataclass(frozen=True, slots=True)
class SetProperty(Position):
    """SET 'name' = 'value'; UNSET 'name', where `value` is None."""

    property: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class RunScript(Position):
    """RUN SCRIPT 'path'."""

    path: str


@dataclass(frozen=True, slots=True)
class AssertTopic(Position):
    """ASSERT [NOT EXISTS] TOPIC name [WITH (…)] [TIMEOUT …]."""

    topic: str
    properties: tuple[Property, ...] = ()
    exists: bool = True
    timeout: Duration | None = None


@dataclass(frozen=True, slots=True)
class AssertSchema(Position):
    """ASSERT [NOT EXISTS] SCHEMA [SUBJECT name] [ID n] [TIMEOUT …]."""

    subject: str | None = None
    id: int | None = None
    exists: bool = True
    timeout: Duration | None = None


@dataclass(frozen=True, slots=True)
class AssertSource(Position):
    """ASSERT STREAM|TABLE name (…) [WITH (…)]: it is there, with these columns and properties."""

    kind: SourceKind
    target: Identifier
    elements: tuple[Element, ...] = ()
    properties: tuple[Property, ...] = ()

    @property
    def name(self) -> str:
        return self.target.name


Statement: TypeAlias = (
    CreateSource
    | CreateAsSelect
    | InsertSelect
    | AlterSource
    | CreateType
    | DropType
    | Pause
    | Define
    | SetProperty
    | RunScript
    | AssertTopic
    | AssertSchema
    | AssertSource
    | InsertValues
    | SelectStatement
    | Show
    | Describe
    | DescribeFunction
    | Explain
    | Drop
    | Terminate
    | Print
)
