"""docs/reference/sql.md says what is so: everything is in it, and its examples can be planned."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from headrace import types
from headrace.sql import clauses, expressions, statements
from headrace.sql.api import FUNCTIONS, Draft, parse, validate
from headrace.sql.clauses import UNIT_MS
from headrace.sql.parser.types import ALIASES, NESTED
from headrace.sql.plan import JoinKind
from headrace.sql.properties import SINK_PROPERTIES, SOURCE_PROPERTIES
from headrace.sql.statements import ShowSubject, Statement
from headrace.sql.validate import check
from headrace.types import SIMPLE_TYPES
from tests.sql.reference import PAGE, rewritten

TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sql\n(.*?)```", TEXT, flags=re.S)


def test_the_examples_can_be_planned_one_after_the_other() -> None:
    draft = Draft()
    for block in BLOCKS:
        for statement in parse(block):
            check(statement, draft)


def test_every_kind_of_statement_has_an_example() -> None:
    shown = {type(statement) for block in BLOCKS for statement in parse(block)}
    assert shown == set(get_args(Statement))


# Nodes and fields that are not written but found out, and bases of others.
MADE = {"Call.function", "ColumnRef", "Column", "Node", "Over.function", "Position", "Span", "TypeName.span"}
KINDS = {"CreateSource.kind", "Drop.kind", "JoinClause.kind", "WindowClause.kind"}


def written(value: Any, found: dict[str, set[Any]]) -> None:
    """By class and field, whether it ever is not its default; of what there are several kinds of, which."""
    if isinstance(value, tuple):
        for part in value:
            written(part, found)
    if not is_dataclass(value) or isinstance(value, type):
        return
    name = type(value).__name__
    found.setdefault(name, set()).add(True)
    for one in fields(value):
        if one.compare and not (one.name == "type" and isinstance(value, expressions.Node)):
            part, seen = getattr(value, one.name), found.setdefault(f"{name}.{one.name}", set())
            if part != one.default:
                seen.add(part if f"{name}.{one.name}" in KINDS else True)
            written(part, found)


def test_every_clause_operator_and_type_has_an_example() -> None:
    found: dict[str, set[Any]] = {}
    for block in BLOCKS:
        for statement in parse(block):
            written(statement, found)
    classes = [kind for module in (clauses, expressions, statements, types) for kind in vars(module).values()]
    here = {k.__name__ for k in classes if isinstance(k, type) and is_dataclass(k) and "headrace" in k.__module__}
    assert here - set(found) - MADE == set()
    assert {name for name, seen in found.items() if not seen} - MADE == set()
    assert found["JoinClause.kind"] == set(get_args(JoinKind))
    assert found["WindowClause.kind"] == {"tumbling", "hopping", "session"}


def test_everything_is_mentioned() -> None:
    words = set(re.findall(r"[A-Z_]+", TEXT))
    expected = {*SOURCE_PROPERTIES, *SINK_PROPERTIES, *SIMPLE_TYPES, *ALIASES, *NESTED, *get_args(ShowSubject)}
    assert expected - words == set()
    assert {f"{unit}S" for unit in UNIT_MS} - words == set()


def test_the_functions_are_those_of_the_table() -> None:
    assert rewritten(TEXT) == TEXT, "run: python -m tests.sql.reference"


def test_the_aggregates_examples_can_be_planned() -> None:
    declared = "CREATE STREAM purchases (userid VARCHAR KEY, product VARCHAR, amount DECIMAL(10, 2));"
    for name, function in FUNCTIONS.items():
        if FUNCTIONS[name].kind == "aggregate":
            query = f"SELECT product, {function.example} FROM purchases GROUP BY product EMIT CHANGES;"
            assert validate(declared + query)
