"""What is in a file: its functions by name and type. Finds out by running it, so not where it could do harm."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import msgspec

from headrace.errors import HeadraceError
from headrace.functions.annotations import Unclear, read
from headrace.functions.attach import ATTACHED, Attached, wrong_with
from headrace.functions.decorator import Mark, mark_of
from headrace.functions.files import Described, FunctionFile, Problem, SignatureText, Style
from headrace.functions.loading import load
from headrace.functions.signatures import signature_from
from headrace.sql.functions import FUNCTIONS

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
METHODS = ("init", "add", "merge", "result")


def describe(file: FunctionFile) -> tuple[FunctionFile, tuple[Problem, ...]]:
    """The file with its functions, and what is wrong with others."""
    try:
        module = load(file)
    except SyntaxError as error:
        return file, (Problem(f"is not valid Python: {error.msg}", error.lineno or 0),)
    except BaseException as error:
        return file, (Problem(f"cannot be loaded: {type(error).__name__}: {error}", _line_in(file.file, error)),)
    found: list[Described] = []
    problems: list[Problem] = []
    for attribute, value in vars(module).items():
        mark = mark_of(value)
        # What was imported from a neighbour is described there.
        if mark is None or getattr(value, "__module__", None) != module.__name__:
            continue
        try:
            found.append(_described(attribute, value, mark, {one.name for one in found}))
        except Unclear as unclear:
            problems.append(Problem(f"`{attribute}`: {unclear}", _line_of(value), unclear.hint))
    attached, wrong = _attached(module)
    described = FunctionFile(file.file, file.text, file.helpers, tuple(found), attached)
    return described, (*problems, *wrong)


def _attached(module: ModuleType) -> tuple[tuple[Attached, ...], tuple[Problem, ...]]:
    """The functions that are called with records."""
    found: list[Attached] = []
    problems: list[Problem] = []
    for attribute, value in vars(module).items():
        mark = getattr(value, "__dict__", {}).get(ATTACHED)
        if not isinstance(mark, Attached) or getattr(value, "__module__", None) != module.__name__:
            continue
        wrong = wrong_with(mark)
        if wrong is not None:
            problems.append(Problem(f"`{attribute}`: {wrong}", mark.line))
        else:
            found.append(msgspec.structs.replace(mark, attribute=attribute))
    return tuple(found), tuple(problems)


def _described(attribute: str, value: Any, mark: Mark, known: set[str]) -> Described:
    name = (mark.name or attribute).upper()
    if not NAME.fullmatch(name):
        raise Unclear(f"`{name}` cannot be called in SQL", "letters, digits and `_`")
    if name in FUNCTIONS:
        raise Unclear(f"`{name}` is a function of Headrace's own", "give it another name")
    if name in known:
        raise Unclear(f"`{name}` is defined twice")
    summary = mark.description or (inspect.getdoc(value) or "").partition("\n")[0]
    common: dict[str, Any] = {"name": name, "attribute": attribute, "summary": summary, "label": mark.version}
    common["line"] = _line_of(value)
    if inspect.isclass(value):
        return _aggregate(value, mark, common)
    if not callable(value):
        raise Unclear("is neither a function nor a class")
    if mark.signatures:
        style, rows = _written_style(value)
        kind = "table" if rows or inspect.isgeneratorfunction(value) else "scalar"
        return Described(kind=kind, signatures=_written(mark), optional=_defaults(value), style=style, **common)  # type: ignore[arg-type]
    said = read(value)
    _check(said.signature)
    kind = "table" if said.rows or inspect.isgeneratorfunction(value) else "scalar"
    if kind == "table" and said.style != "rows":
        raise Unclear("a table function takes one row at a time", "leave out the arrays")
    return Described(kind=kind, signatures=(said.signature,), optional=said.optional, style=said.style, **common)  # type: ignore[arg-type]


def _aggregate(value: type, mark: Mark, common: Mapping[str, Any]) -> Described:
    missing = [method for method in METHODS if not callable(getattr(value, method, None))]
    if missing:
        raise Unclear(f"an aggregate needs {', '.join(missing)}", "init, add, merge and result; undo for tables")
    undo = callable(getattr(value, "undo", None))
    if mark.signatures:
        return Described(kind="aggregate", signatures=_written(mark), undo=undo, **common)
    said = read(value.add, 2, value.result)  # type: ignore[attr-defined]
    _check(said.signature)
    if said.style != "rows":
        raise Unclear("an aggregate takes one row at a time", "leave out the arrays")
    return Described(kind="aggregate", signatures=(said.signature,), optional=said.optional, undo=undo, **common)


def _written(mark: Mark) -> tuple[SignatureText, ...]:
    """Those of `signatures=`."""
    found = []
    for text in mark.signatures:
        parameters, arrow, result = text.rpartition("->")
        if not arrow or not parameters.strip().startswith("(") or not parameters.strip().endswith(")"):
            raise Unclear(f"`{text}` is no signature", 'such as "(BIGINT, VARCHAR) -> DOUBLE"')
        inner = parameters.strip()[1:-1].strip()
        variadic = inner.endswith("...")
        parts = _split(inner.removesuffix("...").strip())
        found.append(SignatureText(tuple(parts), result.strip(), variadic))
        _check(found[-1])
    return tuple(found)


def _split(text: str) -> list[str]:
    """At the commas that are in no bracket."""
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return [*parts, part.strip()] if part.strip() else parts


def _check(signature: SignatureText) -> None:
    try:
        signature_from(signature)
    except HeadraceError as error:
        raise Unclear(f"`{signature}`: {error.message}", error.hint or "") from error


def _written_style(value: Callable[..., Any]) -> tuple[Style, bool]:
    """With signatures, annotations need only say whether values come as arrays."""
    try:
        said = read(value)
        return said.style, said.rows
    except Unclear:
        return "rows", False


def _defaults(value: Callable[..., Any]) -> tuple[bool, ...]:
    """With signatures, a parameter with the default None may be null."""
    return tuple(one.default is None for one in inspect.signature(value).parameters.values())


def _line_of(value: Any) -> int:
    try:
        return inspect.getsourcelines(value)[1]
    except (OSError, TypeError):
        return 0


def _line_in(file: str, error: BaseException) -> int:
    """The last line of the file itself on the way to the error."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return (lines[-1] or 0) if lines else 0
