"""Declared batch jobs of a project, `jobs/*.toml`: what they are, and in which order they run.

Every job can be run again without harm, so a job that was killed is simply run again. When they run is
`coordinate.job_schedule`, what became of them `coordinate.job_history`, and who runs them `coordinate.job_runner`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any, Literal

import msgspec

from headrace.config import Project
from headrace.coordinate.job_schedule import Schedule, parse_schedule
from headrace.errors import ConfigError
from headrace.toml_files import Problem, convert_settings, load_files, read_file, seconds_of

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
    job: list[dict[str, Any]] = []


HINT = "docs/howto/run-jobs.md says what a job can be"


@dataclass(frozen=True, slots=True)
class Declared:
    """A job, and where it stands."""

    job: Job
    file: str
    line: int

    def problem(self, message: str, hint: str | None = None) -> Problem:
        return Problem(self.job.name, self.file, self.line, message, hint)


@dataclass(frozen=True, slots=True)
class LoadedJobs:
    """What the files say. `jobs`: each after those it comes after."""

    jobs: tuple[Job, ...] = ()
    problems: tuple[Problem, ...] = ()
    by_file: Mapping[str, Sequence[Declared]] = field(default_factory=dict)
    """What each file said when it was last right."""


NO_JOBS = LoadedJobs()


def load_jobs(project: Project, before: LoadedJobs = NO_JOBS) -> LoadedJobs:
    """A file that is wrong keeps no other from being read, and its jobs are those it had `before`. Nor does
    a job that cannot be run, for what it comes after."""
    found, problems = load_files(job_files(project), _read)
    kept = {f"jobs/{file.name}": before.by_file.get(f"jobs/{file.name}", ()) for file in job_files(project)}
    by_file = {**kept, **dict(found)}
    unique, twice = _unique([declared for of_file in by_file.values() for declared in of_file])
    jobs, unordered = _ordered(unique)
    return LoadedJobs(jobs, (*problems, *twice, *unordered), by_file)


def _unique(declared: Sequence[Declared]) -> tuple[dict[str, Declared], list[Problem]]:
    jobs: dict[str, Declared] = {}
    problems = []
    for one in declared:
        first = jobs.setdefault(one.job.name, one)
        if first is not one:
            problems.append(
                one.problem(f"there are two jobs `{one.job.name}`", f"the other is {first.file}:{first.line}")
            )
    return jobs, problems


def _ordered(jobs: dict[str, Declared]) -> tuple[tuple[Job, ...], list[Problem]]:
    """Without those that wait for what there is not, or for each other, and what comes after them."""
    problems: list[Problem] = []
    while True:
        lost = [(one, name) for one in jobs.values() for name in one.job.after if name not in jobs]
        problems += [
            one.problem(f"job `{one.job.name}` comes after `{name}`, which does not exist") for one, name in lost
        ]
        circle: list[str] = []
        try:
            order = list(TopologicalSorter({one.job.name: one.job.after for one in jobs.values()}).static_order())
        except CycleError as error:
            circle = error.args[1]
            problems.append(jobs[circle[0]].problem(f"jobs wait for each other: {' → '.join(circle)}"))
        gone = {one.job.name for one, _ in lost} | set(circle)
        if not gone:
            return tuple(jobs[name].job for name in order), problems
        jobs = {name: one for name, one in jobs.items() if name not in gone}


def job_files(project: Project) -> list[Path]:
    return sorted((project.folder / "jobs").glob("*.toml"))


def _read(file: Path, text: str) -> tuple[str, list[Declared]] | Problem:
    """The jobs of a file, by how it is shown; or what is wrong with the first of them that is wrong."""
    shown, tables = f"jobs/{file.name}", read_file(file, text, _tables)
    if isinstance(tables, Problem):
        return tables
    declared = []
    for table, (line, part) in zip(tables, chain(_parts(text), repeat((1, ""))), strict=False):
        job = read_file(file, part, partial(_job, table))
        if isinstance(job, Problem):
            return replace(job, line=line + job.line - 1)
        declared.append(Declared(job, shown, line))
    return shown, declared


def _tables(file: Path, text: str) -> list[dict[str, Any]]:
    raw = tomllib.loads(text)
    return convert_settings(raw, _File, HINT).job


def _job(table: dict[str, Any], file: Path, text: str) -> Job:
    job = convert_settings(table, Job, HINT)
    _check(job)
    return job


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """Where each job begins, and its settings, as many lines further as they stand."""
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines) if line.replace(" ", "").startswith("[[job]]")]
    for begin, end in pairwise([*begins, len(lines)]):
        yield begin + 1, "\n".join(["", *lines[begin + 1 : end]])


def _check(job: Job) -> None:
    where = f"job `{job.name}`"
    if not job.name or len(job.name) > 100 or any(letter in job.name for letter in "/\\\0\n"):
        raise ConfigError(f"`{job.name[:40]}` is not a name for a job", hint="up to 100 letters, none a slash")
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
