"""docs/reference/sql.md says what is so: everything is in it, and its examples can be planned."""

from __future__ import annotations

import re
from typing import get_args

from headrace.sql.api import FUNCTIONS, Draft, parse, validate
from headrace.sql.clauses import UNIT_MS
from headrace.sql.parser.types import ALIASES, NESTED
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
