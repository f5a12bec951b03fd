"""`make demo`: the page-view project and a website that never sleeps. Ctrl-C stops both; the data stays."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import IO, Any

HERE = Path(__file__).resolve().parent
PR_SET_PDEATHSIG = 1

TRY = """
  Page views are arriving (about 300 a second). Watch them:  {url}

  Try, in another terminal:
    curl -d '{{"userid":"you","pageid":"/hello"}}' {url}/v1/topics/pageviews/events
    {headrace} view watch views_by_page --project {here}
    {headrace} sql --project {here} -e "SELECT pageid, views FROM views_by_page ORDER BY views DESC LIMIT 5;"
  Deploy a mistake, find out what it did, and undo it:  {here}/README.md
  Ctrl-C stops. Data is kept in {here}/.headrace; `make demo` again continues.
"""


class Demo:
    def __init__(self, arguments: list[str]) -> None:
        self._started = time.monotonic()
        up = [sys.executable, "-m", "headrace.cli.main", "up", "--json", "--project", str(HERE), *arguments]
        self._up = start(up, stdout=subprocess.PIPE)
        self._generator: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def run(self) -> int:
        signal.signal(signal.SIGINT, self.stop)
        signal.signal(signal.SIGTERM, self.stop)
        assert self._up.stdout is not None
        for line in self._up.stdout:
            self._hear(json.loads(line))
        code = self._up.wait()
        self._stop_generator()
        return 0 if self._stopping else code

    def stop(self, number: int, frame: FrameType | None) -> None:
        """The website first, then what takes its events. Pressed twice, at once."""
        if not self._stopping:
            print("\n  stopping …", flush=True)
        self._stopping = True
        self._stop_generator()
        if self._up.poll() is None:
            self._up.send_signal(signal.SIGINT)

    def _hear(self, notice: dict[str, Any]) -> None:
        match notice["event"]:
            case "ready" if not self._stopping:
                self._ready(notice["text"])
            case "waiting" if sys.stdout.isatty():
                print(f"\r\033[K  {'headrace':<13} … waiting for {notice['text']}"[:100], end="", flush=True)
            case "died" | "failed" | "restarted":
                print(f"  {notice['text']}", *notice.get("lines", []), sep="\n    ", file=sys.stderr, flush=True)
            case "stopped":
                print(f"  stopped; data is kept in {short(HERE / '.headrace')}", flush=True)

    def _ready(self, url: str) -> None:
        clear = "\r\033[K" if sys.stdout.isatty() else ""
        print(f"{clear}  {'headrace':<13} ✓ ready {time.monotonic() - self._started:41.0f} s")
        print(TRY.format(url=url, headrace=headrace_command(), here=short(HERE)), flush=True)
        if self._generator is None:
            self._generator = start([sys.executable, str(HERE / "generator.py"), "--url", url])

    def _stop_generator(self) -> None:
        if self._generator is not None and self._generator.poll() is None:
            self._generator.terminate()
            self._generator.wait(20)


def start(command: list[str], stdout: int | IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """A child that Ctrl-C does not reach (we stop it in order) and that stops when we are killed."""
    libc = ctypes.CDLL(None)

    def stop_with_parent() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    return subprocess.Popen(command, stdout=stdout, start_new_session=True, preexec_fn=stop_with_parent)


def headrace_command() -> str:
    return short(Path(sys.executable).with_name("headrace"))


def short(path: Path) -> str:
    """As a person in this folder would type it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


if __name__ == "__main__":
    sys.exit(Demo(sys.argv[1:]).run())
