"""The engine's thread that tells the server how it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.coordinate.engine import Reporter
from headrace.coordinate.links import Link
from headrace.errors import NotRunning
from headrace.log.base import Log
from headrace.process.base import QueryStatus
from tests.log.support import open_owner
from tests.support import wait_for


class Telephone(Link):
    name = "the log"

    def __init__(self, log: Log) -> None:
        self._log = log
        self.calls: list[Exception] = [NotRunning("not there yet"), RuntimeError("can't start new thread")]
        self.told: list[Any] = []

    def connect(self) -> Log:
        if self.calls:
            raise self.calls.pop(0)
        return self._log

    def report(self, body: Any) -> None:
        self.told.append(body)

    def where(self, log: Log) -> Path:
        raise NotImplementedError


def test_it_goes_on_after_what_nobody_thought_of(tmp_path: Path) -> None:
    """Spark's Java process is gone while it is asked how far a question is, say."""
    log = open_owner(tmp_path / "log")
    link, errors = Telephone(log), [RuntimeError("Answer from Java side is empty")]

    def statuses() -> list[QueryStatus]:
        if errors:
            raise errors.pop()
        return []

    reporter = Reporter(link, statuses)
    reporter.start()
    try:
        wait_for(lambda: reporter.log(0.1) is log, 20, "a connection")
        wait_for(lambda: len(link.told) >= 2, 20, "reports")
        assert (link.calls, errors) == ([], []), "both went wrong before"
    finally:
        reporter.stop()
        log.close()
