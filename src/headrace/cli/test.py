"""`headrace test`: the project's own tests, on the real engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import JsonOption, ProjectOption, open_project
from headrace.cli.output import console, print_json

if TYPE_CHECKING:
    from headrace.testing import TestResult


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
    found = open_project(project)
    if not as_json:
        console(stderr=True).print("[dim]starting Spark …[/dim]" if console(stderr=True).is_terminal else "", end="\r")
    from headrace.testing import run_project_tests

    results = run_project_tests(found, only or [], report=_say_nothing if as_json else _say)
    failed = sum(not result.passed for result in results)
    if as_json:
        tests = [
            {
                "file": r.file,
                "name": r.name,
                "passed": r.passed,
                "differences": list(r.differences),
                "seconds": r.seconds,
            }
            for r in results
        ]
        print_json({"passed": len(results) - failed, "failed": failed, "tests": tests})
    else:
        console().print(f"{len(results) - failed} passed, {failed} failed")
    raise typer.Exit(1 if failed else 0)


def _say(result: TestResult) -> None:
    mark = "[green]✓[/green]" if result.passed else "[red]✗[/red]"
    out = console()
    out.print(f"  {mark} {result.name}  [dim]{result.file}, {result.seconds:.1f} s[/dim]")
    for line in result.differences:
        out.print(f"      {line}", markup=False)


def _say_nothing(result: TestResult) -> None:
    return
