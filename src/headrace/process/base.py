"""What running a query promises.

A `QueryRunner` runs persistent queries in one Spark session. Each has its own checkpoint, its own failure and
its own back-off; a query that fails is started again, others go on. Results are in the log exactly once
(contracts 6 and 7). `BatchConflict` is not retried: the query is `failed` and says why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from headrace.sql.ask_plan import AskQuery
from headrace.sql.plan import PersistentQuery
from headrace.sql.source import Source
from headrace.store.cuts import Cut
from headrace.types import BIGINT, VARCHAR, Column

# The late ledger of a windowed query, `_late.<query id>`: what came too late, and for which window.
LATE_COLUMNS = (
    Column("TOPIC", VARCHAR),
    Column("PARTITION", BIGINT),
    Column("OFFSET", BIGINT),
    Column("STREAM_TIME", BIGINT),
    Column("WINDOW_START", BIGINT),
    Column("WINDOW_END", BIGINT),
    Column("LATE_BY", BIGINT),
    Column("ROW", VARCHAR),
)

QueryState = Literal["starting", "running", "stalled", "restarting", "stopped", "failed"]
"""`stalled`: it runs, input waits, and for `[spark] stall_seconds` nothing was read, finished or committed. It is
restarted, and stays stalled until it gets on."""


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """Everything needed to run a query. The sink's topic and, for windowed queries, `late_topic` exist already."""

    id: str
    version: int
    plan: PersistentQuery
    checkpoint: Path
    late_topic: str | None = None
    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By topic and partition: where to begin without a checkpoint; from the log's start where it does not say."""
    rows_per_second: int = 0
    """How much it may read; 0 is as much as it can."""
    until: Cut | None = None
    """What it must not read beyond. It rests there."""
    keys: int | None = None
    """How many keys a table has at the most, if another version of it is known."""
    known_until: int = 0
    """What arrived before this number has its results in the log already, which was copied: it is read for the state
    alone."""
    known_closed: int | None = None
    """And of results that wait for time those that this watermark closes."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A question for the engine. `sink` has a column for each of the answer's, in order; at most `limit` rows are
    written to its topic, which exists already."""

    id: str
    query: AskQuery
    sink: Source
    limit: int


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """What EXPLAIN EXTENDED asks of the engine: Spark's plan of a query that does not run. The answer is in the job's
    status."""

    id: str
    plan: PersistentQuery
    late_topic: str | None = None


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """The batch layer of a Lambda view: a plan over everything before `cut`, which is `ends` by topic and partition.
    Its rows go to the plan's sink, as one transaction that is known by `id`: run again, it changes nothing."""

    id: str
    plan: PersistentQuery
    ends: Mapping[str, Mapping[int, int]]
    cut: Cut
    late_topic: str | None = None
    begins: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By topic and partition: the first record there is; the log's first where it does not say."""
    from_beginning: frozenset[str] = frozenset()
    """Topics of tables that the stream meets: read as a whole, whatever stretch of the stream is."""
    folder: Path | None = None
    """Where what its stretches give is kept. Without one it has only one."""
    rows_per_second: int = 0
    """How much it may read; 0 is as much as it can."""
    epoch: str = ""
    """The log's, at the cut: what stretches of another one gave is worth nothing."""


class QueryError(msgspec.Struct, frozen=True):
    message: str
    time_ms: int
    detail: str | None = None
    recovered_ms: int | None = None
    """When the query first got further than where it failed; None while it has not."""


class QueryStatus(msgspec.Struct, frozen=True):
    """As in the HTTP API's Query object."""

    id: str
    state: QueryState
    batch: int = -1
    rows_per_second: float = 0.0
    rows: int = 0
    changed_rows: int = 0
    lag: int = 0
    stream_time_ms: int | None = None
    late_rows: int = 0
    batch_ms: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    restarts: int = 0
    last_error: QueryError | None = None
    started_ms: int = 0
    updated_ms: int = 0
    spark_plan: str | None = None
    read: dict[str, list[int]] = {}
    """By topic: the next offset of each partition."""


class QueryRunner(ABC):
    @abstractmethod
    def start(self, spec: QuerySpec) -> None:
        """Begin, or continue from its checkpoint. Returns at once; `statuses` tells how it goes. Starting
        twenty at once works."""

    @abstractmethod
    def stop(self, query_id: str) -> None:
        """Stop after the current batch; the checkpoint stays. Returns when it has stopped."""

    @abstractmethod
    def bound(self, query_id: str, until: Cut | None) -> bool:
        """Let a query read no further than this, from its next batch on; None for no bound. False if it has to be
        started anew for that."""

    @abstractmethod
    def forget(self, query_id: str) -> None:
        """Stop it, and remove its checkpoint."""

    @abstractmethod
    def statuses(self) -> list[QueryStatus]: ...

    @abstractmethod
    def close(self) -> None: ...
