"""What the command says when there is nothing to talk to, and what `init` makes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.config import load_project
from headrace.sql.api import parse
from tests.cli.conftest import Headrace


def test_init_makes_a_project_that_says_what_it_is(headrace: Headrace, tmp_path: Path) -> None:
    said = headrace("init", "shop")
    assert said.code == 0
    assert said.out.splitlines() == [
        "made shop/",
        "  headrace.toml",
        "  pipelines/pageviews.sql",
        "  collectors/pageviews.toml",
        "  functions/pages.py",
        "  tests/pageviews.toml",
        "  .gitignore",
        "  README.md",
        "next:  cd shop && headrace up",
    ]
    project = load_project(tmp_path / "shop")
    assert project.name == "shop"
    kinds = [type(statement).__name__ for file in project.pipelines for statement in parse(file.read_text())]
    assert kinds == ["CreateSource", "CreateAsSelect", "CreateAsSelect"]


def test_init_overwrites_nothing(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "README.md").write_text("mine")
    assert headrace("init", "shop").code == 0
    assert (tmp_path / "shop" / "README.md").read_text() == "mine"
    again = headrace("init", "shop")
    assert (again.code, again.err) == (1, "`shop` is a project already\n  cd shop && headrace up\n")


def test_init_in_json(headrace: Headrace, tmp_path: Path) -> None:
    body = json.loads(headrace("init", "shop", "--json").out)
    assert body["project"] == str(tmp_path / "shop")
    assert len(body["files"]) == 7


def test_wrong_usage_is_64(headrace: Headrace) -> None:
    """2 means that a plan has changes, or that a deployment waits."""
    assert headrace("nonsense").code == 64
    assert headrace("plan", "--bogus").code == 64
    assert headrace("topic", "show").code == 64
    assert headrace("up", "--port", "70000").code == 64
    assert headrace("up", "--port", "http").code == 64
    assert headrace("init").code == 64


def test_without_a_project_it_says_how_to_make_one(headrace: Headrace) -> None:
    said = headrace("view", "list")
    assert said.code == 1
    assert "no headrace.toml in" in said.err
    assert "headrace init NAME" in said.err


@pytest.mark.parametrize(
    "command",
    [
        ("sql", "-e", "SHOW STREAMS;"),
        ("query", "list"),
        ("query", "show", "Q"),
        ("query", "stop", "Q"),
        ("query", "start", "Q"),
        ("view", "list"),
        ("view", "get", "v"),
        ("view", "watch", "v"),
        ("dlq", "list"),
        ("status",),
        ("down",),
    ],
    ids=" ".join,
)
def test_not_running_is_3(headrace: Headrace, command: tuple[str, ...]) -> None:
    headrace("init", "shop")
    said = headrace(*command, "--project", "shop")
    assert (said.code, said.out) == (3, "")
    assert "project `shop` is not running" in said.err


def test_nothing_at_the_address_is_3(headrace: Headrace) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        said = headrace("view", "list", "--url", url)
    assert said.code == 3
    assert f"nothing answers at `{url}`" in said.err


def test_an_address_that_is_none(headrace: Headrace) -> None:
    said = headrace("view", "list", "--url", "localhost:8080")
    assert (said.code, said.err) == (1, "`localhost:8080` is not an address\n  such as http://127.0.0.1:8080\n")


def test_errors_in_json(headrace: Headrace) -> None:
    headrace("init", "shop")
    said = headrace("query", "list", "--project", "shop", "--json")
    assert said.code == 3
    assert json.loads(said.err)["error"]["code"] == "not_running"


def test_an_unknown_setting_is_named(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text("[server]\nprot = 1\n")
    said = headrace("up")
    assert said.code == 1
    assert "headrace.toml:2: there is no setting `server.prot`" in said.err


def test_binding_to_the_world_needs_keys(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('[server]\nhost = "0.0.0.0"\n')
    said = headrace("up")
    assert said.code == 1
    assert "refusing to listen on `0.0.0.0` without keys" in said.err
    assert "[[auth.keys]]" in said.err


def test_a_port_in_use_is_said_plainly(headrace: Headrace, tmp_path: Path) -> None:
    headrace("init", "shop")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        said = headrace("up", "--project", "shop", "--port", str(port))
    assert said.code == 1
    assert said.err.startswith(f"port {port} is in use by pid ")
    assert f"use another:  headrace up --port {port + 1}" in said.err


def test_light_commands_import_nothing_heavy() -> None:
    code = """
import sys
sys.argv = ["headrace", "--version"]
from headrace.cli.main import main
try:
    main()
finally:
    heavy = {"pyspark", "pyarrow", "httpx", "rich.table", "granian", "starlette", "prompt_toolkit"} & set(sys.modules)
    assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_no_logs_yet(headrace: Headrace) -> None:
    headrace("init", "shop")
    assert headrace("logs", "--project", "shop").code == 3
    assert headrace("logs", "nobody", "--project", "shop").code == 64


def test_logs_of_all_and_of_one(headrace: Headrace, tmp_path: Path) -> None:
    headrace("init", "shop")
    folder = tmp_path / "shop" / ".headrace" / "logs"
    folder.mkdir(parents=True)
    (folder / "server.log").write_text("one\ntwo\n")
    (folder / "engine.log").write_text("three\n")
    assert headrace("logs", "--project", "shop").out.splitlines() == [
        "server     one",
        "server     two",
        "engine     three",
    ]
    assert headrace("logs", "server", "-n", "1", "--project", "shop").out == "two\n"
