"""`headrace up`, `down`, `status`, `logs`: running a project."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from headrace.access.files import keep_private
from headrace.access.owner import own_key
from headrace.access.tls import trust_own
from headrace.cli.options import JsonOption, ProjectOption, in_terminal, open_api, open_project
from headrace.cli.output import bytes_text, console, local_time, print_json, print_pairs, print_table
from headrace.clock import SystemClock
from headrace.config import Project
from headrace.coordinate.child import tail
from headrace.coordinate.local import holder, is_held
from headrace.coordinate.reports import read_children
from headrace.coordinate.supervisor import Notice, Readiness, Supervisor, prepare, readiness
from headrace.errors import HeadraceError, NotRunning

DETACHED = "HEADRACE_DETACHED"
"""Set for the supervisor that `up --detach` starts: it must not print progress, nor detach again."""
READY_S, DOWN_S = 240.0, 60.0


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  headrace up --port 8081 --detach")(up)
    app.command(epilog="Example:  headrace down --project ~/shop")(down)
    app.command(epilog="Example:  headrace status --json")(status)
    app.command(epilog="Example:  headrace logs -f engine")(logs)


def up(
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any free one.", min=0, max=65535)] = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            "-d",
            help="Return when it is ready (exit code 1: it never will be); go on in the background.",
        ),
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the project here, until Ctrl-C: log, queries, views, API and console."""
    found = open_project(project)
    keep_private()
    if detach:
        url, ready = start_detached(found, port)
        if as_json:
            print_json({"url": url, "pid": _pid(found), "problems": ready.problems, "failed": ready.failed})
        else:
            state = "is ready" if ready.ready else f"runs, but is {ready.summary}"
            print(f"{found.name} {state}:  {url}\n  stop it:  headrace down      see it:  headrace status")
            print_problems(ready.problems)
        raise typer.Exit(0 if ready.ready else 1)
    lock, chosen = prepare(found, port, SystemClock())
    reporter = Reporter(found, as_json)
    supervisor = Supervisor(found, lock, chosen, SystemClock(), reporter)
    raise typer.Exit(supervisor.run())


class Reporter:
    """Says what the supervisor notices: on a terminal as one changing line until ready, else a line each."""

    def __init__(self, project: Project, as_json: bool = False) -> None:
        self._project = project
        self._as_json = as_json
        self._quiet_line = in_terminal() and not as_json and DETACHED not in os.environ
        self._started = time.monotonic()

    def __call__(self, notice: Notice) -> None:
        if self._as_json:
            print_json({"event": notice.kind, "text": notice.text, "lines": notice.lines})
            return
        match notice.kind:
            case "waiting":
                self._progress(f"waiting for {notice.text}")
            case "ready":
                self._ready(notice.text)
                print_problems(notice.lines)
            case "incomplete":
                self._line(f"{self._project.name} runs, but is {notice.text}")
                print_problems(notice.lines)
            case "stopping":
                self._progress("stopping …")
            case "stopped":
                self._line("stopped; data is kept in " + str(self._project.settings.data))
            case _:
                self._trouble(notice)

    def _ready(self, url: str) -> None:
        self._line(f"{self._project.name} is ready after {time.monotonic() - self._started:.0f} s:  {url}")
        if self._quiet_line:
            print("  Ctrl-C stops it; headrace logs -f shows what it does", flush=True)

    def _trouble(self, notice: Notice) -> None:
        target = console(stderr=True)
        self._line("")
        target.print(notice.text, style="yellow", markup=False)
        for line in notice.lines:
            target.print(f"  {line}", style="dim", markup=False)

    def _progress(self, text: str) -> None:
        if self._quiet_line:
            print(f"\r\033[K{text}", end="", flush=True)
        else:
            print(text, flush=True)

    def _line(self, text: str) -> None:
        if self._quiet_line:
            print("\r\033[K", end="")
        if text:
            print(text, flush=True)


