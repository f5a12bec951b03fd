"""Mistakes in headrace.toml and tests/*.toml are reported with their line, and with what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import load_project
from headrace.errors import ConfigError
from headrace.testing.cases import load_cases

KEYS = '[[auth.keys]]\nkey = "a"\nrole = "read"\n\n[[auth.keys]]\nkey = "b"\n'
TEST = '[[test]]\nname = "one"\n[[test.expect]]\nfrom = "t"\nrows = []\n'


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("\n[server]\nprot = 8080\n", "headrace.toml:3: there is no setting `server.prot`", "did you mean `port`?"),
        ("[sever]\nport = 1\n", "headrace.toml:1: there is no setting `sever`", "did you mean `server`?"),
        ("server.prot = 1\n", "headrace.toml:1: there is no setting `server.prot`", "did you mean `port`?"),
        (
            '[server]\nhost = "::1"\nport = "a"\n',
            "headrace.toml:3: `server.port`: expected a whole number, got text",
            "docs/",
        ),
        ("[server]\n\nport = 70000\n", "headrace.toml:3: `server.port`: cannot be 70000", "0 to 65535"),
        ("[server]\nworkers = 65\n", "headrace.toml:2: `server.workers`: cannot be 65", "1 to 64"),
        ('[log]\nbackend = "kafak"\n', "headrace.toml:2: `log.backend`: cannot be `kafak`", "did you mean `kafka`?"),
        (
            KEYS + 'role = "amdin"\n',
            "headrace.toml:7: `auth.keys.role`: cannot be `amdin`",
            "did you mean `admin`?  it is one of read, write, admin",
        ),
        (KEYS + 'roel = "read"\n', "headrace.toml:7: there is no setting `auth.keys.roel`", "did you mean `role`?"),
        ("[server]\nport = \n", "headrace.toml:2: not valid TOML: Invalid value", None),
        ('[log.kafka]\nbootstrp = "h"\n', "headrace.toml:2: there is no setting `log.kafka.bootstrp`", "did you mean"),
    ],
)
def test_headrace_toml(tmp_path: Path, text: str, message: str, hint: str | None) -> None:
    (tmp_path / "headrace.toml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_project(tmp_path)
    assert refused.value.message == message
    assert (refused.value.hint or "").startswith(hint or "")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (TEST + "lat = { t = 1 }\n", "tests/a.toml:6: there is no setting `test.expect.lat`", "docs/howto"),
        (TEST + "[[test.expct]]\n", "tests/a.toml:6: there is no setting `test.expct`", "did you mean `expect`?"),
        (
            TEST + '[[test]]\nname = "two"\n[[test.input]]\ntopic = "x"\n[[test.input]]\ntopc = "y"\n',
            "tests/a.toml:11: there is no setting `test.input.topc`",
            "did you mean `topic`?",
        ),
        (
            TEST + '[[test]]\nname = "two"\nrejected = "1"\n',
            "tests/a.toml:8: `test.rejected`: expected a whole number, got text",
            "docs/",
        ),
        (TEST + '[[test]]\nname = "two"\n', "tests/a.toml:6: test `two` expects nothing: add [[test.expect]]", "docs/"),
        (TEST * 2, "tests/a.toml:6: the name `one` is there twice", "docs/"),
        ("[[test]\n", "tests/a.toml:1: not valid TOML: Expected ']]' at the end of an array declaration", None),
    ],
)
def test_tests_of_a_project(tmp_path: Path, text: str, message: str, hint: str | None) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "a.toml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_cases(tmp_path)
    assert refused.value.message == message
    assert (refused.value.hint or "").startswith(hint or "")
