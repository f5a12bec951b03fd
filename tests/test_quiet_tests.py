"""`headrace test` prints results, and not what the JVM has to say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headrace.testing.run import stderr_in


def test_what_a_child_writes_is_in_the_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "logs" / "tests.log"
    with stderr_in(file):
        child = subprocess.Popen(["sh", "-c", "echo before >&2; read line; echo after >&2"], stdin=subprocess.PIPE)
    child.communicate(b"go\n", timeout=60)
    assert file.read_text() == "before\nafter\n", "it goes on writing there"
    subprocess.run(["sh", "-c", "echo others >&2"], check=True)
    assert capfd.readouterr().err == "others\n"


def test_what_kept_it_from_starting_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError), stderr_in(tmp_path / "tests.log"):
        subprocess.run(["sh", "-c", "echo no memory >&2; exit 1"], check=True)
    assert capfd.readouterr().err == "no memory\n"
