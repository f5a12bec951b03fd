"""The examples of the pages about clients, groups and queues run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.running import running_server
from tests.test_docs import ROOT, steps

pytestmark = pytest.mark.slow

PYTHON = ["docs/reference/python-client.md", "docs/howto/use-a-queue.md"]
CONSOLE = ["docs/howto/consume-over-http.md", "docs/howto/use-a-queue.md"]


@pytest.mark.parametrize("page", PYTHON)
def test_python_runs(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)
    assert blocks
    with running_server(tmp_path, sql="") as server:
        program = "\n".join(blocks).replace("http://127.0.0.1:8080", f"http://127.0.0.1:{server.port}")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", CONSOLE)
def test_commands_run(page: str, tmp_path: Path) -> None:
    with running_server(tmp_path, sql="") as server:
        url = f"http://127.0.0.1:{server.port}"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "HEADRACE_URL": url, "COLUMNS": "120"}
        for step in steps(ROOT / page):
            command = step.command.replace("localhost:8080", f"127.0.0.1:{server.port}")
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
            )
            assert done.returncode == 0, f"$ {command}\n{done.stderr}"
            assert step.matches(done.stdout), f"$ {command}\n{done.stdout}\n-- expected --\n{step.expected}"
