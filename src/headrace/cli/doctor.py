"""`headrace doctor`: is everything there that Headrace needs, and how to mend what is not."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from headrace.cli.options import JsonOption, ProjectOption
from headrace.cli.output import console, print_json
from headrace.config import find_project

if TYPE_CHECKING:
    from headrace.cli.checks import Check

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "wrong": ("✗", "red")}


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  headrace doctor --project ~/shop")(doctor)


def doctor(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Look for what is wrong with this machine and project, and say how to mend it."""
    from headrace.cli.checks import machine_checks, project_checks

    folder = project or find_project(Path.cwd())
    checks = machine_checks() + (project_checks(folder) if folder else [])
    wrong = [check for check in checks if check.state == "wrong"]
    if as_json:
        print_json({"ok": not wrong, "checks": [asdict(check) for check in checks]})
    else:
        _print(checks, folder)
    raise typer.Exit(1 if wrong else 0)


def _print(checks: list[Check], folder: Path | None) -> None:
    from rich.text import Text

    target = console()
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark, style = MARKS[check.state]
        target.print(Text(f"{mark} ", style=style) + Text(f"{check.name:<{width}}  {check.text}"))
        if check.hint and check.state != "ok":
            target.print(Text(f"  {'':<{width}}  {check.hint}"))
    if folder is None:
        print("no project here: only the machine was looked at; --project DIR names one")
