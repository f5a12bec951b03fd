"""Statements as parsed: what was written, nothing looked up yet.

Every statement knows its `text` as written, its place `start:end` in the text given to `parse`, and that whole text
(`script`), so that errors found later, when it is planned, point at the right line. None of that takes part in
comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from headrace.sql.clauses import Duration, Element, Identifier, Property, Query, SourceKind
from headrace.sql.expressions import Expression, Span
from headrace.sql.script import Script
from headrace.types import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Base of all statements: where it stood."""

    text: str = field(default="", compare=False)
    start: int = field(default=0, compare=False, repr=False)
    end: int = field(default=0, compare=False, repr=False)
    script: Script = field(default_factory=lambda: Script(""), compare=False, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """What SET says before it, by the property's name in lower case."""


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
class CreateFunction(Position):
    """CREATE [OR REPLACE] FUNCTION name(…) RETURNS [TABLE] type LANGUAGE PYTHON AS $$ … $$; with `table` each call
    gives any number of rows of that type."""

    target: Identifier
    parameters: tuple[Element, ...]
    returns: DataType
    body: str
    table: bool = False
    or_replace: bool = False
    if_not_exists: bool = False

    @property
    def name(self) -> str:
        return self.target.name


@dataclass(frozen=True, slots=True)
class DropFunction(Position):
    """DROP FUNCTION [IF EXISTS] name."""

    target: Identifier
    if_exists: bool = False

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
    """EXPLAIN of a statement, or of a running query by its id: exactly one is set. With `extended` Spark's plan too."""

    statement: SelectStatement | CreateAsSelect | InsertSelect | None = None
    query: Identifier | None = None
    extended: bool = False

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
    | CreateFunction
    | DropFunction
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
