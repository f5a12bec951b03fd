"""Short ways from the text of a functions file to what it does."""

from __future__ import annotations

import textwrap
from typing import Any

from headrace.functions.describe import describe
from headrace.functions.files import Described, FunctionFile, helpers_of
from headrace.functions.signatures import functions_of
from headrace.sql.bind import bind
from headrace.sql.evaluate import compile_expression
from headrace.sql.functions import steps_of
from headrace.sql.functions.function import Function, Steps
from headrace.sql.parser import parse_expression
from headrace.sql.resolve import resolve
from headrace.sql.scope import Scope
from headrace.sql.script import Script

HEAD = """
from __future__ import annotations
import dataclasses, datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any, TypedDict, TypeVar
import pyarrow as pa
import pyarrow.compute as pc
from headrace import function
"""


def function_file(text: str, **neighbours: str) -> FunctionFile:
    whole = HEAD + textwrap.dedent(text)
    return FunctionFile("functions/mine.py", whole, helpers_of(whole, neighbours))


def functions(text: str, **neighbours: str) -> dict[str, Function]:
    """Of a file in which nothing is wrong."""
    described, problems = describe(function_file(text, **neighbours))
    assert problems == ()
    return functions_of(described)


def described(text: str) -> dict[str, Described]:
    found, problems = describe(function_file(text))
    assert problems == ()
    return {one.name: one for one in found.functions}


def problems(text: str) -> list[tuple[str, str]]:
    return [(problem.message, problem.hint) for problem in describe(function_file(text))[1]]


def call(text: str, expression: str, **neighbours: str) -> Any:
    """The value of an expression over the functions of a file."""
    script = Script(expression)
    tree = bind(script, parse_expression(expression), functions(text, **neighbours))
    return compile_expression(resolve(tree, Scope(script, {})), lambda: 0)({})


def steps(text: str, expression: str) -> Steps:
    """How the aggregate of a call is kept."""
    script = Script(expression)
    tree = bind(script, parse_expression(expression), functions(text))
    resolved = resolve(tree, Scope(script, {}))
    return steps_of(resolved)  # type: ignore[arg-type]