def print_problems(problems: Sequence[str]) -> None:
    """What the pipelines' files get wrong; everything else runs."""
    target = console(stderr=True)
    for problem in problems:
        target.print(problem, style="yellow", markup=False)


def start_detached(project: Project, port: int | None) -> tuple[str, Readiness]:
    """Start a supervisor that outlives us. Return its address once nothing is waited for any more; progress goes to
    stderr."""
    # Asked here too, so that what can be refused is said at once and not found in a file.
    lock, chosen = prepare(project, port, SystemClock())
    lock.release()
    project.logs_folder.mkdir(parents=True, exist_ok=True)
    log = project.logs_folder / "supervisor.log"
    command = [sys.executable, "-m", "headrace.cli.main", "up", "--project", str(project.folder), "--port", str(chosen)]
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | {DETACHED: "1"},
        )
    return _wait_ready(project, child, log)


def _wait_ready(project: Project, child: subprocess.Popen[bytes], log: Path) -> tuple[str, Readiness]:
    deadline = time.monotonic() + READY_S
    waiting: tuple[str, ...] = ("the supervisor",)
    shown = ""
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise HeadraceError("it did not start; the end of its log:", detail="\n  ".join(tail(log, 25)))
        found = holder(project.data)
        if found is not None:
            ready = readiness(found.url, own_key(project), trust=trust_own(project))
            if ready.settled:
                return found.url, ready
            waiting = ready.waiting_for
        if (text := ", ".join(waiting)) != shown:
            shown = text
            print(f"waiting for {text}", file=sys.stderr)
        time.sleep(0.1)
    raise HeadraceError(
        f"it runs, but is not ready after {READY_S:.0f} s: waiting for {', '.join(waiting)}",
        hint="headrace status says how it is, headrace logs why",
    )


