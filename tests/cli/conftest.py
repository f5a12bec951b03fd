from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.cli.main import main


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


Headrace = Callable[..., Said]


@pytest.fixture
def headrace(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Headrace:
    """Run the command in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_URL", raising=False)
    monkeypatch.delenv("HEADRACE_KEY", raising=False)

    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["headrace", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Said(int(ended.value.code or 0), said.out, said.err)

    return run
