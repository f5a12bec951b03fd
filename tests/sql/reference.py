"""The function table as Markdown, for docs/reference/sql.md: `python -m tests.sql.reference` writes it there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headrace.sql.evaluate import compile_expression
from headrace.sql.functions import SECTIONS
from headrace.sql.functions.function import Function
from headrace.sql.parser import parse_expression
from headrace.sql.resolve import resolve
from headrace.sql.scope import Scope
from headrace.sql.script import Script
from headrace.sql.text import value_text

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "sql.md"
BEGIN, END = "<!-- functions: made by tests/sql/reference.py -->", "<!-- end of functions -->"


def function_reference() -> str:
    """Every function: what it takes, what it does, an example and its value."""
    tables = {
        title: _aggregates(SECTIONS[title]) if title == "Aggregates" else _table(SECTIONS[title]) for title in SECTIONS
    }
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in tables.items())


def _table(functions: Iterable[Function]) -> str:
    rows = [f"| {_row(one)} | {_code(example_value(one))} |" for one in functions]
    return "\n".join(["| function | | example | gives |", "|---|---|---|---|", *rows])


def _aggregates(functions: Iterable[Function]) -> str:
    rows = [f"| {_row(one)} |" for one in functions]
    return "\n".join(["| function | | example |", "|---|---|---|", *rows])


def _row(function: Function) -> str:
    return f"{_heading(function)} | {_escaped(function.summary)} | {_code(function.example)}"


def _heading(function: Function) -> str:
    return "<br>".join(_code(function.name + one.shown_parameters) for one in function.signatures)


def _code(text: str) -> str:
    return f"`{_escaped(text)}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def example_value(function: Function) -> str:
    """What the example gives, as CAST(… AS VARCHAR) would."""
    script = Script(function.example)
    text = function.example if function.kind == "table" else f"CAST({function.example} AS VARCHAR)"
    expression = resolve(parse_expression(text), Scope(script, {}))
    found = compile_expression(expression, lambda: 0)({})
    return value_text(found)


def rewritten(page: str) -> str:
    """The page with the functions as they are now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{function_reference()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
