"""Declared batch jobs of a project, `jobs/*.toml`: what they are, and in which order they run.

Every job can be run again without harm, so a job that was killed is simply run again. When they run is
`coordinate.job_schedule`, what became of them `coordinate.job_history`, and who runs them `coordinate.job_runner`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Literal

import msgspec

from headrace.config import Project
from headrace.coordinate.job_schedule import Schedule, parse_schedule
from headrace.errors import ConfigError
from headrace.toml_files import seconds_of

Kind = Literal["import", "repair", "check", "refresh", "export"]

NEEDS: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "import": (("topic",), ("files",)),
    "repair": (("view",),),
    "check": (("view",),),
    "refresh": (("view",),),
    "export": (("query", "view", "topic"), ("to",)),
}
"""Of each kind of job the fields it needs; of several in one place exactly one. `cli.job_work` does the work."""


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table `[[job]]`."""

    name: str
    run: Kind
    after: list[str] = []
    """Jobs that must have succeeded before."""
    every: str = ""
    """How often, such as `15m`, `1h` or `1d`."""
    schedule: str = ""
    """Or when, as in cron: minute, hour, day of the month, month, day of the week."""
    zone: str = "UTC"
    """In whose time the schedule is, such as `Europe/Berlin`."""
    missed: Literal["run", "skip"] = "run"
    """What becomes of times at which no server ran: made up for once, or left out."""
    retries: int = 0
    """How often it is tried again, each time after a longer pause."""
    timeout: str = ""
    """How long one try may take, such as `1h`; empty for as long as it takes."""
    view: str = ""
    topic: str = ""
    files: list[str] = []
    """Relative to the project."""
    time: str = ""
    query: str = ""
    to: str = ""
    """The file to write, relative to the project: .csv, .json or .parquet; `{date}` and `{time}` stand for now, UTC. Of
    a topic, the folder for its files."""
    format: Literal["parquet", "csv", "json"] = "parquet"
    """Of the files of a topic."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    job: list[Job] = []


def load_jobs(project: Project) -> list[Job]:
    """All jobs, each after those it comes after. `ConfigError` says which file is wrong."""
    jobs: dict[str, Job] = {}
    for file in job_files(project):
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


def job_files(project: Project) -> list[Path]:
    return sorted((project.folder / "jobs").glob("*.toml"))


def _load(file: Path) -> list[Job]:
    try:
        return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), _File).job
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{file.name}: {error}", hint="docs/howto/run-jobs.md says what a job can be") from error


def _check(job: Job, file: str) -> None:
    where = f"{file}: job `{job.name}`"
    if not job.name or len(job.name) > 100 or any(letter in job.name for letter in "/\\\0\n"):
        raise ConfigError(f"{file}: `{job.name[:40]}` is not a name for a job", hint="up to 100 letters, none a slash")
    for names in NEEDS[job.run]:
        given = [name for name in names if getattr(job, name)]
        if len(given) != 1:
            wanted = " or ".join(f"`{name}`" for name in names)
            raise ConfigError(f"{where} needs {wanted}", hint=f"a job that runs `{job.run}` does")
    if job.every and job.schedule:
        raise ConfigError(f"{where} has `every` and `schedule`", hint="one of both says when it runs")
    if job.timeout:
        seconds_of(job.timeout, where)
    schedule_of(job, where)
    if job.run == "export" and not job.topic and Path(job.to).suffix not in (".csv", ".json", ".parquet"):
        raise ConfigError(f"{where} writes `{job.to}`", hint="a .csv, .json or .parquet file")


def schedule_of(job: Job, where: str = "") -> Schedule | None:
    """When it runs by itself; None if it does not."""
    return parse_schedule(job.every, job.schedule, job.zone, where or f"job `{job.name}`")


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
