"""The docs say what is so: links lead somewhere, SQL parses, and every command of the tutorial runs."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.coordinate.functions import deploy_functions
from tests.collect.brokers import mosquitto
from tests.collect.listeners import listeners_of
from tests.server.running import Running, running_server
from tests.support import free_port, wait_for

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def links_of(page: Path) -> list[Path]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    return [page.parent / target for target in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in target]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert [target for target in links_of(page) if not target.exists()] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, ahead = {ROOT / "README.md"}, [ROOT / "README.md"]
    while ahead:
        found = {link.resolve() for link in links_of(ahead.pop()) if link.suffix == ".md"} - reached
        reached |= found
        ahead += found
    # Of the decisions it names the folder.
    decisions = set((ROOT / "docs" / "decisions").glob("*.md"))
    assert set(PAGES) - decisions - reached == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sql_in_the_docs_parses(page: Path) -> None:
    from headrace.sql.api import parse

    for block in re.findall(r"```sql\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S):
        assert parse(block)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        "explanation/guarantees.md",
        "howto/consume-in-a-group.md",
        "howto/python-functions.md",
        "tutorial/python.md",
    ],
)
def test_python_in_the_docs_runs(page: str, tmp_path: Path) -> None:
    """The blocks of a page are one program, run in a project's folder."""
    (tmp_path / "headrace.toml").write_text("")
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.S))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Step:
    """A command of a console block, and what it must print: `…` stands for anything."""

    command: str
    expected: str

    def matches(self, output: str) -> bool:
        if self.expected.strip() in ("", "…"):
            return True
        pattern = ".*".join(re.escape(part) for part in self.expected.strip().split("…"))
        return re.search(pattern, output.strip(), flags=re.S) is not None


def steps(page: Path) -> Iterator[Step]:
    for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S):
        yield from steps_of(block)


def steps_of(block: str) -> Iterator[Step]:
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        yield Step(command, expected)


COLLECTING = [
    "alerts",
    "back-pressure",
    "cloudevents",
    "collectors",
    "debezium",
    "firehose",
    "functions-on-topics",
    "kinesis",
    "measurement-protocol",
    "flume",
    "mqtt",
    "one-way",
    "opentelemetry",
    "posthog",
    "prometheus",
    "publish-subscribe",
    "pull",
    "request-acknowledge",
    "request-response",
    "segment",
    "snowplow",
    "statsd",
    "syslog",
    "top-n",
    "udp",
    "web-logs",
    "webhooks",
]
"""Pages of docs/howto that are run from top to bottom against a server without Spark: SQL is stated, a TOML block that
begins with `# collectors/NAME.toml` or `# alerts/NAME.toml` is that file, so are properties that begin with `# NAME`
and a Python block that begins with `# functions/NAME.py`, console blocks are run, and other Python blocks are one
program each."""


@pytest.fixture(scope="module")
def collecting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Running]]:
    folder = tmp_path_factory.mktemp("collecting")
    with running_server(folder, sql="") as server, listeners_of(folder, server.services.log):
        yield folder, server


@pytest.mark.slow
@pytest.mark.parametrize("page", COLLECTING)
def test_the_pages_about_collecting_run(page: str, collecting: tuple[Path, Running]) -> None:
    folder, server = collecting
    (folder / "collectors").mkdir(exist_ok=True)
    for file in (folder / "collectors").glob("*"):
        file.unlink()
    url = f"http://127.0.0.1:{server.port}"
    with contextlib.ExitStack() as closing:
        text = (ROOT / "docs" / "howto" / f"{page}.md").read_text(encoding="utf-8").replace("localhost:8080", url[7:])
        for port in ("5514", "5515", "8125"):
            text = text.replace(port, str(free_port()))
        if "1883" in text:
            text = text.replace("1883", str(closing.enter_context(mosquitto(folder))[0]))
        assert run_page(text, folder, server), "a page shows something that runs"


def wait_for_collector(server: Running, name: str) -> None:
    """Until one that runs beside the server does."""
    wait_for(lambda: server.http.get(f"/v1/collectors/{name}").json()["state"] == "running", 20, f"collector `{name}`")


def run_page(text: str, folder: Path, server: Running) -> int:
    """How many of its examples ran."""
    url = f"http://127.0.0.1:{server.port}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "200", "HEADRACE_URL": url}

    def run(command: list[str]) -> str:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"$ {command[-1]}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    ran = 0
    for kind, block in re.findall(r"```(sql|toml|properties|console|python)\n(.*?)```", text, flags=re.S):
        if kind == "sql":
            assert server.http.post("/v1/statements", json={"sql": block}).status_code == 200
        elif kind == "toml" and (named := re.match(r"# (collectors/[\w.-]+)\n", block)):
            (folder / named[1]).write_text(block)
            server.services.gates.reload()
            assert server.services.gates.problems == ()
            name = Path(named[1]).stem
            if server.services.gates.named(name).definition.kind.start:
                wait_for_collector(server, name)
        elif kind == "toml" and (named := re.match(r"# (alerts/[\w.-]+)\n", block)):
            (folder / "alerts").mkdir(exist_ok=True)
            (folder / named[1]).write_text(block)
            server.services.alerts.look()
            assert server.services.alerts.problems == ()
        elif kind == "properties" and (named := re.match(r"# ([\w.-]+)\n", block)):
            (folder / named[1]).write_text(block)
        elif kind == "python" and (named := re.match(r"# (functions/[\w.-]+)\n", block)):
            (folder / "functions").mkdir(exist_ok=True)
            (folder / named[1]).write_text(block)
            found = deploy_functions(folder, server.services.catalog, server.services.statements.describe)
            assert [problem for file in found for problem in file.problems] == []
        elif kind == "python":
            run([sys.executable, "-c", block])
            ran += 1
        elif kind == "console":
            for step in steps_of(block):
                if step.command.startswith("sleep "):
                    # Whoever reads the page may wait and see; here it is asked again.
                    wait_for(lambda step=step: step.matches(run(["bash", "-c", step.command])), 10, step.command)  # type: ignore[misc]
                else:
                    output = run(["bash", "-c", step.command])
                    assert step.matches(output), f"$ {step.command}\n{output}\n-- expected --\n{step.expected}"
                ran += 1
    return ran


def tutorial() -> list[Step]:
    """Its pages, one after the other, as if nobody had gone home in between."""
    pages = [list(steps(ROOT / "docs" / "tutorial" / f"{name}.md")) for name in ("first-pipeline", "wrong-number")]
    assert [page[-1].command for page in pages] == ["headrace down"] * 2
    assert pages[1][0].command == "headrace up --detach"
    return pages[0][:-1] + pages[1][1:]


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path) -> None:
    port = str(free_port())
    folder = tmp_path
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}

    def run(command: str) -> str:
        command = command.replace("localhost:8080", f"localhost:{port}").replace(
            "up --detach", f"up --detach --port {port}"
        )
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        # 2 is a plan with changes, or a deployment that waits for somebody.
        fine = (0, 2) if command.startswith(("headrace plan", "headrace deploy")) else (0,)
        assert done.returncode in fine, f"$ {command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    done = 0
    try:
        for step in tutorial():
            if step.command.startswith("cd "):
                folder = folder / step.command[3:]
                continue
            output = run(step.command)
            assert step.matches(output), f"$ {step.command}\n{output}\n-- expected --\n{step.expected}"
            done += 1
    finally:
        subprocess.run([sys.executable, "-m", "headrace.cli.main", "down"], cwd=folder, env=environment, check=False)
    assert done > 35
