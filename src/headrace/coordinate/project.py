"""A project's pipelines, brought into the catalog: what is new is created, what runs is left as it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headrace.config import Project
from headrace.coordinate.definitions import same_definition
from headrace.coordinate.functions import deploy_functions
from headrace.coordinate.planning import changed_functions
from headrace.coordinate.result import StatementResult
from headrace.coordinate.statements import StatementExecutor
from headrace.errors import HeadraceError, SqlError
from headrace.fluent.pipeline import pipeline_text
from headrace.sql.api import parse
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect, CreateSource, Statement
from headrace.types import display_name


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that a person should look at. `changed` runs on as it was; an `error` does not run at all."""

    kind: Literal["changed", "error"]
    file: Path
    line: int
    column: int
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}: {self.message}"
        return f"{text}\n  {self.hint}" if self.hint else text


@dataclass(slots=True)
class AppliedFile:
    """What became of one file's statements."""

    file: Path
    """Relative to the project."""
    created: list[StatementResult] = field(default_factory=list)
    unchanged: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.kind == "error"]

    @property
    def changed(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.kind == "changed"]


@dataclass(frozen=True, slots=True)
class _Pending:
    applied: AppliedFile
    statement: CreateSource | CreateAsSelect


def apply_project(executor: StatementExecutor, project: Project) -> list[AppliedFile]:
    """Run the statements of pipelines/*.sql that the catalog does not have yet. Never raises for what a file says."""
    functions = apply_functions(executor, project)
    files = [AppliedFile(file.relative_to(project.folder)) for file in project.pipelines]
    pending = [one for applied in files for one in _read(applied, project.folder)]
    pending = _without_doubles(pending)
    names = [one.statement.name for one in pending]
    # A statement may need a stream that a later file defines: try again as long as anything gets done.
    while pending:
        failed = [(one, error) for one in pending if (error := _apply(executor, one)) is not None]
        if len(failed) == len(pending):
            for one, error in failed:
                one.applied.problems.append(_problem(one.applied.file, one.statement, error))
            break
        pending = [one for one, _ in failed]
    for applied in files:
        applied.problems.sort(key=lambda problem: (problem.line, problem.column))
    executor.note_files(names)
    return functions + files


def apply_functions(executor: StatementExecutor, project: Project) -> list[AppliedFile]:
    """Functions first: statements call them."""
    found = []
    for deployed in deploy_functions(project.folder, executor.catalog, executor.describe):
        applied = AppliedFile(deployed.file)
        for name in deployed.changed:
            applied.created.append(StatementResult("", "created", f"function `{name.lower()}` is there"))
        for problem in deployed.problems:
            hint = problem.hint or None
            applied.problems.append(Problem("error", deployed.file, problem.line or 1, 1, problem.message, hint))
        found.append(applied)
    return found


def _read(applied: AppliedFile, folder: Path) -> Iterator[_Pending]:
    try:
        statements = parse(pipeline_text(folder / applied.file))
    except SqlError as error:
        applied.problems.append(Problem("error", applied.file, error.line, error.column, error.message, error.hint))
        return
    except (OSError, UnicodeDecodeError) as error:
        applied.problems.append(Problem("error", applied.file, 1, 1, f"cannot be read: {error}"))
        return
    for statement in statements:
        if isinstance(statement, CreateSource | CreateAsSelect):
            yield _Pending(applied, statement)
        else:
            refused = SqlError("a pipeline only says what there is: CREATE STREAM and CREATE TABLE")
            refused.hint = "run other statements once:  headrace sql -f FILE"
            applied.problems.append(_problem(applied.file, statement, refused))


def _without_doubles(pending: list[_Pending]) -> list[_Pending]:
    """The first definition of a name counts, whichever can be applied first."""
    first: dict[str, _Pending] = {}
    for one in pending:
        earlier = first.setdefault(one.statement.name, one)
        if earlier is not one:
            place = _problem(earlier.applied.file, earlier.statement, SqlError(""))
            message = f"`{display_name(one.statement.name)}` is defined at {place.file}:{place.line} already"
            one.applied.problems.append(_problem(one.applied.file, one.statement, SqlError(message)))
    return list(first.values())


def _apply(executor: StatementExecutor, one: _Pending) -> HeadraceError | None:
    """The error, if it cannot be done (yet)."""
    statement, applied = one.statement, one.applied
    source = executor.catalog.source(statement.name)
    if source is None:
        try:
            applied.created.append(executor.run_statement(statement))
        except HeadraceError as error:
            return error
    elif same_definition(source.statement, statement):
        _note_changed_functions(executor, source, one)
    else:
        applied.problems.append(
            Problem(
                "changed",
                applied.file,
                *_place(statement),
                f"{source.kind} `{display_name(source.name)}` runs with another definition, and is kept as it runs",
                "see what the change would do:  headrace plan      and do it:  headrace deploy",
            )
        )
    return None


def _note_changed_functions(executor: StatementExecutor, source: Source, one: _Pending) -> None:
    """A query goes on with the functions it was made with, until somebody says otherwise."""
    statement, query = one.statement, executor.catalog.query(source.query) if source.query else None
    changed = changed_functions(query, statement, executor.catalog) if isinstance(statement, CreateAsSelect) else []
    if not changed:
        one.applied.unchanged += 1
        return
    names = ", ".join(f"`{name.lower()}`" for name in changed)
    what = f"{source.kind} `{display_name(source.name)}`"
    message = f"{what} runs with an earlier version of {names}, and goes on with it"
    hint = "see what the change would do:  headrace plan      and do it:  headrace deploy"
    one.applied.problems.append(Problem("changed", one.applied.file, *_place(statement), message, hint))


def _problem(file: Path, statement: Statement, error: HeadraceError) -> Problem:
    line, column = _place(statement)
    if isinstance(error, SqlError) and error.line:
        line, column = error.line, error.column
    return Problem("error", file, line, column, error.message, error.hint)


def _place(statement: Statement) -> tuple[int, int]:
    span = statement.script.span(statement.start, statement.end)
    return span.line, span.column
