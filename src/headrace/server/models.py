"""What the API answers and takes, as types. `docs/reference/http-api.md` in a form that programs check."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
Sql = Annotated[str, msgspec.Meta(max_length=1_000_000)]


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answers have exactly these fields; requests may have no others, so that a misspelled one is noticed."""


class Optional(Model, frozen=True, omit_defaults=True):
    """A model whose fields at their default are left out."""


class Error(msgspec.Struct, frozen=True):
    """Errors may carry more, by their code."""

    code: str
    message: str
    detail: str | None = None
    hint: str | None = None


class ErrorAnswer(Model, frozen=True):
    error: Error


# Events and topics


class Rejected(Model, frozen=True):
    index: Count
    reason: str
    dead_letter: Count | None


class Place(Model, frozen=True):
    partition: Count
    offset: Count


class EventsAnswer(Model, frozen=True):
    accepted: Count
    duplicates: Count
    rejected: list[Rejected]
    position: Place | None
    positions: list[tuple[int, int, int]]
    shed: Count | msgspec.UnsetType = msgspec.UNSET
    """How many the collector left out, by its `[shed]`."""
    buffered: bool | msgspec.UnsetType = msgspec.UNSET
    """The log is away: they are durable where they were sent to, and will be in it."""
    view: ViewAnswer | msgspec.UnsetType = msgspec.UNSET
    """What the view that was asked says."""


class PartitionModel(Model, frozen=True):
    partition: Count
    start: Count
    end: Count


class ColumnModel(Model, frozen=True):
    name: str
    type: str


class KeyedColumn(Model, frozen=True):
    name: str
    type: str
    key: bool


Compression = Literal["none", "lz4", "zstd"]


class TopicConfigModel(Model, frozen=True):
    """0: as the log's own settings say."""

    retention_ms: Count
    retention_bytes: Count
    compacted: bool
    tombstone_ms: Count
    id_window_ms: Count
    segment_bytes: Count
    compression: Compression
    replication: Count
    min_insync: Count


class TopicModel(Model, frozen=True):
    name: str
    kind: Literal["typed", "raw"]
    role: Literal["events", "derived"]
    partitions: list[PartitionModel]
    records: Count
    bytes: Count
    segments: Count
    stream_time_ms: Count | None
    columns: list[KeyedColumn]
    timestamp: str | None
    retention_ms: Count
    retention_bytes: Count
    config: TopicConfigModel
    key_format: str
    value_format: str
    schema_versions: Count
    internal: bool
    sources: list[str]
    rate: float
    dead_letters: Count


class Topics(Model, frozen=True):
    topics: list[TopicModel]


class NewTopic(Model, frozen=True):
    name: str
    partitions: int = 1
    kind: Literal["typed", "raw"] = "typed"
    columns: str = ""
    retention_ms: Count | None = None
    retention_bytes: Count | None = None
    compacted: bool | None = None
    tombstone_ms: Count | None = None
    id_window_ms: Count | None = None
    segment_bytes: Count | None = None
    compression: Compression | None = None
    replication: Count | None = None
    min_insync: Count | None = None


class AlterTopic(Model, frozen=True):
    """What is left out stays as it is."""

    add_columns: str = ""
    retention_ms: Count | None = None
    retention_bytes: Count | None = None
    compacted: bool | None = None
    tombstone_ms: Count | None = None
    id_window_ms: Count | None = None
    segment_bytes: Count | None = None
    compression: Compression | None = None
    replication: Count | None = None
    min_insync: Count | None = None


class DeletedRecords(Model, frozen=True):
    partitions: list[PartitionModel]


class Reshape(Model, frozen=True):
    """One of the two."""

    split: Count | None = None
    merge: tuple[Count, Count] | None = None


class Reshaped(Model, frozen=True):
    topic: str
    closed: list[Count]
    opened: list[Count]


class WindowBounds(Model, frozen=True):
    start: int
    end: int


class Event(Optional, frozen=True, kw_only=True):
    partition: Count
    offset: Count
    arrival: Count | None
    time_ms: Count
    id: str | None
    key: dict[str, Any]
    value: dict[str, Any] | None
    rest: dict[str, Any] | None
    headers: dict[str, Any] | None
    window: WindowBounds | None = None


class Events(Model, frozen=True):
    events: list[Event]
    cut: bool
    """Whether there was more, but the limit or the size of an answer was reached."""