def down(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Stop the project that runs, here or in the background. Data is kept."""
    found = open_project(project)
    running = holder(found.data)
    if running is None:
        raise NotRunning(f"project `{found.name}` is not running")
    os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + DOWN_S
    while is_held(found.data):
        if time.monotonic() > deadline:
            raise HeadraceError(
                f"pid {running.pid} does not stop", hint=f"end it:  kill -9 {running.pid}  (nothing is lost)"
            )
        time.sleep(0.05)
    if as_json:
        print_json({"stopped": running.pid})
    else:
        print(f"{found.name} is stopped")


def status(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """How the running project is: what waits, what fails, what is behind."""
    found = open_project(project)
    running = holder(found.data)
    if running is None:
        if as_json:
            print_json({"project": found.name, "running": False})
            raise typer.Exit(3)
        raise NotRunning(f"project `{found.name}` is not running", hint="start it:  headrace up")
    ready = readiness(running.url, own_key(found), trust=trust_own(found))
    body: dict[str, Any] = {
        "project": found.name,
        "running": True,
        "ready": ready.ready,
        "state": ready.summary,
        "waiting_for": ready.waiting_for,
        "problems": ready.problems,
        "failed": ready.failed,
        "url": running.url,
        "pid": running.pid,
        "started_ms": running.started_ms,
        "processes": msgspec.to_builtins(read_children(found.data)),
    }
    # A server that does not answer a probe would not answer these either, only later.
    if ready.answered:
        with open_api(found.folder, None, None) as api:
            try:
                body |= {"overview": api.get("/v1/overview"), "queries": api.get("/v1/queries")["queries"]}
            except HeadraceError as error:
                body["error"] = error.to_json()
    if as_json:
        print_json(body)
    else:
        _print_status(body)
    raise typer.Exit(0 if body["ready"] else 1)


def _print_status(body: dict[str, Any]) -> None:
    overview = body.get("overview", {})
    totals, engine = overview.get("totals", {}), overview.get("engine", {})
    print_pairs(
        [
            ("project", body["project"]),
            ("address", body["url"]),
            ("state", body["state"]),
            ("up since", f"{local_time(body['started_ms'])}  (pid {body['pid']})"),
            ("engine", f"{engine.get('state', '?')}  (pid {engine.get('pid') or '-'})"),
            ("events", f"{totals.get('events', 0):,}  ({totals.get('rate', 0):,.0f}/s)"),
            ("dead letters", dead_letters_text(totals.get("dead_letters", 0), totals.get("open_dead_letters", 0))),
            ("on disk", bytes_text(totals.get("bytes", 0))),
        ]
    )
    for process in body["processes"]:
        if end := process["last_end"]:
            times = f"{process['restarts']} restart{'s' if process['restarts'] != 1 else ''}"
            print(f"\nthe {process['name']} {end['text']} at {local_time(end['time_ms'])}  ({times})")
    for problem in body["problems"]:
        print(f"\n{problem}")
    if queries := body.get("queries"):
        print()
        print_table(
            ["query", "state", "lag", "rows/s", "last error"],
            [
                [q["id"], q["state"], q["lag"], round(q["rows_per_second"]), _present_error(q["last_error"])]
                for q in queries
            ],
        )


def dead_letters_text(total: int, open_: int) -> str:
    """
    >>> dead_letters_text(3, 1), dead_letters_text(2, 2), dead_letters_text(1, 0)
    ('1  (2 more were sent again)', '2', '0  (1 was sent again)')
    """
    again = total - open_
    if not again:
        return f"{open_:,}"
    return f"{open_:,}  ({again:,}{' more' * bool(open_)} {'was' if again == 1 else 'were'} sent again)"


def _present_error(error: dict[str, Any] | None) -> str | None:
    """One that the query has recovered from is past; `headrace query show` still has it."""
    return None if error is None or error.get("recovered_ms") else error["message"]


LOG_NAMES = ("server", "engine", "supervisor")


def logs(
    name: Annotated[str | None, typer.Argument(help="server, engine or supervisor; all by default.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of the last lines.", min=0)] = 50,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """What server and engine wrote to their logs."""
    if name is not None and name not in LOG_NAMES:
        raise typer.BadParameter(f"`{name}` is none of {', '.join(LOG_NAMES)}", param_hint="NAME")
    folder = open_project(project).logs_folder
    names = [name] if name else [each for each in LOG_NAMES if (folder / f"{each}.log").exists()]
    if not names and not follow:
        raise NotRunning(f"no logs in `{folder}`", hint="start it:  headrace up")
    shown = [(each, line) for each in names for line in tail(folder / f"{each}.log", lines)]
    for each, line in shown:
        _print_line(each, line, as_json, len(names) > 1)
    if follow:
        _follow([(each, folder / f"{each}.log") for each in (names or LOG_NAMES)], as_json)


def _print_line(name: str, line: str, as_json: bool, several: bool) -> None:
    if as_json:
        print_json({"log": name, "line": line})
    else:
        print(f"{name:<10} {line}" if several else line, flush=True)


def _follow(files: list[tuple[str, Path]], as_json: bool) -> None:
    positions = {name: file.stat().st_size if file.exists() else 0 for name, file in files}
    try:
        while True:
            for name, file in files:
                positions[name] = _print_new(name, file, positions[name], as_json, len(files) > 1)
            time.sleep(0.2)
    except KeyboardInterrupt:
        return


def _print_new(name: str, file: Path, position: int, as_json: bool, several: bool) -> int:
    """Print the whole lines written since `position`; the position after them."""
    try:
        with file.open("rb") as stream:
            # Emptied by rotation: begin again.
            stream.seek(position if position <= file.stat().st_size else 0)
            start = stream.tell()
            body = stream.read()
    except FileNotFoundError:
        return 0
    whole = body.rfind(b"\n") + 1
    for line in body[:whole].decode(errors="replace").splitlines():
        _print_line(name, line, as_json, several)
    return start + whole


def _pid(project: Project) -> int | None:
    found = holder(project.data)
    return found.pid if found else None
