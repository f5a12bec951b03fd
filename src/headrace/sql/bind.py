"""Which Python function a call means: said before a statement is planned, because only the catalog knows.

Trees are walked by the fields of their classes, so that a clause that comes later is not forgotten here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from headrace.sql.expressions import Call, Over
from headrace.sql.functions import FUNCTIONS
from headrace.sql.functions.elsewhere import function_hint
from headrace.sql.functions.function import Function
from headrace.sql.script import Script

T = TypeVar("T")


def bind(script: Script, tree: T, functions: Mapping[str, Function]) -> T:
    """The tree with every call of one of `functions` saying which it is."""
    return _bind(script, tree, functions) if functions else tree


def _bind(script: Script, tree: Any, functions: Mapping[str, Function]) -> Any:
    if isinstance(tree, tuple):
        parts = tuple(_bind(script, part, functions) for part in tree)
        return parts if any(new is not old for new, old in zip(parts, tree, strict=True)) else tree
    if not is_dataclass(tree) or isinstance(tree, type):
        return tree
    if isinstance(tree, Call):
        return _bind_call(script, tree, functions)
    if isinstance(tree, Over) and tree.name in functions and tree.function is None:
        return _bind(script, replace(tree, function=functions[tree.name]), functions)
    changed: dict[str, Any] = {}
    for one in fields(tree):
        old = getattr(tree, one.name)
        new = _bind(script, old, functions) if isinstance(old, tuple) or is_dataclass(old) else old
        if new is not old:
            changed[one.name] = new
    return replace(tree, **changed) if changed else tree


def _bind_call(script: Script, call: Call, functions: Mapping[str, Function]) -> Call:
    if call.name not in functions and call.name not in FUNCTIONS:
        hint = function_hint(call.name, [*functions, *FUNCTIONS])
        raise script.error(f"function `{call.name}` does not exist", call.span, hint)
    arguments = _bind(script, call.arguments, functions)
    function = functions.get(call.name)
    if arguments is call.arguments and function is None:
        return call
    return replace(call, arguments=arguments, function=function)


def python_functions(tree: Any) -> dict[str, Function]:
    """The Python functions that a plan, or anything else made of expressions, calls, by name."""
    return {call.name: call.function for call in _calls(tree) if call.function is not None}


def function_versions(plan: Any) -> dict[str, str]:
    """Name and version of each Python function that a plan uses. A query that runs with other versions computes
    something else, even if its text is the same."""
    return {name: function.version for name, function in sorted(python_functions(plan).items())}


def _calls(tree: Any) -> Iterator[Call]:
    pending = [tree]
    while pending:
        current = pending.pop()
        if isinstance(current, tuple | list):
            pending.extend(current)
        elif is_dataclass(current) and not isinstance(current, Function | type):
            if isinstance(current, Call):
                yield current
            pending.extend(getattr(current, one.name) for one in fields(current))
