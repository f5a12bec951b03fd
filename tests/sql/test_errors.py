"""Being wrong, helpfully: every error says where, what, and what to do. The cases are in fixtures/, for reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SqlError
from headrace.sql.api import parse
from tests.sql.catalog import refused

FIXTURES = Path(__file__).parent / "fixtures"


def entries(name: str) -> list[str]:
    """Each a statement with the place marked «like this», then the message, then the hint if there is one."""
    return (FIXTURES / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n").split("\n\n")[1:]


def shown(error: SqlError) -> str:
    """The error as an entry of a fixture."""
    start, end = error.column - 1, error.column - 1 + error.length
    line = error.source_line
    lines = [f"{line[:start]}«{line[start:end]}»{line[end:]}", f"    {error.message}"]
    return "\n".join(lines + ([f"    {error.hint}"] if error.hint else []))


def statement(entry: str) -> str:
    return entry.partition("\n")[0].replace("«", "").replace("»", "")


@pytest.mark.parametrize("entry", entries("syntax_errors") + entries("not_yet"))
def test_what_cannot_be_parsed(entry: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(statement(entry))
    assert caught.value.line == 1
    assert shown(caught.value) == entry


@pytest.mark.parametrize("entry", entries("meaning_errors"))
def test_what_cannot_be_planned(entry: str) -> None:
    error = refused(statement(entry))
    assert error.line == 1
    assert shown(error) == entry


@pytest.mark.parametrize("entry", entries("not_yet"))
def test_what_is_not_there_yet_can_be_told_from_mistakes(entry: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(statement(entry))
    assert caught.value.data["unsupported"] is True


def test_errors_of_later_statements_point_at_their_line() -> None:
    error = refused("SHOW STREAMS;\n\n  SELECT pagid\n  FROM pageviews;")
    assert (error.line, error.column, error.length, error.source_line) == (3, 10, 5, "  SELECT pagid")
    assert str(error).splitlines()[:3] == [
        "  SELECT pagid",
        "         ^^^^^",
        "line 3, column 10: column `pagid` does not exist",
    ]


def test_an_error_carries_everything_as_data() -> None:
    body = refused("SELECT pagid FROM pageviews;").to_json()
    assert body == {
        "code": "sql",
        "message": "column `pagid` does not exist",
        "hint": "did you mean `pageid`?  columns are userid, pageid, viewtime, seconds",
        "line": 1,
        "column": 8,
        "length": 5,
        "source_line": "SELECT pagid FROM pageviews;",
    }
