"""A project's pipelines, brought into the catalog: what is new is created, what runs is left as it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from headrace.sql.order import cycle_message, needed_names, order_definitions
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect, CreateSource, Statement
from headrace.types import display_name

_CREATES = re.compile(
    r'\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:STREAM|TABLE)\s+(?:IF\s+NOT\s+EXISTS\s+)?(`[^`]+`|"[^"]+"|\w+)', re.I
)
"""Names in a file that cannot be parsed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that a person should look at. `changed` runs on as it was; an `error` does not run at all."""

    kind: Literal["changed", "error"]
    file: Path
    line: int
    column: int
    message: str
    hint: str | None = None
    name: str = ""
    """The stream or table that the statement was to create; empty if the file as a whole is wrong."""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}"
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
    return functions + apply_pipelines(executor, {file.relative_to(project.folder): file for file in project.pipelines})


def apply_pipelines(executor: StatementExecutor, texts: Mapping[Path, Path | str]) -> list[AppliedFile]:
    """Run the statements of pipelines, inputs first, whichever file they stand in. `texts`: by their paths in the
    project, as SQL or as the file to read."""
    files = [AppliedFile(file) for file in texts]
    unreadable: dict[str, Problem] = {}
    pending = [one for applied in files for one in _read(applied, texts[applied.file], unreadable)]
    pending = _without_doubles(pending)
    _apply_in_order(executor, pending, unreadable)
    for applied in files:
        applied.problems.sort(key=lambda problem: (problem.line, problem.column))
    executor.note_files([one.statement.name for one in pending])
    return files


def _apply_in_order(
    executor: StatementExecutor, pending: Sequence[_Pending], unreadable: Mapping[str, Problem]
) -> None:
    """A statement whose input failed is not tried: a stream over the topic of a query that failed would make the topic,
    and the query would be refused for good."""
    order = order_definitions([one.statement for one in pending])
    failed: dict[int, Problem] = {}
    for cycle in order.cycles:
        for index in cycle:
            failed[index] = _fail(pending[index], SqlError(cycle_message(cycle, index, [p.statement for p in pending])))
    waiting = set(range(len(pending))) - set(order.sequence) - failed.keys()
    for index in (*order.sequence, *sorted(waiting)):
        one = pending[index]
        error: HeadraceError | None = None
        if executor.catalog.source(one.statement.name) is None:
            broken = [*(failed[below] for below in sorted(order.needs[index]) if below in failed)]
            broken += [unreadable[name] for name in needed_names(one.statement) if name in unreadable]
            if broken:
                what = f"`{display_name(broken[0].name)}`" if broken[0].name else "it"
                error = SqlError(f"not created, because {what} failed at {broken[0].place}")
        if error is None:
            error = _apply(executor, one)
        if error is not None:
            failed[index] = _fail(one, error)


def _fail(one: _Pending, error: HeadraceError) -> Problem:
    problem = _problem(one.applied.file, one.statement, error)
    one.applied.problems.append(problem)
    return problem


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


def _read(applied: AppliedFile, text: Path | str, unreadable: dict[str, Problem]) -> Iterator[_Pending]:
    """Yield a file's statements. What a file was to define that cannot be parsed is noted in `unreadable`, by names of
    streams, tables and their topics."""
    try:
        text = pipeline_text(text) if isinstance(text, Path) else text
    except SqlError as error:
        applied.problems.append(Problem("error", applied.file, error.line, error.column, error.message, error.hint))
        return
    except (OSError, UnicodeDecodeError) as error:
        applied.problems.append(Problem("error", applied.file, 1, 1, f"cannot be read: {error}"))
        return
    try:
        statements = parse(text)
    except SqlError as error:
        problem = Problem("error", applied.file, error.line, error.column, error.message, error.hint)
        applied.problems.append(problem)
        for found in _CREATES.finditer(text):
            name = found[1].strip('`"') if found[1][0] in '`"' else found[1].upper()
            unreadable.setdefault(name, replace(problem, name=name))
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
                source.name,
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
    one.applied.problems.append(Problem("changed", one.applied.file, *_place(statement), message, hint, source.name))


def _problem(file: Path, statement: Statement, error: HeadraceError) -> Problem:
    line, column = _place(statement)
    if isinstance(error, SqlError) and error.line:
        line, column = error.line, error.column
    name = statement.name if isinstance(statement, CreateSource | CreateAsSelect) else ""
    return Problem("error", file, line, column, error.message, error.hint, name)


def _place(statement: Statement) -> tuple[int, int]:
    span = statement.script.span(statement.start, statement.end)
    return span.line, span.column
