"""One deployment as it goes: its progress, what differed, the question whether to switch, and how it ended."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.options import in_terminal
from headrace.cli.output import data_text, duration, local_time, print_json, print_table
from headrace.errors import Disconnected, HeadraceError, NotRunning

if TYPE_CHECKING:
    from headrace.cli.api import Api

POLL_S = 0.3
AWAY_S = 60.0
BETWEEN_LINES_S = 5.0
EXIT_WAITING = 2
RUNNING = ("building", "comparing", "switching")


def is_away(error: HeadraceError) -> bool:
    """Whether it is the server that is missing, and may come back: not that it refused."""
    return isinstance(error, NotRunning | Disconnected) or (error.status >= 500 and type(error) is HeadraceError)


def follow(api: Api, deployment: dict[str, Any], as_json: bool) -> dict[str, Any]:
    """Show how it goes until it is over or waits for somebody. Ctrl-C leaves it running."""
    shown = ProgressLine(quiet=as_json)
    try:
        furthest: dict[str, float] = {}
        while deployment["stage"] in RUNNING and not deployment["paused"]:
            keep_furthest(deployment["builds"], furthest)
            shown.show(progress_line(deployment))
            time.sleep(POLL_S)
            deployment = _asked(api, deployment["id"], shown)
    except KeyboardInterrupt:
        print(f"\nit goes on without you:  headrace deploy follow {deployment['id']}", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        shown.clear()
    return deployment


def keep_furthest(builds: list[dict[str, Any]], furthest: dict[str, float]) -> None:
    """Never show less than was shown before: what arrives meanwhile makes the whole larger, and undoes no work.

    >>> builds, furthest = [{"query_id": "q", "done": 0.4}], {"q": 0.5}
    >>> keep_furthest(builds, furthest)
    >>> builds[0]["done"]
    0.5
    """
    for build in builds:
        furthest[build["query_id"]] = max(build["done"], furthest.get(build["query_id"], 0.0))
        build["done"] = furthest[build["query_id"]]


def _asked(api: Api, number: int, shown: ProgressLine) -> dict[str, Any]:
    """The deployment now. It is in the log: a server that was killed goes on with it, so whoever waits, waits."""
    deadline = time.monotonic() + AWAY_S
    while True:
        try:
            return api.get(f"/v1/deployments/{number}")
        except HeadraceError as error:
            if not is_away(error):
                raise
            if time.monotonic() > deadline:
                hint = f"the deployment goes on when it is back:  headrace deploy show {number}"
                raise NotRunning(f"the server has not come back for {AWAY_S:.0f} s", hint=hint) from error
        shown.show(f"deployment {number}: waiting for the server to come back")
        time.sleep(POLL_S)


class ProgressLine:
    """The line that says how far it is: in a terminal always the same one, else one after the other, but no more than
    somebody would read in the log of a CI run."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._shown, self._next = quiet, "", 0.0

    def show(self, text: str) -> None:
        now = time.monotonic()
        if self._quiet or text == self._shown or (now < self._next and not in_terminal()):
            return
        self._shown, self._next = text, now + BETWEEN_LINES_S
        print(f"\r\033[K{text}" if in_terminal() else text, end="" if in_terminal() else "\n", flush=True)

    def clear(self) -> None:
        if self._shown and in_terminal():
            print("\r\033[K", end="", flush=True)


def progress_line(deployment: dict[str, Any]) -> str:
    """
    >>> build = {"name": "a", "left": 50, "rows_per_second": 10.0, "seconds_left": 5.0, "done": 0.509}
    >>> progress_line({"id": 3, "stage": "building", "paused": False, "builds": [build]})
    'deployment 3 is building: a 50% (10 rows/s, 5 seconds left)'
    >>> progress_line({"id": 3, "stage": "building", "paused": True, "builds": [build]})
    'deployment 3 is paused: a 50%'
    """
    paused = deployment["paused"]
    parts = []
    for build in deployment["builds"] if deployment["stage"] == "building" else ():
        left = "" if build["seconds_left"] is None else f", {duration(build['seconds_left'])} left"
        speed = f"{build['rows_per_second']:,.0f} rows/s{left}" if build["rows_per_second"] else "first batch"
        rate = f" ({speed})" if build["left"] and not paused else ""
        parts.append(f"{build['name']} {int(build['done'] * 100)}%{rate}")
    text = f"deployment {deployment['id']} is {'paused' if paused else deployment['stage']}"
    return f"{text}: {'; '.join(parts)}" if parts else text


