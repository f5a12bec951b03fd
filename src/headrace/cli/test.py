"""`headrace test`: the project's own tests, on the real engine."""

from __future__ import annotations

from pathlib import Path
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
    also: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="The same as an option; may be repeated.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Each once as a stream; not as a batch, in pieces and with a restart.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Decides where the input is cut and how it is shuffled.")] = 0,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write the results as JUnit's XML, too.")] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run tests/*.toml: events in, rows expected, on a log of their own."""
    found = open_project(project)
    from headrace.testing import run_project_tests, write_junit

    report = (lambda result: None) if as_json else _print
    results = run_project_tests(found, [*(only or []), *(also or [])], report=report, seed=seed, quick=quick)
    failed = [result for result in results if not result.passed]
    if junit is not None:
        write_junit(junit, found.name, results)
    if as_json:
        tests = [
            {
                "file": result.file,
                "name": result.name,
                "passed": result.passed,
                "differences": result.differences,
                "ways": result.ways,
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
    styles = {"-": "red", "+": "green"}
    for line in result.differences:
        target.print(Text(f"    {line}", style=styles.get(line.lstrip()[:1], "")), soft_wrap=True)
