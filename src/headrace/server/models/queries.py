"""Streams, tables, running queries and the views they keep."""

from __future__ import annotations

from typing import Any, Literal

from headrace.server.models.base import Count, KeyedColumn, Model
from headrace.server.models.sql import Through


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
    recovered_ms: int | None = None


class QueryModel(Model, frozen=True, kw_only=True):
    id: str
    statement: str
    sink: str
    sources: list[str]
    version: int
    """Of the stream or table that it writes."""
    version_state: str
    """`serving`, or what that version is instead: being built, or kept for a rollback."""
    wanted: Literal["running", "stopped"]
    state: Literal["starting", "running", "stalled", "restarting", "stopped", "failed"]
    batch: int
    rows_per_second: float
    rows: Count
    counts: Literal["records", "offsets"]
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
