"""`headrace test`: the project's own tests, on the real engine."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options import JsonOption, ProjectOption, open_project


def register(app: typer.Typer) -> None:
    app.command("test", epilog="Example:  headrace test pageviews")(run_tests)


def run_tests(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="Only tests whose name contains one of these.")
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run tests/*.toml: events in, rows expected, on a log of their own."""
    from headrace.testing import run_project_tests

    raise typer.Exit(run_project_tests(open_project(project), only or []))
