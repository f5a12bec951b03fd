"""Python functions and the catalog: what a project's files and CREATE FUNCTION put there, and which version a query
runs with."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.events import FunctionsChanged
from headrace.coordinate.result import StatementResult
from headrace.errors import UsageError
from headrace.functions.describe import METHODS
from headrace.functions.direct import PythonFunction
from headrace.functions.files import FOLDER, Described, FunctionFile, Problem, SignatureText, helpers_of
from headrace.sql.api import python_functions
from headrace.sql.ask_plan import AskQuery
from headrace.sql.create_function import (
    check_drop_function,
    check_new_function,
    kind_of,
    parameter_types,
    python_text,
    return_type,
)
from headrace.sql.plan import PersistentQuery
from headrace.sql.statements import CreateFunction, DropFunction
from headrace.types import display_name

DescribeFile = Callable[[FunctionFile], tuple[FunctionFile, tuple[Problem, ...]]]


def used_files(plan: PersistentQuery | AskQuery) -> tuple[FunctionFile, ...]:
    """The files that a plan's functions are from, each once."""
    prepared = [function.prepare for _, function in sorted(python_functions(plan).items())]
    return tuple(dict.fromkeys(one.file for one in prepared if isinstance(one, PythonFunction)))


# CREATE FUNCTION, DROP FUNCTION


def create_function(statement: CreateFunction, catalog: Catalog, describe: DescribeFile) -> StatementResult:
    name = display_name(statement.name)
    if not check_new_function(statement, catalog):
        return StatementResult(statement.text, "exists", f"function `{name}` exists already")
    file = _file_of(statement, catalog)
    _, problems = describe(file)
    if problems:
        [problem, *_] = problems
        place = f" (line {problem.line} of its text)" if problem.line else ""
        raise UsageError(f"function `{name}` {problem.message}{place}", hint=problem.hint or None)
    catalog.append([FunctionsChanged((file,))])
    return StatementResult(statement.text, "created", f"function `{name}` is there, version {file.version}")


def drop_function(statement: DropFunction, catalog: Catalog) -> StatementResult:
    """Queries that run with it go on."""
    name = display_name(statement.name)
    if not check_drop_function(statement, catalog):
        return StatementResult(statement.text, "exists", f"there is no function `{name}`")
    users = [query.id for query in catalog.queries() if _uses(query, statement.name)]
    catalog.append([FunctionsChanged(removed=(_file_name(statement.name),))])
    still = f"; {', '.join(users)} goes on with it" if users else ""
    return StatementResult(statement.text, "dropped", f"function `{name}` is gone{still}")


def _uses(query: QueryDefinition, name: str) -> bool:
    return any(one.name == name for file in query.functions for one in file.functions)


def _file_name(name: str) -> str:
    return f"CREATE FUNCTION {name}"


def _file_of(statement: CreateFunction, catalog: Catalog) -> FunctionFile:
    text, attribute = python_text(statement)
    kind = kind_of(statement)
    methods = _methods(text, attribute)
    if kind == "aggregate" and (missing := [method for method in METHODS if method not in methods]):
        hint = "init, add, merge and result; undo for tables"
        raise statement.script.error(f"an aggregate needs {', '.join(missing)}", statement.target.span, hint)
    signature = SignatureText(
        tuple(map(str, parameter_types(statement, catalog))), str(return_type(statement, catalog))
    )
    described = Described(statement.name, attribute, kind, (signature,), undo="undo" in methods)
    return FunctionFile(_file_name(statement.name), text, (), (described,))


def _methods(text: str, name: str) -> set[str]:
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name]
    return {part.name for node in classes for part in node.body if isinstance(part, ast.FunctionDef)}


# The project's folder


