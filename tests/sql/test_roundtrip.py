"""What is printed parses to what was printed."""

from __future__ import annotations

from hypothesis import given, settings

from headrace.sql.api import parse, parse_expression, print_expression, print_statement
from headrace.sql.expressions import Expression
from headrace.sql.printer import print_type
from headrace.sql.statements import CreateType, Statement
from headrace.sql.walk import children, depth, rebuild, walk, with_children
from headrace.types import DataType
from tests.sql.random_trees import STATEMENTS, data_types, expressions


@settings(max_examples=400, deadline=None)
@given(expressions())
def test_expressions(expression: Expression) -> None:
    parsed = parse_expression(print_expression(expression))
    # `repr` too: 1 equals 1.0 and TRUE in Python, not in SQL.
    assert (parsed, repr(parsed)) == (expression, repr(expression))


@settings(max_examples=200, deadline=None)
@given(STATEMENTS)
def test_statements(statement: Statement) -> None:
    [parsed] = parse(print_statement(statement))
    assert parsed == statement


def test_a_subquery() -> None:
    text = "SELECT A FROM S WHERE A + 1 NOT IN (SELECT B FROM (SELECT B FROM T) AS U WHERE B IN (1, 2)) AND C;"
    [statement] = parse(text)
    assert print_statement(statement).split() == text.split()
    assert parse(print_statement(statement)) == [statement]


@settings(max_examples=100, deadline=None)
@given(data_types())
def test_types(type_: DataType) -> None:
    [statement] = parse(f"CREATE TYPE x AS {print_type(type_)};")
    assert isinstance(statement, CreateType)
    assert statement.type == type_


@settings(max_examples=100, deadline=None)
@given(expressions())
def test_walking_and_rebuilding(expression: Expression) -> None:
    assert with_children(expression, children(expression)) == expression
    assert rebuild(expression, lambda part: part) is expression
    assert len(list(walk(expression))) >= depth(expression)
