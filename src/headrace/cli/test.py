"""`headrace test`: the project's own tests, on the real engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import JsonOption, ProjectOption, open_project
from headrace.cli.output import console, print_json

if TYPE_CHECKING:
    from headrace.testing import TestResult


def register(app: typer.Typer) -> None:
    app.command("test", epilog='Example:  headrace test "by page"')(run_tests)


def run_tests(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="Only tests whose name contains one of these.")
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run tests/*.toml: events in, rows expected, on a log of their own."""
    found = open_project(project)
    from headrace.testing import run_project_tests

    results = run_project_tests(found, only or [], report=(lambda result: None) if as_json else _print)
    failed = [result for result in results if not result.passed]
    if as_json:
        tests = [
            {
                "file": result.file,
                "name": result.name,
                "passed": result.passed,
                "differences": result.differences,
                "seconds": round(result.seconds, 3),
            }
            for result in results
        ]
        print_json({"passed": len(results) - len(failed), "failed": len(failed), "tests": tests})
    else:
        print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    raise typer.Exit(1 if failed else 0)


def _print(result: TestResult) -> None:
    from rich.text import Text

    mark = Text("✓ ", style="green") if result.passed else Text("✗ ", style="red")
    target = console()
    target.print(mark + Text(f"{result.name}  ({result.file}, {result.seconds:.1f} s)"))
    for difference in result.differences:
        target.print(Text(f"    {difference}"))
