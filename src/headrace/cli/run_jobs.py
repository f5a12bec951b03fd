"""`headrace run`: the project's declared batch jobs. The server runs them; here they are asked for and followed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from headrace.cli.deployment import ProgressLine, is_away
from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api
from headrace.cli.output import local_time, print_error, print_json, print_table
from headrace.errors import ConfigError, HeadraceError, UsageError

if TYPE_CHECKING:
    from headrace.cli.api import Api

LOOK_S = 0.2
SILENCE_S = 60.0
"""How long a server that is being restarted is waited for."""
OVER = ("done", "failed", "waiting", "cancelled", "interrupted")


def register(app: typer.Typer) -> None:
    app.command("run", epilog="Example:  headrace run nightly")(run)


def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="[JOB]…", help="Jobs; all of jobs/*.toml.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show the jobs, when they run and how they went.")] = False,
    history: Annotated[bool, typer.Option("--history", help="Show the runs of one job.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Stop jobs that run.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start them and return.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run declared batch jobs now, each after those it comes after. Exits with 1 if one failed."""
    wanted = names or []
    with open_api(project, url, key) as api:
        if listed:
            _list(api, wanted, as_json)
        elif history:
            _history(api, wanted, as_json)
        elif cancel:
            _cancel(api, wanted)
        else:
            _run(api, wanted, detach, as_json)


def _run(api: Api, names: list[str], detach: bool, as_json: bool) -> None:
    body = api.post("/v1/jobs", {"jobs": names})
    asked = body["runs"]
    if not asked:
        raise UsageError("there are no jobs", hint="jobs/*.toml holds them: docs/howto/run-jobs.md")
    if detach:
        _print([(run["job"], "queued", "") for run in asked]) if not as_json else print_json(body)
        _say_problem(body["problem"], not names)
        return
    done = [_follow(api, run["job"], run["number"], as_json) for run in asked]
    if as_json:
        print_json({"runs": done, "problem": body["problem"]})
    _say_problem(body["problem"], not names)
    if any(run["state"] != "done" for run in done):
        raise typer.Exit(1)


def _say_problem(problem: str | None, all_wanted: bool = True) -> None:
    """Files that are wrong keep other jobs from nothing, but whoever wanted all has not got all."""
    if problem is None:
        return
    error = ConfigError(problem, hint="put it right; until then its jobs are as they were, if they were there")
    if all_wanted:
        raise error
    print_error(error)


def _follow(api: Api, name: str, number: int, quiet: bool) -> dict[str, Any]:
    """Until the run is over. A server that is restarted meanwhile goes on with it, as a run of its own."""
    deadline, wanted, shown = time.monotonic() + SILENCE_S, number, ProgressLine(quiet)
    while True:
        try:
            runs = api.get(_path(name))["runs"]
            deadline = time.monotonic() + SILENCE_S
        except HeadraceError as error:
            if not is_away(error) or time.monotonic() > deadline:
                raise
            time.sleep(LOOK_S)
            continue
        run = next((one for one in runs if one["number"] == wanted), None)
        if run is None:
            raise HeadraceError(f"run {wanted} of job `{name}` is forgotten")
        if run["state"] == "interrupted" and any(one["number"] == wanted + 1 for one in runs):
            wanted += 1
        elif run["state"] in OVER:
            shown.clear()
            if not quiet:
                _print([(name, run["state"], run["message"])])
            return {"job": name, **run}
        else:
            shown.show(f"  {name:<24} {run['state']:<11} {run['message']}")
        time.sleep(LOOK_S)


def _print(lines: list[tuple[str, str, str]]) -> None:
    for name, state, message in lines:
        print(f"  {name:<24} {state:<11} {message}", flush=True)


def _list(api: Api, names: list[str], as_json: bool) -> None:
    body = api.get("/v1/jobs")
    known = {job["name"] for job in body["jobs"]}
    for name in names:
        if name not in known:
            api.get(_path(name))  # says that it is not there
    jobs = [job for job in body["jobs"] if not names or job["name"] in names]
    if as_json:
        print_json(body | {"jobs": jobs})
        return
    rows = []
    for job in jobs:
        last = job["last"] or {}
        when = job["every"] or job["schedule"] or (f"after {', '.join(job['after'])}" if job["after"] else "-")
        started, following = last.get("started_ms"), job["next_ms"]
        rows.append([
            job["name"],
            job["run"],
            when,
            last.get("state", "-"),
            local_time(started) if started else "-",
            local_time(following) if following else "-",
            last.get("message", ""),
        ])  # fmt: skip
    print_table(["job", "runs", "when", "state", "last", "next", ""], rows, empty="no jobs; jobs/*.toml holds them")
    _say_problem(body["problem"])


def _history(api: Api, names: list[str], as_json: bool) -> None:
    if len(names) != 1:
        raise UsageError("--history shows the runs of one job", hint="headrace run --history nightly")
    body = api.get(_path(names[0]))
    if as_json:
        print_json(body)
        return
    rows = [
        [run["number"], run["state"], run["why"], local_time(run["started_ms"]), run["attempts"], run["message"]]
        for run in body["runs"]
    ]
    print_table(["run", "state", "why", "started", "tries", ""], rows, empty="it has not run yet")


def _cancel(api: Api, names: list[str]) -> None:
    if not names:
        raise UsageError("--cancel needs the jobs' names", hint="headrace run --list shows which run")
    for name in names:
        api.post(f"{_path(name)}/cancel", {})
        print(f"job `{name}` is being stopped")


def _path(name: str) -> str:
    return f"/v1/jobs/{quote(name, safe='')}"
