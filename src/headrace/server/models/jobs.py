"""What the API answers about jobs."""

from __future__ import annotations

from headrace.coordinate.job_history import State, Why
from headrace.coordinate.jobs import Kind
from headrace.server.models.base import Count, Model


class JobRunModel(Model, frozen=True):
    number: Count
    state: State
    why: Why
    started_ms: int
    finished_ms: int | None
    attempts: Count
    message: str
    """What became of it, or how far it is."""
    log: str


class JobModel(Model, frozen=True):
    name: str
    run: Kind
    about: str
    """What it is about: a view, a topic, a query."""
    every: str | None
    schedule: str | None
    zone: str
    missed: str
    after: list[str]
    retries: Count
    next_ms: int | None
    last: JobRunModel | None


class JobDetail(JobModel, frozen=True):
    runs: list[JobRunModel]
    """Newest first; those that are remembered."""


class Jobs(Model, frozen=True):
    jobs: list[JobModel]
    problem: str | None
    """What is wrong with files, if anything is: their jobs are then as they were before."""


class RunJobsRequest(Model, frozen=True):
    """All jobs without names."""

    jobs: list[str] = []


class AskedRun(Model, frozen=True):
    job: str
    number: Count


class RunJobsAnswer(Model, frozen=True):
    """With what the jobs come after."""

    runs: list[AskedRun]
    problem: str | None = None
    """What is wrong with files, if anything is: their jobs are as they were before, if they were there."""
