"""What the API answers about whether a number is right."""

from __future__ import annotations

from typing import Any, Literal

from headrace.server.models.base import Count, Model, Optional


class BoundsModel(Model, frozen=True):
    start_ms: int
    end_ms: int


class RecordModel(Optional, frozen=True, kw_only=True):
    """A record that a row is made of. `below`: of a record that a query wrote, what that one is made of."""

    source: str
    topic: str
    partition: int
    offset: int
    arrival: int | None
    """Null on a log that gives no arrival numbers."""
    time_ms: int
    value: dict[str, Any]
    below: BelowModel | None = None


class BelowModel(Model, frozen=True):
    query_id: str
    records: Count
    newest: list[RecordModel]
    same: bool


class LateModel(Model, frozen=True):
    topic: str
    partition: int | None
    offset: int | None
    time_ms: int
    stream_time_ms: int
    late_by_ms: int
    row: Any


class DeadModel(Model, frozen=True):
    offset: Count
    time_ms: int
    topic: str
    reason: str
    text: str


class IncludedModel(Model, frozen=True):
    """The row's address: what of the log it includes."""

    arrival: Count | None
    """Null on a log that gives no arrival numbers: the offsets of the inputs say it."""
    inputs: dict[str, dict[str, int]]
    changelog: dict[str, int]


class RevisionModel(Model, frozen=True):
    """A row as it was and as it is, with what came too late. Null where there is none."""

    key: dict[str, Any]
    window: BoundsModel
    old: dict[str, Any] | None
    new: dict[str, Any] | None
    late: Count
    time_ms: int


class Revisions(Model, frozen=True):
    revisions: list[RevisionModel]
    total: Count


class RepairRequest(Model, frozen=True):
    start: str | None = None
    end: str | None = None
    dry_run: bool = False
    job: bool = False
    """Answer with the job (202), and do not wait for its end."""


class RepairAnswer(Model, frozen=True):
    view: str
    windows: Count
    late: Count
    revised: Count
    revisions: list[RevisionModel]
    waiting: Count
    missing: list[str]
    dry_run: bool


class DriftModel(Model, frozen=True):
    key: dict[str, Any]
    window: BoundsModel | None
    served: dict[str, Any] | None
    recomputed: dict[str, Any] | None
    time_ms: int


class CheckAnswer(Model, frozen=True):
    view: str
    version: int
    rounds: Count
    rows: Count
    skipped: Count
    passes: Count
    last_ms: int
    drifted: Count
    drift: list[DriftModel]


class ChecksAnswer(Model, frozen=True):
    checks: list[CheckAnswer]


class CareHistory(Model, frozen=True):
    """How right a view was, at each of the times, oldest first: rows computed again and records that came too late,
    both in all, and rows that differed then."""

    times_ms: list[int]
    checked: list[Count]
    drifted: list[Count]
    late: list[Count]


class KeylessModel(Model, frozen=True):
    columns: list[str]
    """Of the key: those that are NULL."""
    grouped: bool
    """Whether it is a GROUP BY that leaves such records out, or the table."""
    records: Count
    newest: RecordModel | None


class WhyAnswer(Model, frozen=True, kw_only=True):
    view: str
    version: int
    query_id: str | None
    key: dict[str, Any]
    window: BoundsModel | None
    row: dict[str, Any] | None
    recomputed: dict[str, Any] | None
    verdict: Literal["equal", "different", "unknown"]
    differs: list[str]
    records: Count
    first: RecordModel | None
    last: RecordModel | None
    page: list[RecordModel]
    late: list[LateModel]
    late_total: Count
    dead: list[DeadModel]
    dead_total: Count
    through: IncludedModel
    looked_at: Count
    missing: list[str]
    took_ms: float
    revision: RevisionModel | None
    left_out: list[RecordModel]
    left_out_total: Count
    condition: str
    expired: bool
    keyless: KeylessModel | None
    """Of who asks for a key that is NULL: the records that have none."""
    unread: dict[str, Count]
    """By topic: records that have yet to be read, and may change the row."""


class CareJobModel(Optional, frozen=True, kw_only=True):
    """A repair, a check or an explanation that takes long. What it found so far is there also if it ended early."""

    id: Count
    kind: Literal["repair", "check", "why"]
    view: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    done: Count
    all: int | None
    """Of so many; null if that is not known."""
    unit: str
    """What `done` and `all` count."""
    message: str
    """What was done, in words."""
    started_ms: int
    ended_ms: int | None
    error: dict[str, Any] | None = None
    repair: RepairAnswer | None = None
    check: CheckAnswer | None = None
    why: WhyAnswer | None = None


class CareJobs(Model, frozen=True):
    jobs: list[CareJobModel]