def finish(api: Api, deployment: dict[str, Any], as_json: bool) -> None:
    """Print it, ask whoever sits there if it has to be asked, and end with the code that says how it is."""
    if as_json:
        print_json(deployment)
    else:
        print_deployment(deployment)
        if deployment["stage"] == "waiting" and _somebody_is_there():
            deployment = ask(api, deployment)
        print_way_back(deployment)
    stage = deployment["stage"]
    if stage == "waiting" or (deployment["paused"] and stage in RUNNING):
        raise typer.Exit(EXIT_WAITING)
    if stage in ("failed", "cancelled"):
        raise typer.Exit(1)


def print_way_back(deployment: dict[str, Any]) -> None:
    replaced = [item["name"] for item in deployment["items"] if item["before"] and item["version"] != item["before"]]
    if deployment["stage"] == "switched" and replaced:
        print(f"back:  headrace view rollback {replaced[0]}")


def _somebody_is_there() -> bool:
    return in_terminal() and os.isatty(0)


def ask(api: Api, deployment: dict[str, Any]) -> dict[str, Any]:
    """Whether to switch. Anything but yes leaves it waiting: nothing is lost by thinking about it."""
    while True:
        try:
            answer = input("switch? [y/N/show] ").strip().lower()
        except (EOFError, KeyboardInterrupt):
            print()
            return deployment
        if answer in ("s", "show"):
            for comparison in deployment["comparisons"]:
                print_samples(comparison)
        elif answer in ("y", "yes"):
            path = f"/v1/deployments/{deployment['id']}/approve"
            deployment = follow(api, api.post(path), as_json=False)
            print(f"deployment {deployment['id']} is {deployment['stage']}")
            return deployment
        else:
            print(f"it waits:  headrace deploy approve {deployment['id']}      or cancel {deployment['id']}")
            return deployment


def print_deployment(deployment: dict[str, Any]) -> None:
    number, stage = deployment["id"], deployment["stage"]
    detail = f": {deployment['detail']}" if deployment["detail"] else ""
    print(progress_line(deployment) if stage == "building" else f"deployment {number} is {stage}{detail}")
    for item in deployment["items"]:
        moved = item["version"] != item["before"]
        versions = f"  version {item['before'] or '-'} → {item['version'] or '-'}" if moved else ""
        print(f"  {item['name']}: {item['verdict']}{versions}")
    for note in deployment["warnings"]:
        print(f"  note: {note}")
    for comparison in deployment["comparisons"]:
        print_comparison(comparison)
    if stage == "waiting" and not _somebody_is_there():
        print(f"switch:  headrace deploy approve {number}      or not:  headrace deploy cancel {number}")
    elif stage in RUNNING and deployment["paused"]:
        print(f"go on:  headrace deploy resume {number}      or not:  headrace deploy cancel {number}")


def print_comparison(found: dict[str, Any]) -> None:
    counts = f"{found['same']:,} rows the same, {found['changed']:,} changed"
    alone = f"{found['only_old']:,} only before, {found['only_new']:,} only now"
    print(f"  {found['view']}, version {found['old']} → {found['new']}: {counts}, {alone}")
    for delta in found["deltas"]:
        by = f"by {float(delta['total']):+,g} in all, {float(delta['largest']):+,g} at most"
        print(f"    {delta['column']}: {delta['rows']:,} rows {by}")
    for what in ("added", "removed"):
        if names := found[f"columns_{what}"]:
            print(f"    columns {what}: {', '.join(names)}")


def print_samples(found: dict[str, Any]) -> None:
    """Some rows that differ, as they were and as they are."""
    samples = found["samples"]
    windowed = any(sample["window"] for sample in samples)
    print_table(
        ["key", *["window"] * windowed, f"version {found['old']}", f"version {found['new']}"],
        [
            [
                ", ".join(data_text(value) for value in sample["key"].values()),
                *[local_time((sample["window"] or {}).get("start"))] * windowed,
                row_text(sample["old"]),
                row_text(sample["new"]),
            ]
            for sample in samples
        ],
        empty="no row differs",
    )


def row_text(row: dict[str, Any] | None) -> str:
    """
    >>> row_text({"n": 3, "page": "/a"}), row_text(None)
    ('n = 3  page = /a', '-')
    """
    return "-" if row is None else "  ".join(f"{name} = {data_text(value)}" for name, value in row.items())
