"""Statements, questions and their answers, and what an editor asks."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from headrace.server.models.base import ColumnModel, Count, Model, Optional

Sql = Annotated[str, msgspec.Meta(max_length=1_000_000)]


class StatementsRequest(Model, frozen=True):
    sql: Sql
    variables: dict[str, str] = {}
    settings: dict[str, str] = {}


class PlanModel(Model, frozen=True):
    title: str
    details: list[tuple[str, str]]
    inputs: list[PlanModel]


class ResultModel(Optional, frozen=True, kw_only=True):
    statement: str
    kind: str
    message: str
    columns: list[ColumnModel] | None = None
    rows: list[list[Any]] | None = None
    text: str | None = None
    query_id: str | None = None
    plan: PlanModel | None = None
    token: str | None = None
    """Of INSERT: what a query takes as `after`, to include the rows."""


class StatementsAnswer(Optional, frozen=True, kw_only=True):
    results: list[ResultModel]
    error: dict[str, Any] | None = None


class QueryRequest(Model, frozen=True):
    sql: Sql
    limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    deadline_ms: Annotated[int, msgspec.Meta(gt=0)] | None = None
    settings: dict[str, str] = {}
    stream: bool = False
    """Send the rows of a pull query while they are read, as many as there are: lines of JSON, or an Arrow stream."""
    after: list[str] | str = []
    """What the answer has to include: `token`s of writes, event ids of feeds (VIEW/ID), or `now`."""
    wait_ms: Annotated[int, msgspec.Meta(gt=0, le=600_000)] | None = None
    """How long to wait for that; by default as long as a query may take."""


class Through(Model, frozen=True):
    arrival: Count
    offsets: dict[str, int]
    id: str | None


class AsOfModel(Model, frozen=True):
    """Which moment rows that were asked for AS OF TIMESTAMP are of."""

    asked_ms: int
    represents_ms: int | None
    """The newest event time in the rows; null if there was nothing yet."""
    exact: bool
    hint: str | None
    """If they are not exact: why, and how to get exact ones."""


class ReadModel(Optional, frozen=True):
    """A stream or table that an answer is made of, and how far it was read."""

    name: str
    version: int | None
    through: Through
    as_of: AsOfModel | None = None


class ViewAnswer(Model, frozen=True):
    """The answer to events that were sent with a question."""

    included: bool
    """Whether the view has the events in it. If not, it did not come to that in time: the events are stored all the
    same."""
    rows: QueryAnswer | None


class QueryAnswer(Model, frozen=True):
    columns: list[ColumnModel]
    rows: list[list[Any]]
    view: str | None
    version: int | None
    through: Through | None
    truncated: bool
    took_ms: float
    reads: list[ReadModel]


class ValidateRequest(Model, frozen=True):
    sql: Sql


class StatementSpan(Model, frozen=True):
    kind: str
    start: Count
    end: Count


class ValidateAnswer(Optional, frozen=True, kw_only=True):
    ok: bool
    statements: list[StatementSpan] | None = None
    error: dict[str, Any] | None = None


class KnownFunction(Model, frozen=True):
    name: str
    kind: str
    signature: str
    summary: str


class SourceColumns(Model, frozen=True):
    name: str
    kind: str
    columns: list[ColumnModel]


class Completions(Model, frozen=True):
    keywords: list[str]
    functions: list[KnownFunction]
    sources: list[SourceColumns]
