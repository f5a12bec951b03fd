"""Declared batch jobs of a project, `jobs/*.toml`: what they are, in which order they run, and what became of them.

Every job can be run again without harm, so a job that was killed is simply run again. What became of each stands in
`jobs.json` in the data folder.
"""

from __future__ import annotations

import fcntl
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal

import msgspec

from headrace.config import Project
from headrace.errors import ConfigError, Conflict

RECORD, LOCK = "jobs.json", "jobs.lock"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NEEDS = {"import": ("topic", "files"), "repair": ("view",), "check": ("view",), "export": ("query", "to")}


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table `[[job]]`."""

    name: str
    run: Literal["import", "repair", "check", "export"]
    after: list[str] = []
    """Jobs that must have succeeded before."""
    every: str = ""
    """How often, such as `15m`, `1h` or `1d`; empty for when it is asked to, or when one it comes after has run."""
    retries: int = 0
    """How often it is tried again, each time after a longer pause."""
    view: str = ""
    topic: str = ""
    files: list[str] = []
    """Relative to the project."""
    time: str = ""
    query: str = ""
    to: str = ""
    """The file to write, relative to the project: .csv, .json or .parquet. `{date}` and `{time}` stand for now, UTC."""


class JobRun(msgspec.Struct, frozen=True):
    """What became of a job the last time."""

    state: Literal["running", "done", "failed", "waiting"]
    started_ms: int
    finished_ms: int | None = None
    attempts: int = 0
    message: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    job: list[Job] = []


def load_jobs(project: Project) -> list[Job]:
    """All jobs, each after those it comes after. `ConfigError` says which file is wrong."""
    jobs: dict[str, Job] = {}
    for file in sorted((project.folder / "jobs").glob("*.toml")):
        for job in _load(file):
            if job.name in jobs:
                raise ConfigError(f"{file.name}: there are two jobs `{job.name}`")
            _check(job, file.name)
            jobs[job.name] = job
    for job in jobs.values():
        for name in job.after:
            if name not in jobs:
                raise ConfigError(f"job `{job.name}` comes after `{name}`, which does not exist")
    try:
        order = list(TopologicalSorter({job.name: job.after for job in jobs.values()}).static_order())
    except CycleError as error:
        raise ConfigError(f"jobs wait for each other: {' → '.join(error.args[1])}") from None
    return [jobs[name] for name in order]


def _load(file: Path) -> list[Job]:
    try:
        return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), _File).job
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{file.name}: {error}", hint="docs/howto/run-jobs.md says what a job can be") from error


def _check(job: Job, file: str) -> None:
    for name in _NEEDS[job.run]:
        if not getattr(job, name):
            raise ConfigError(f"{file}: job `{job.name}` needs `{name}`", hint=f"a job that runs `{job.run}` does")
    if job.every:
        seconds_of(job.every, f"{file}: job `{job.name}`")
    if job.to and Path(job.to).suffix not in (".csv", ".json", ".parquet"):
        raise ConfigError(f"{file}: job `{job.name}` writes `{job.to}`", hint="a .csv, .json or .parquet file")


def seconds_of(text: str, where: str = "every") -> int:
    """
    >>> seconds_of("15m")
    900
    """
    found = re.fullmatch(r"([1-9]\d{0,8})([smhd])", text)
    if found is None:
        raise ConfigError(f"{where}: `{text}` is not a time between runs", hint="such as 30s, 15m, 1h or 1d")
    return int(found[1]) * _UNITS[found[2]]


def wanted_jobs(jobs: Sequence[Job], names: Sequence[str]) -> list[Job]:
    """Those of the names, with all that they come after; all without a name."""
    by_name = {job.name: job for job in jobs}
    for name in names:
        if name not in by_name:
            known = ", ".join(by_name) or "none: jobs/*.toml holds them"
            raise ConfigError(f"job `{name}` does not exist", hint=f"there is {known}")
    needed = set(names or by_name)
    for job in reversed(jobs):
        if job.name in needed:
            needed |= set(job.after)
    return [job for job in jobs if job.name in needed]


def due_jobs(jobs: Sequence[Job], runs: Mapping[str, JobRun], now_ms: int) -> list[Job]:
    """Those whose time has come, and those that come after one of them. A clock that was set back delays nothing for
    ever: what seems to have begun in the future is due."""
    due: set[str] = set()
    for job in jobs:
        last = runs.get(job.name)
        elapsed = None if last is None else now_ms - last.started_ms
        timely = job.every and (elapsed is None or elapsed < 0 or elapsed >= seconds_of(job.every) * 1000)
        if timely or (not job.every and any(name in due for name in job.after)):
            due.add(job.name)
    return [job for job in jobs if job.name in due]


def job_body(job: Job, last: JobRun | None) -> dict[str, Any]:
    """As in the HTTP API's Job object."""
    return {
        "name": job.name,
        "run": job.run,
        "every": job.every or None,
        "after": list(job.after),
        "last": None if last is None else msgspec.to_builtins(last),
    }


def read_runs(data: Path) -> dict[str, JobRun]:
    try:
        return msgspec.json.decode((data / RECORD).read_bytes(), type=dict[str, JobRun])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def write_runs(data: Path, runs: Mapping[str, JobRun]) -> None:
    """As a whole: nobody ever reads half of it."""
    data.mkdir(parents=True, exist_ok=True)
    new = data / f"{RECORD}.new"
    with new.open("wb") as stream:
        stream.write(msgspec.json.encode(runs))
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(data / RECORD)


@contextmanager
def only_runner(data: Path) -> Iterator[None]:
    """One at a time: two would do the same twice, and mix up what became of it."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("another `headrace run` is running", hint="headrace run --list shows what it does") from None
        yield
