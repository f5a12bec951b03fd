"""Signatures of Python functions, and the functions as SQL's table has them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from headrace.functions.compiled import Runtime
from headrace.functions.direct import DIRECT, PythonFunction
from headrace.functions.files import FunctionFile, SignatureText
from headrace.sql.functions.function import Function
from headrace.sql.functions.signatures import ArrayOf, Exact, MapOf, Pattern, Signature, Variable
from headrace.sql.parser import parse_columns

LETTER = re.compile(r"[A-Z]|DECIMAL")
NESTED = re.compile(r"(ARRAY|MAP)\s*<(.*)>", re.DOTALL)


def signature_from(text: SignatureText) -> Signature:
    """`SqlError` for something that is no type."""
    parameters = tuple(_pattern(one) for one in text.parameters)
    return Signature(parameters, _pattern(text.result), text.variadic, str(text))


def _pattern(text: str) -> Pattern:
    """
    >>> _pattern("ARRAY<T>")
    ArrayOf(element=Variable(name='T'))
    """
    text = text.strip()
    if LETTER.fullmatch(text):
        return Variable(text)
    nested = NESTED.fullmatch(text)
    # Only what has a letter in it needs a pattern; anything else is a type.
    if nested and re.search(r"(?<![A-Za-z0-9_`])[A-Z](?![A-Za-z0-9_`])", text):
        if nested[1] == "ARRAY":
            return ArrayOf(_pattern(nested[2]))
        key, _, value = nested[2].partition(",")
        return MapOf(_pattern(key), _pattern(value))
    [element] = parse_columns(f"x {text}")
    return Exact(element.type)


def functions_of(file: FunctionFile, runtime: Runtime = DIRECT) -> dict[str, Function]:
    """A file's functions, computed by `runtime`."""
    return {one.name: _function(file, place, runtime) for place, one in enumerate(file.functions)}


def _function(file: FunctionFile, place: int, runtime: Runtime) -> Function:
    described = file.functions[place]
    return Function(
        name=described.name,
        kind=described.kind,
        signatures=tuple(map(signature_from, described.signatures)),
        summary=described.summary,
        example="",
        evaluate=_unprepared,
        # The function itself says what becomes of nulls: it may want some of them.
        nulls=True,
        origin=file.file,
        version=file.version,
        undo=described.undo,
        prepare=PythonFunction(file, described, runtime),
    )


def all_functions(files: Iterable[FunctionFile], runtime: Runtime) -> dict[str, Function]:
    """Of several files; the first to define a name has it."""
    found: dict[str, Function] = {}
    for file in files:
        found = functions_of(file, runtime) | found
    return found


def _unprepared(*values: Any) -> Any:
    raise AssertionError("a Python function is prepared for the types of its call first")
