"""Java's properties files, read as Java reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.collect.agents.properties import Property, parse_properties, read_properties, with_environment
from headrace.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = b", [("a", "b", 1)]),
        ("a=b\n\n# no\n! no\n  c : d  ", [("a", "b", 1), ("c", "d", 5)]),
        ("a b c", [("a", "b c", 1)]),
        ("a", [("a", "", 1)]),
        ("a = one \\\n    two\nb = 2", [("a", "one two", 1), ("b", "2", 3)]),
        ("a = ends with \\\\\nb = 2", [("a", "ends with \\", 1), ("b", "2", 2)]),
        ("with\\ space\\= = x", [("with space=", "x", 1)]),
        ("a = \\u00e9\\tx", [("a", "é\tx", 1)]),
        ("\ufeffa = 1\r\nb = 2\rc = 3", [("a", "1", 1), ("b", "2", 2), ("c", "3", 3)]),
        ("a = 1 \\", [("a", "1", 1)]),
    ],
)
def test_what_java_would_read(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert [(one.name, one.value, one.line) for one in parse_properties(text)] == expected


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    assert all(isinstance(one, Property) for one in parse_properties(text))


@given(st.dictionaries(st.text("abcXYZ.é", min_size=1), st.text("abc xyz=:#!é\\").map(str.strip), max_size=8))
def test_what_is_written_is_read(properties: dict[str, str]) -> None:
    text = "\n".join(f"{name} = {_escaped(value)}" for name, value in properties.items())
    assert {one.name: one.value for one in parse_properties(text)} == properties


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def test_the_environment_fills_in(tmp_path: Path) -> None:
    file = tmp_path / "agent.properties"
    file.write_text("a.port = ${PORT}\na.host = ${env:HOST}\na.home = ${user.home}/x ${NOT_SET}\n")
    found = with_environment(read_properties(file), {"PORT": "4141", "HOST": "web"})
    assert [one.value for one in found] == ["4141", "web", "${user.home}/x ${NOT_SET}"]


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        read_properties(tmp_path / "none.properties")
    (tmp_path / "bad.properties").write_bytes(b"a = \xff\n")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        read_properties(tmp_path / "bad.properties")


def test_a_character_in_two_halves_as_java_writes_it() -> None:
    [one] = parse_properties(r"a.key = \ud83d\ude00 x")
    assert one.value == "\U0001f600 x"
    [half] = parse_properties(r"a.key = \ud83d x")
    assert half.value == "\ufffd x"
