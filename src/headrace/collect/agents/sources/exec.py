"""`exec`: the lines a command prints."""

from __future__ import annotations

import logging
import os
import selectors
import shlex
import subprocess
import sys
import time

from headrace.collect.agents.base import AgentError, Event, PollingSource
from headrace.collect.agents.options import ComponentKind, Context, Option

logger = logging.getLogger("headrace.agent.exec")

MAX_LINE = 8 * 1024 * 1024


class ExecSource(PollingSource):
    """Lines have no place to go back to: what the command printed while nobody listened is gone, as with Flume's. For
    files there is `TAILDIR`."""

    def __init__(
        self,
        command: str,
        shell: str = "",
        batch_size: int = 20,
        batch_s: float = 3.0,
        restart: bool = False,
        throttle_s: float = 10.0,
        show_errors: bool = False,
    ) -> None:
        self._command = [*shlex.split(shell), command] if shell else shlex.split(command)
        self._batch_size, self._batch_s = batch_size, batch_s
        self._restart, self._throttle_s, self._show_errors = restart, throttle_s, show_errors
        self._process: subprocess.Popen[bytes] | None = None
        self._selector = selectors.DefaultSelector()
        self._lines: list[bytes] = []
        self._buffer = b""
        self._first_at = 0.0
        self._again_at = 0.0
        self._given = 0
        self._ended = False

    def poll(self) -> list[Event]:
        if self._process is None and not self._ended and time.monotonic() >= self._again_at:
            self._start()
        if self._process is not None and len(self._lines) < self._batch_size:
            self._read()
        full = len(self._lines) >= self._batch_size
        late = bool(self._lines) and time.monotonic() - self._first_at >= self._batch_s
        if not (full or late or (self._lines and self._process is None)):
            return []
        self._given = min(len(self._lines), self._batch_size)
        return [Event(line) for line in self._lines[: self._given]]

    def taken(self) -> None:
        del self._lines[: self._given]
        self._given, self._first_at = 0, time.monotonic()

    @property
    def done(self) -> bool:
        return self._ended and not self._lines

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sys.stderr if self._show_errors else subprocess.DEVNULL,
            )
        except OSError as error:
            self._again_at = time.monotonic() + self._throttle_s
            raise AgentError(f"`{self._command[0]}` cannot be run: {(error.strerror or str(error)).lower()}") from None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    def _read(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        if not self._selector.select(0.1):
            return
        data = os.read(process.stdout.fileno(), 256 * 1024)
        if not data:
            self._end(process)
            return
        if not self._lines:
            self._first_at = time.monotonic()
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > MAX_LINE:
            lines, self._buffer = [*lines, self._buffer], b""
        self._lines += lines

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._selector.unregister(process.stdout)
        process.stdout.close()
        code = process.wait()
        logger.info("`%s` ended with %d", self._command[0], code)
        if self._buffer:
            self._lines, self._buffer = [*self._lines, self._buffer], b""
        self._process = None
        self._again_at = time.monotonic() + self._throttle_s
        self._ended = not self._restart

    def close(self) -> None:
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self._selector.close()


def _make(context: Context) -> ExecSource:
    options = context.options
    return ExecSource(
        options.text("command"),
        options.text("shell"),
        options.integer("batchSize"),
        options.integer("batchTimeout") / 1000,
        options.flag("restart"),
        options.integer("restartThrottle") / 1000,
        options.flag("logStdErr"),
    )


KIND = ComponentKind(
    "source",
    ("exec", "org.apache.flume.source.ExecSource"),
    "The lines a command prints.",
    _make,
    (
        Option("command", "text", None, "What to run.", required=True),
        Option("shell", "text", "", "A shell to run it with, such as `/bin/sh -c`; without one there are no pipes."),
        Option("restart", "flag", False, "Run it again when it ends."),
        Option("restartThrottle", "integer", 10_000, "Milliseconds until then.", least=0),
        Option("logStdErr", "flag", False, "Show what it complains about."),
        Option("batchSize", "integer", 20, "Most lines at once.", least=1),
        Option("batchTimeout", "integer", 3000, "Milliseconds that lines wait for more of them.", least=0),
        Option("charset", "text", "UTF-8", "Accepted; bytes are taken as they are."),
    ),
)