@dataclass(frozen=True, slots=True)
class DeployedFile:
    """What became of one file of `functions/`."""

    file: Path
    changed: tuple[str, ...]
    """Names of the functions that are new or have another version."""
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class FunctionChanges:
    """What files of `functions/` would change in the catalog."""

    found: list[DeployedFile]
    changed: tuple[FunctionFile, ...]
    removed: tuple[str, ...]

    def after(self, before: Mapping[str, FunctionFile]) -> dict[str, FunctionFile]:
        kept = {name: file for name, file in before.items() if name not in self.removed}
        return kept | {file.file: file for file in self.changed}

    def events(self) -> list[FunctionsChanged]:
        return [FunctionsChanged(self.changed, self.removed)] if self.changed or self.removed else []


def deploy_functions(folder: Path, catalog: Catalog, describe: DescribeFile) -> list[DeployedFile]:
    """Bring the files of `functions/` into the catalog. One that cannot be loaded keeps its last good version."""
    texts, unreadable = _read(folder / FOLDER)
    changes = function_changes(texts, catalog.state.function_files, describe, unreadable)
    if events := changes.events():
        catalog.append(events)
    return changes.found


def function_texts(folder: Path) -> dict[str, str]:
    """The files of `functions/`, by their paths in the project. `UsageError` for one that cannot be read."""
    texts, unreadable = _read(folder / FOLDER)
    for file in unreadable:
        raise UsageError(f"`{file.file}` {file.problems[0].message}")
    return texts


def function_changes(
    texts: Mapping[str, str],
    before: Mapping[str, FunctionFile],
    describe: DescribeFile,
    unreadable: Sequence[DeployedFile] = (),
) -> FunctionChanges:
    """Changes nothing, but runs what is new to see what is in it."""
    neighbours = {Path(name).stem: text for name, text in texts.items()}
    found: list[DeployedFile] = list(unreadable)
    changed: list[FunctionFile] = []
    taken = {name: file.file for file in before.values() if not of_folder(file.file) for name in _names(file)}
    for name, text in texts.items():
        file = FunctionFile(name, text, helpers_of(text, neighbours))
        known = before.get(name)
        if known is not None and (known.text, known.helpers) == (file.text, file.helpers):
            taken |= dict.fromkeys(_names(known), name)
            continue
        described, problems = describe(file)
        if not (described.functions or described.attached) and known is not None and problems:
            taken |= dict.fromkeys(_names(known), name)
            found.append(DeployedFile(Path(name), (), problems))
            continue
        described, clashes = _without_taken(described, taken)
        taken |= dict.fromkeys(_names(described), name)
        changed.append(described)
        different = known is None or known.version != described.version
        found.append(DeployedFile(Path(name), tuple(all_names(described)) if different else (), (*problems, *clashes)))
    kept = {*texts, *(str(one.file) for one in unreadable)}
    removed = tuple(name for name in before if of_folder(name) and name not in kept)
    return FunctionChanges(found, tuple(changed), removed)


def of_folder(name: str) -> bool:
    """Whether it is the path of one of the project's files of functions."""
    return name.startswith(f"{FOLDER}/")


def _names(file: FunctionFile) -> list[str]:
    return [one.name for one in file.functions]


def all_names(file: FunctionFile) -> list[str]:
    """Those that are called with records, too."""
    return _names(file) + [one.name for one in file.attached]


def _read(folder: Path) -> tuple[dict[str, str], list[DeployedFile]]:
    texts: dict[str, str] = {}
    problems: list[DeployedFile] = []
    for path in sorted(folder.glob("*.py")):
        name = f"{FOLDER}/{path.name}"
        try:
            texts[name] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problems.append(DeployedFile(Path(name), (), (Problem(f"cannot be read: {error}"),)))
    return texts, problems


def _without_taken(file: FunctionFile, taken: Mapping[str, str]) -> tuple[FunctionFile, tuple[Problem, ...]]:
    """The first to define a name has it."""
    kept = tuple(one for one in file.functions if one.name not in taken)
    clashes = tuple(
        Problem(f"`{one.name.lower()}` is defined in {taken[one.name]} already", one.line)
        for one in file.functions
        if one.name in taken
    )
    return msgspec.structs.replace(file, functions=kept), clashes
