"""The console in a real Chromium, against the real thing: no part of Headrace is replaced by something simpler."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request, expect, sync_playwright

from tests.support import free_port, wait_for

ROOT = Path(__file__).parent.parent.parent
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_S = 600

# On a busy machine Chromium is slow too, and a test must not fail for that.
PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)


# Not for the whole session: as long as Playwright is open, its event loop runs in this thread, and no other test can
# run one.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    assert Path(CHROMIUM).exists(), f"there is no Chromium at {CHROMIUM}; CHROMIUM names another"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=PATIENCE_MS)
        yield browser
        browser.close()


@dataclass
class Server:
    """A running Headrace, and what a test sends it."""

    url: str
    project: Path
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=90))

    def send(self, *events: dict[str, Any], topic: str = "pageviews") -> dict[str, Any]:
        answer = self.client.post(f"{self.url}/v1/topics/{topic}/events", json=list(events))
        assert answer.status_code in (200, 422), answer.text
        body: dict[str, Any] = answer.json()
        return body

    def get(self, path: str) -> Any:
        return self.client.get(f"{self.url}{path}").raise_for_status().json()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The page-view project as `make demo` has it, all of it, without the website."""
    project = tmp_path_factory.mktemp("demo") / "pageviews"
    shutil.copytree(ROOT / "examples" / "pageviews", project, ignore=shutil.ignore_patterns(".headrace"))
    up = [sys.executable, "-m", "headrace.cli.main", "up", "--json", "--project", str(project), "--port", "0"]
    log = (project.parent / "up.log").open("w")
    process = subprocess.Popen(up, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        server = Server(ready(process, process.stdout), project)
        yield server
        server.client.close()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(240)
        log.close()


def ready(process: subprocess.Popen[str], lines: IO[str]) -> str:
    """The address, once everything runs. The notices before it say what it waited for."""
    said = []
    timer = subprocess.Popen(["sleep", str(START_S)])
    try:
        for line in lines:
            notice = json.loads(line)
            said.append(notice["text"])
            if notice["event"] == "ready":
                url: str = notice["text"]
                return url
            assert timer.poll() is None, f"not ready after {START_S} s: {said[-1]}"
        raise AssertionError(f"headrace up ended with {process.wait()}: {said}")
    finally:
        timer.kill()
        timer.wait()


@dataclass
class Alone:
    """The server process without the engine: enough for what the console does when things are missing."""

    project: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "headrace.server.main", "--project", str(self.project)]
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stderr=subprocess.DEVNULL)
        wait_for(lambda: httpx.get(f"{self.url}/healthz").status_code == 200, 60, "the server")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(120)
            self.process = None


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Alone]:
    (tmp_path / "headrace.toml").write_text('name = "alone"\n')
    server = Alone(tmp_path, free_port())
    yield server
    server.stop()


LISTEN = """() => {
  window.said = [];
  const note = (change) => change.addedNodes.forEach((node) => window.said.push(node.textContent));
  new MutationObserver((changes) => changes.forEach(note)).observe(document.body, { childList: true, subtree: true });
}"""


@contextmanager
def notice(page: Page, text: str) -> Iterator[None]:
    """A notice that what is done here brings up. It is shown for seconds, in which a busy machine may not look."""
    page.evaluate(LISTEN)
    yield
    wait_for(lambda: page.evaluate("text => window.said.some((one) => one.includes(text))", text), 60, text)


class Watched:
    """What a page must not do: complain, fail, or ask anybody but its own server."""

    def __init__(self, page: Page) -> None:
        self.complaints: list[str] = []
        self.expected: tuple[str, ...] = ()
        page.on("console", self._console)
        page.on("pageerror", self._error)
        page.on("request", self._request)
        self._page = page

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in self.expected):
            self.complaints.append(f"{message.type}: {message.text}")

    def _error(self, error: Error) -> None:
        self.complaints.append(f"uncaught: {error}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            self.complaints.append(f"asked elsewhere: {request.url}")

    def expect(self, *texts: str) -> None:
        """Chromium logs every refused request: a test that provokes one says so."""
        self.expected = texts


@pytest.fixture
def watched(page: Page) -> Watched:
    found: Watched = page.watched  # type: ignore[attr-defined]
    return found


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1360, "height": 860}, locale="en-GB", accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    watching = Watched(page)
    page.watched = watching  # type: ignore[attr-defined]
    yield page
    context.close()
    assert watching.complaints == []
