"""Every kind of statement, as written and as it is understood: printed back in one normal form."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.sql.api import parse, parse_columns, parse_expression, print_expression, print_statement, split
from headrace.sql.clauses import Element, Identifier
from headrace.sql.expressions import Arithmetic, Literal, Logical, Name, Not
from headrace.sql.statements import CreateSource, Describe, Drop, Explain, Print, SelectStatement, Show, Terminate
from headrace.sql.walk import depth
from headrace.types import BIGINT, VARCHAR

FIXTURES = Path(__file__).parent / "fixtures"


def pairs(name: str) -> list[tuple[str, str]]:
    """As written, and in normal form."""
    entries = (FIXTURES / f"{name}.txt").read_text(encoding="utf-8").split("\n\n")[1:]
    return [(written, normal.strip()) for written, _, normal in (entry.partition("\n") for entry in entries)]


@pytest.mark.parametrize(("written", "normal"), pairs("statements"))
def test_statements(written: str, normal: str) -> None:
    [statement] = parse(written)
    assert print_statement(statement) == normal
    assert parse(normal) == [statement]


@pytest.mark.parametrize(("written", "normal"), pairs("expressions"))
def test_expressions(written: str, normal: str) -> None:
    expression = parse_expression(written)
    assert print_expression(expression) == normal
    assert parse_expression(normal) == expression


def test_precedence_makes_the_tree() -> None:
    a, b, c = Name("A"), Name("B"), Name("C")
    assert parse_expression("a + b * c") == Arithmetic("+", a, Arithmetic("*", b, c))
    assert parse_expression("not a and b") == Logical("AND", Not(a), b)
    assert parse_expression("-5") == Literal(-5)


def test_statements_know_where_they_stand() -> None:
    text = "  SHOW STREAMS ;\n-- then\nDESCRIBE s; ;SELECT 1 FROM s"
    statements = parse(text)
    assert [text[s.start : s.end] for s in statements] == ["SHOW STREAMS ;", "DESCRIBE s;", "SELECT 1 FROM s"]
    assert [s.text for s in statements] == ["SHOW STREAMS ;", "DESCRIBE s;", "SELECT 1 FROM s"]
    assert [type(s) for s in statements] == [Show, Describe, SelectStatement]


def test_names_of_statements() -> None:
    assert [
        s.name for s in parse("CREATE STREAM `s` (a INT); DROP TABLE t;") if isinstance(s, CreateSource | Drop)
    ] == ["s", "T"]
    [terminate, all_, explain, print_] = parse("TERMINATE q; TERMINATE ALL; EXPLAIN q; PRINT t")
    assert isinstance(terminate, Terminate)
    assert isinstance(all_, Terminate)
    assert isinstance(explain, Explain)
    assert isinstance(print_, Print)
    assert (terminate.query_id, all_.query_id, explain.query_id, print_.topic) == ("Q", None, "Q", "t")


def test_an_explained_query_has_its_own_text() -> None:
    [explain] = parse("EXPLAIN SELECT a FROM s;")
    assert isinstance(explain, Explain)
    assert explain.statement is not None
    assert explain.statement.text == "SELECT a FROM s"


def test_variables_are_written_out_in_the_text_that_is_kept() -> None:
    [plain, substituted] = parse("SHOW STREAMS; SELECT * FROM ${s} WHERE a = '${v}';", {"s": "t", "v": "it"})
    assert plain.text == "SHOW STREAMS;"
    assert substituted.text == "SELECT * FROM T WHERE A = 'it';"
    assert parse(substituted.text) == [substituted]


def test_columns_alone() -> None:
    assert parse_columns("userid VARCHAR KEY, n BIGINT") == (
        Element(Identifier("USERID"), VARCHAR, "key"),
        Element(Identifier("N"), BIGINT),
    )


def test_split_never_fails_and_says_what_is_complete() -> None:
    pieces = split("SHOW STREAMS; SELECT ';' FROM s -- ;\n; SELECT")
    assert [(p.text, p.complete) for p in pieces] == [
        ("SHOW STREAMS;", True),
        ("SELECT ';' FROM s -- ;\n;", True),
        ("SELECT", False),
    ]
    assert [(p.text, p.complete) for p in split("SHOW TABLES; SELECT 'a;")] == [
        ("SHOW TABLES;", True),
        ("SELECT 'a;", False),
    ]
    assert split(" -- nothing\n ;;") == []
    assert [p.text for p in split("é")] == ["é"]


def test_a_long_chain_of_ors_is_a_shallow_tree() -> None:
    expression = parse_expression(" OR ".join(f"a = {n}" for n in range(5_000)))
    assert depth(expression) < 80
    assert parse_expression(print_expression(expression)) == expression