class NewRecord(Model, frozen=True):
    """A raw topic's key and value are text, `{"base64": …}`, or any other JSON as its text."""

    key: Any = None
    value: Any = None
    headers: dict[str, Any] | None = None
    partition: Count | None = None
    time: int | str | None = None
    id: str | None = None


class NewRecords(Model, frozen=True):
    records: list[NewRecord]


class RecordsPage(Model, frozen=True):
    records: list[Event]
    from_: str = msgspec.field(name="from")
    next: str
    starts: str
    ends: str
    cut: bool


# SQL


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


class StatementsAnswer(Optional, frozen=True, kw_only=True):
    results: list[ResultModel]
    error: dict[str, Any] | None = None


class QueryRequest(Model, frozen=True):
    sql: Sql
    limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    deadline_ms: Annotated[int, msgspec.Meta(gt=0)] | None = None
    settings: dict[str, str] = {}


class Through(Model, frozen=True):
    arrival: Count
    offsets: dict[str, int]
    id: str | None


class ReadModel(Model, frozen=True):
    """A stream or table that an answer is made of, and how far it was read."""

    name: str
    version: int | None
    through: Through


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


class FunctionModel(Model, frozen=True):
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
    functions: list[FunctionModel]
    sources: list[SourceColumns]


# Streams, tables, queries, views


class WindowModel(Model, frozen=True):
    kind: str
    size_ms: int
    advance_ms: int
    grace_ms: int


class SourceModel(Model, frozen=True):
    name: str
    kind: str
    topic: str
    columns: list[KeyedColumn]
    window: WindowModel | None
    statement: str
    query_id: str | None
    read_by: list[str]


class Sources(Model, frozen=True):
    sources: list[SourceModel]


class LastError(Model, frozen=True):
    message: str
    time_ms: int
    detail: str | None = None


class QueryModel(Model, frozen=True, kw_only=True):
    id: str
    statement: str
    sink: str
    sources: list[str]
    version: int
    wanted: Literal["running", "stopped"]
    state: Literal["starting", "running", "restarting", "stopped", "failed"]
    batch: int
    rows_per_second: float
    rows: Count
    changed_rows: Count
    lag: Count
    stream_time_ms: int | None
    late_rows: Count
    batch_ms: Count
    state_rows: Count
    state_bytes: Count
    restarts: Count
    last_error: LastError | None
    started_ms: Count
    updated_ms: Count


class QueryDetail(QueryModel, frozen=True, kw_only=True):
    plan: str | None
    spark_plan: str | None


class Queries(Model, frozen=True):
    queries: list[QueryModel]


class LateRow(Model, frozen=True):
    topic: str
    partition: Count
    offset: Count
    time_ms: Count
    stream_time_ms: int
    window_start_ms: int
    window_end_ms: int
    late_by_ms: int
    row: dict[str, Any]


class LateRows(Model, frozen=True):
    late: list[LateRow]
    total: Count


class ViewModel(Model, frozen=True):
    name: str
    version: int
    kind: Literal["table"]
    columns: list[KeyedColumn]
    window: WindowModel | None
    topic: str
    query_id: str | None
    rows: Count
    through: Through
    lag: Count
    rate: float


class Views(Model, frozen=True):
    views: list[ViewModel]


# Overview and health


class Node(Model, frozen=True):
    id: str
    kind: Literal["collector", "topic", "query", "view"]
    name: str
    rate: float
    state: Literal["ok", "lagging", "failed", "starting", "idle"]
    message: str | None
    detail: dict[str, Any]


class Edge(Model, frozen=True):
    from_: str = msgspec.field(name="from")
    to: str
    rate: float


class Totals(Model, frozen=True):
    events: Count
    rate: float
    dead_letters: Count
    late_rows: Count
    bytes: Count
    alerts: Count
    """Those that fire."""


class EngineModel(Model, frozen=True):
    state: str
    pid: int | None
    detail: str | None = None


class Overview(Model, frozen=True):
    project: str
    version: str
    uptime_s: float
    nodes: list[Node]
    edges: list[Edge]
    totals: Totals
    engine: EngineModel


class RatesHistory(Model, frozen=True):
    """Records a second at each of the times, oldest first, by a node's id; `total` is what arrived."""

    times_ms: list[int]
    rates: dict[str, list[float]]


class Health(Model, frozen=True):
    status: Literal["ok"]


class Ready(Model, frozen=True):
    waiting_for: list[str]
    problems: list[str] = []
    """What the pipelines' files get wrong, with its place. Does not keep the rest from being ready."""
