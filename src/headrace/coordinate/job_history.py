"""What became of jobs: every run, as records of the topic `_jobs`. A run is written before it begins, so that nobody
begins it twice, and again with each thing that becomes of it; its last record says how it is."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa

from headrace.log.base import TIME, Append, Log, TopicSpec
from headrace.log.schema import arrow_type
from headrace.structs import ready
from headrace.types import BIGINT, VARCHAR, Column

JOBS_TOPIC = "_jobs"
_COLUMNS = (
    Column("JOB", VARCHAR),
    Column("NUMBER", BIGINT),
    Column("STATE", VARCHAR),
    Column("WHY", VARCHAR),
    Column("STARTED_MS", BIGINT),
    Column("FINISHED_MS", BIGINT),
    Column("ATTEMPTS", BIGINT),
    Column("MESSAGE", VARCHAR),
    Column("LOG", VARCHAR),
)
JOBS_SPEC = TopicSpec(JOBS_TOPIC, value=_COLUMNS, role="derived")
KEPT = 100
"""Runs of a job that are remembered; the log has all of them."""

State = Literal["queued", "running", "done", "failed", "waiting", "cancelled", "interrupted"]
Why = Literal["schedule", "after", "asked", "again"]
UNDER_WAY: tuple[State, ...] = ("queued", "running")


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job, or what is to be one."""

    job: str
    number: int
    state: State
    why: Why
    started_ms: int
    """When it began; of one that is queued or waiting, when it was to."""
    finished_ms: int | None = None
    attempts: int = 0
    message: str = ""
    log: str = ""
    """The last lines it wrote."""
    begun: int = -1
    """Where the record stands that it began with: what came before what, whatever the clock says."""
    place: int = -1
    """The same of its last record."""


class JobHistory:
    """Follows the log; every answer is caught up with it. Safe to use from several threads."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._next = 0
        self._runs: dict[str, deque[JobRun]] = {}
        log.create_topic(JOBS_SPEC)

    def runs(self, job: str) -> list[JobRun]:
        """Newest first."""
        with self._lock:
            self._catch_up()
            return list(reversed(self._runs.get(job, ())))

    def last(self, job: str) -> JobRun | None:
        with self._lock:
            self._catch_up()
            runs = self._runs.get(job)
            return runs[-1] if runs else None

    def under_way(self) -> list[JobRun]:
        with self._lock:
            self._catch_up()
            return [run for runs in self._runs.values() for run in runs if run.state in UNDER_WAY]

    def write(self, run: JobRun, now_ms: int) -> None:
        """Durable when it returns."""
        columns = {c.name: pa.array([getattr(run, c.name.lower())], arrow_type(c.type)) for c in _COLUMNS}
        columns[TIME] = pa.array([now_ms], pa.int64())
        self._log.append([Append(JOBS_TOPIC, pa.record_batch(columns))]).result()

    def _catch_up(self) -> None:
        ends = self._log.snapshot().ends.get(JOBS_TOPIC)
        if not ends or ends[0].end <= self._next:
            return
        names = [column.name for column in _COLUMNS]
        for records in self._log.read(JOBS_TOPIC, 0, max(self._next, ends[0].start), ends[0].end, names):
            for row, offset in zip(records.batch.to_pylist(), records.each_offset(), strict=True):
                self._add({column.name.lower(): row[column.name] for column in _COLUMNS}, offset)
        self._next = ends[0].end

    def _add(self, fields: dict[str, Any], place: int) -> None:
        runs = self._runs.setdefault(fields["job"], deque(maxlen=KEPT))
        for at, known in enumerate(runs):
            if known.number == fields["number"]:
                begins = known.state == "queued" and fields["state"] == "running"
                runs[at] = JobRun(**fields, begun=place if begins else known.begun, place=place)
                return
        runs.append(JobRun(**fields, begun=place, place=place))


class _Old(msgspec.Struct):
    state: Literal["running", "done", "failed", "waiting"]
    started_ms: int
    finished_ms: int | None = None
    attempts: int = 0
    message: str = ""


def take_over(data: Path, history: JobHistory) -> None:
    """What an older version wrote into a file of its own: when each job ran last, so that none runs too soon."""
    file = data / "jobs.json"
    try:
        old = msgspec.json.decode(file.read_bytes(), type=ready(dict[str, _Old]))
    except (FileNotFoundError, msgspec.DecodeError):
        return
    for job, run in old.items():
        if history.last(job) is None:
            known = JobRun(
                job=job,
                number=1,
                state="interrupted" if run.state == "running" else run.state,
                why="asked",
                started_ms=run.started_ms,
                finished_ms=run.finished_ms,
                attempts=run.attempts,
                message=run.message,
            )
            history.write(known, run.started_ms)
    file.unlink()
