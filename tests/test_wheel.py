"""The wheel is the product: it must work where there is nothing but Python and Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import free_port, wait_for

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    # The backend is in the environment already; isolation would only fetch it again.
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    [file] = folder.glob("*.whl")
    return file


@pytest.mark.slow
def test_it_holds_the_console_and_the_connector(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "headrace/console/index.html" in names
    assert "headrace/process/jars/headrace-spark.jar" in names
    assert not [name for name in names if "node_modules" in name or name.startswith(("tests/", "benchmarks/"))]


@pytest.mark.slow
def test_it_runs_from_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "env"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
    python = environment / "bin" / "python"
    locked = ["--constraint", str(without_hashes(ROOT / "requirements" / "dev.lock", tmp_path))]
    subprocess.run([*uv, "pip", "install", "--quiet", "--python", str(python), *locked, str(wheel)], check=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}

    def headrace(*arguments: str, cwd: Path = tmp_path) -> str:
        command = [str(environment / "bin" / "headrace"), *arguments]
        done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    headrace("init", "shop")
    project = tmp_path / "shop"
    port = free_port()
    headrace("up", "--detach", "--port", str(port), cwd=project)
    try:
        [topic] = [
            t for t in json.loads(headrace("topic", "list", "--json", cwd=project))["topics"] if not t["internal"]
        ][:1]
        event = json.dumps({"userid": "ann", "pageid": "/hello", "viewtime": "2026-11-15T12:00:00Z"})
        headrace("topic", "put", topic["name"], event, cwd=project)

        def counted() -> bool:
            views = json.loads(headrace("view", "list", "--json", cwd=project))["views"]
            return any(view["rows"] > 0 for view in views)

        wait_for(counted, 60, "the event in a view")
    finally:
        headrace("down", cwd=project)


def without_hashes(lock: Path, folder: Path) -> Path:
    """Constraints cannot carry hashes for a wheel that is not in the lock."""
    pins = [line.split(" ")[0] for line in lock.read_text().splitlines() if "==" in line and not line.startswith(" ")]
    file = folder / "constraints.txt"
    file.write_text("\n".join(pins) + "\n")
    return file
