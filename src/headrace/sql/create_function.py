"""CREATE FUNCTION: the Python text it means, and what can be known of it without running it."""

from __future__ import annotations

import ast
import textwrap
from typing import Any, Literal

from headrace.errors import SqlError
from headrace.nearest import did_you_mean
from headrace.sql.functions import FUNCTIONS
from headrace.sql.functions.function import Function
from headrace.sql.functions.signatures import Exact, Signature
from headrace.sql.named_types import known_type
from headrace.sql.source import Sources
from headrace.sql.statements import CreateFunction, DropFunction
from headrace.types import DataType, display_name

Kind = Literal["scalar", "aggregate", "table"]


def python_text(statement: CreateFunction) -> tuple[str, str]:
    """A module that defines the function, and its name there. The body is such a module, or the function's own body."""
    body = textwrap.dedent(statement.body).strip("\n")
    defined = _definition(statement, body)
    if defined is not None:
        return body, defined.name
    name = display_name(statement.name)
    parameters = ", ".join(display_name(one.column.name) for one in statement.parameters)
    text = f"def {name}({parameters}):\n" + textwrap.indent(body or "pass", "    ")
    _parse(statement, text)
    return text, name


def kind_of(statement: CreateFunction) -> Kind:
    text, name = python_text(statement)
    defined = next((node for node in ast.parse(text).body if getattr(node, "name", None) == name), None)
    return "aggregate" if isinstance(defined, ast.ClassDef) else "table" if statement.table else "scalar"


def _definition(statement: CreateFunction, body: str) -> ast.FunctionDef | ast.ClassDef | None:
    """The function or class of this name in the body, if it is a module."""
    try:
        module = ast.parse(body)
    except SyntaxError:
        return None
    wanted = statement.name.lower().replace("_", "")
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.lower().replace("_", "") == wanted:
            return node
    return None


def _parse(statement: CreateFunction, text: str) -> None:
    try:
        compile(text, "<function>", "exec", ast.PyCF_ONLY_AST)
    except (SyntaxError, ValueError) as error:
        line = max(getattr(error, "lineno", None) or 2, 2) - 1
        message = f"the function's Python is not valid: {getattr(error, 'msg', error)} (line {line} of its text)"
        hint = "the body of the function, or a text that defines it"
        raise statement.script.error(message, statement.target.span, hint) from None


def parameter_types(statement: CreateFunction, sources: Sources) -> tuple[DataType, ...]:
    return tuple(known_type(one.type, sources.types(), statement.script) for one in statement.parameters)


def return_type(statement: CreateFunction, sources: Sources) -> DataType:
    return known_type(statement.returns, sources.types(), statement.script)


def declared_function(statement: CreateFunction, sources: Sources) -> Function:
    """The function as far as planning needs it; calling it is an error."""
    parameters, result = parameter_types(statement, sources), return_type(statement, sources)
    text = f"({', '.join(map(str, parameters))}) -> {result}"
    signature = Signature(tuple(map(Exact, parameters)), Exact(result), False, text)
    return Function(
        name=statement.name,
        kind=kind_of(statement),
        signatures=(signature,),
        summary="",
        example="",
        evaluate=_not_here,
        origin="CREATE FUNCTION",
        version="draft",
        undo=True,
    )


def _not_here(*values: Any) -> Any:
    raise AssertionError("a function that was only declared cannot be called")


def check_new_function(statement: CreateFunction, sources: Sources) -> bool:
    """Whether it is to be made; not if it is there and IF NOT EXISTS says that is fine."""
    name = display_name(statement.name)
    if statement.name in FUNCTIONS:
        hint = "give it another name"
        raise statement.script.error(f"`{name}` is a function of Headrace's own", statement.target.span, hint)
    python_text(statement)
    found = sources.functions().get(statement.name)
    if found is None or statement.or_replace:
        if found is not None and found.origin.startswith("functions/"):
            raise _in_a_file(statement, found)
        return True
    if statement.if_not_exists:
        return False
    hint = f"CREATE OR REPLACE FUNCTION, or first DROP FUNCTION {name};"
    raise statement.script.error(f"function `{name}` exists already", statement.target.span, hint)


def check_drop_function(statement: DropFunction, sources: Sources) -> bool:
    """Whether there is something to drop; `SqlError` if not and that is not fine."""
    name, found = display_name(statement.name), sources.functions().get(statement.name)
    if found is not None:
        if found.origin.startswith("functions/"):
            raise _in_a_file(statement, found)
        return True
    if statement.if_exists:
        return False
    hint = did_you_mean(statement.name, sources.functions(), "SHOW FUNCTIONS; lists all")
    raise statement.script.error(f"function `{name}` does not exist", statement.target.span, hint)


def _in_a_file(statement: CreateFunction | DropFunction, found: Function) -> SqlError:
    message = f"function `{display_name(found.name)}` is defined in {found.origin}"
    return statement.script.error(message, statement.target.span, f"change {found.origin}, then headrace up")
