"""`headrace run`: the project's declared batch jobs."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api, open_project
from headrace.cli.output import local_time, print_json, print_table
from headrace.config import Project
from headrace.errors import HeadraceError, UsageError

if TYPE_CHECKING:
    from headrace.cli.api import Api
    from headrace.coordinate.jobs import Job, JobRun

LOOK_S = 1.0
LONGEST_PAUSE_S = 300.0
MOST_ROWS = 1_000_000


def register(app: typer.Typer) -> None:
    app.command("run", epilog="Example:  headrace run nightly")(run)


def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="[JOB]…", help="Jobs; all of jobs/*.toml.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show the jobs and what became of them.")] = False,
    schedule: Annotated[bool, typer.Option("--schedule", help="Stay, and run what is due, until stopped.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run declared batch jobs, each after those it comes after. Exits with 1 if one failed."""
    from headrace.coordinate.jobs import due_jobs, load_jobs, only_runner, read_runs, wanted_jobs

    found = open_project(project)
    jobs = wanted_jobs(load_jobs(found), names or ())
    if listed:
        _list(jobs, read_runs(found.data), as_json)
        return
    if not jobs:
        raise UsageError("there are no jobs", hint="jobs/*.toml holds them: docs/howto/run-jobs.md")
    runner = Runner(found, url, key, quiet=as_json)
    with only_runner(found.data):
        if schedule:
            while True:
                runner.run(due_jobs(jobs, runner.runs, runner.now_ms()))
                time.sleep(LOOK_S)
        runner.run(jobs)
    if as_json:
        _list(jobs, runner.runs, as_json)
    if any(runner.runs[job.name].state != "done" for job in jobs):
        raise typer.Exit(1)


def _list(jobs: list[Job], runs: dict[str, JobRun], as_json: bool) -> None:
    if as_json:
        from headrace.coordinate.jobs import job_body

        print_json({"jobs": [job_body(job, runs.get(job.name)) for job in jobs]})
        return
    rows = []
    for job in jobs:
        last = runs.get(job.name)
        when = local_time(last.started_ms) if last else "-"
        state, message = (last.state, last.message) if last else ("-", "")
        rows.append([job.name, job.run, job.every or "-", ", ".join(job.after), state, when, message])
    print_table(["job", "runs", "every", "after", "state", "last", ""], rows, empty="no jobs; jobs/*.toml holds them")


class Runner:
    """Runs jobs one after the other, and writes down what becomes of them."""

    def __init__(self, project: Project, url: str | None, key: str | None, quiet: bool = False) -> None:
        from headrace.coordinate.jobs import read_runs

        self.project, self.url, self.key, self.quiet = project, url, key, quiet
        self.runs = read_runs(project.data)

    def api(self) -> Api:
        return open_api(self.project.folder, self.url, self.key)

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def run(self, jobs: list[Job]) -> None:
        failed: set[str] = set()
        for job in jobs:
            waits = [name for name in job.after if name in failed]
            if waits:
                failed.add(job.name)
                self._note(job, "waiting", self.now_ms(), 0, f"`{waits[0]}` failed")
            elif not self._run(job):
                failed.add(job.name)

    def _run(self, job: Job) -> bool:
        started = self.now_ms()
        for attempt in range(1, job.retries + 2):
            self._note(job, "running", started, attempt, "")
            try:
                message = WORK[job.run](self, job)
            except (HeadraceError, OSError) as error:
                message = error.message if isinstance(error, HeadraceError) else str(error)
                if attempt <= job.retries:
                    self._note(job, "running", started, attempt, f"{message}; trying again")
                    time.sleep(min(LONGEST_PAUSE_S, 2.0 ** (attempt - 1)))
                    continue
                self._note(job, "failed", started, attempt, message)
                return False
            self._note(job, "done", started, attempt, message)
            return True
        return False

    def _note(self, job: Job, state: Any, started: int, attempts: int, message: str) -> None:
        from headrace.coordinate.jobs import JobRun, write_runs

        finished = None if state == "running" else self.now_ms()
        self.runs[job.name] = JobRun(state, started, finished, attempts, message)
        write_runs(self.project.data, self.runs)
        if not self.quiet and (state != "running" or message):
            print(f"  {job.name:<24} {state:<8} {message}", flush=True)


def _import(runner: Runner, job: Job) -> str:
    from headrace.cli.backend import open_backend
    from headrace.cli.import_files import bring_in

    project = runner.project
    with open_backend(project.folder, runner.url, runner.key) as backend:
        patterns = [str(project.folder / pattern) for pattern in job.files]
        body = bring_in(backend, project.data, job.topic, patterns, "auto", job.time or None, again=False, quiet=True)
    return f"{body['accepted']:,} accepted, {body['duplicates']:,} were there already, {body['rejected']:,} rejected"


def _repair(runner: Runner, job: Job) -> str:
    with runner.api() as api:
        done = api.post(f"/v1/views/{job.view}/repair", {})
    return f"{done['revised']:,} rows revised, {done['late']:,} late records"


def _check(runner: Runner, job: Job) -> str:
    with runner.api() as api:
        body = api.post(f"/v1/views/{job.view}/check", rows=1000)
    if body["drifted"]:
        raise HeadraceError(f"{body['drifted']} rows of `{job.view}` are not what the log says")
    return f"{body['rows']:,} rows checked so far, all as the log says"


def _export(runner: Runner, job: Job) -> str:
    with runner.api() as api:
        answer = api.post("/v1/query", {"sql": job.query, "limit": MOST_ROWS})
    if answer["truncated"]:
        raise UsageError(f"the answer has more than {len(answer['rows']):,} rows", hint="see [server] query_rows")
    now = datetime.now(UTC)
    name = job.to.replace("{date}", now.strftime("%Y-%m-%d")).replace("{time}", now.strftime("%H%M%S"))
    file = runner.project.folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.new")
    _write(new, file.suffix, [column["name"] for column in answer["columns"]], answer["rows"])
    new.replace(file)
    return f"{len(answer['rows']):,} rows in {name}"


def _write(file: Path, kind: str, names: list[str], rows: list[list[Any]]) -> None:
    if kind == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]
        pq.write_table(pa.table(dict(zip(names, columns, strict=True))), file)
        return
    with file.open("w", encoding="utf-8", newline="") as stream:
        if kind == ".csv":
            writer = csv.writer(stream)
            writer.writerow(names)
            writer.writerows(rows)
        else:
            json.dump([dict(zip(names, row, strict=True)) for row in rows], stream, ensure_ascii=False)


WORK: dict[str, Callable[[Runner, Job], str]] = {
    "import": _import,
    "repair": _repair,
    "check": _check,
    "export": _export,
}
