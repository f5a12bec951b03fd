"""The doctor finds what is wrong and says how to mend it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from headrace.cli.checks import machine_checks, project_checks
from tests.cli.conftest import Headrace


def states(folder: Path) -> dict[str, str]:
    return {check.name: check.state for check in project_checks(folder)}


def project(folder: Path, settings: str = "", sql: str = "SHOW STREAMS;") -> Path:
    (folder / "pipelines").mkdir(parents=True)
    (folder / "pipelines" / "one.sql").write_text(sql)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "headrace.toml").write_text(settings or f"[server]\nport = {port}\n[log]\nmin_free_bytes = 1\n")
    return folder


def test_a_healthy_project(tmp_path: Path) -> None:
    assert set(states(project(tmp_path)).values()) == {"ok"}


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    [java] = [check for check in machine_checks() if check.name == "java"]
    assert java.state == "wrong"
    assert java.hint is not None
    assert "openjdk-17" in java.hint


def test_an_old_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("""#!/bin/sh\necho 'openjdk version "11.0.2" 2019-01-15' >&2\n""")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    [check] = [check for check in machine_checks() if check.name == "java"]
    assert (check.state, "17 or newer" in check.text) == ("wrong", True)


def test_sql_that_cannot_be_parsed(tmp_path: Path) -> None:
    project(tmp_path, sql="SHOW STREAMS;\nCREATE STREEM x;")
    [check] = [check for check in project_checks(tmp_path) if check.name == "pipelines"]
    assert check.state == "wrong"
    assert check.text.startswith("pipelines/one.sql:2:8: ")


def test_settings_that_are_wrong(tmp_path: Path) -> None:
    assert states(project(tmp_path, "[server\n")) == {"project": "wrong"}


def test_a_full_disk(tmp_path: Path) -> None:
    assert states(project(tmp_path, f"[log]\nmin_free_bytes = {1 << 60}\n"))["disk"] == "wrong"


def test_a_port_in_use_and_an_open_door(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        found = states(project(tmp_path, f'[server]\nport = {port}\nhost = "0.0.0.0"\n'))
    assert (found["port"], found["access"]) == ("wrong", "wrong")


def test_the_exit_code_says_whether_something_is_wrong(headrace: Headrace, tmp_path: Path) -> None:
    project(tmp_path / "ill", "[server\n")
    said = headrace("doctor", "--project", "ill", "--json")
    assert said.code == 1
    body = json.loads(said.out)
    assert body["ok"] is False
    assert [check["name"] for check in body["checks"] if check["state"] == "wrong" and check["name"] == "project"]
    assert "✗ project" in headrace("doctor", "--project", "ill").out
