"""How the engine tells the server about itself where no owner's socket connects them: a small file, written anew for
each report and read when it has changed. It is news, not state: nobody syncs it, and one of a dead process means
nothing."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from headrace.structs import ready

REPORT_FILE = "engine.json"
CHILDREN_FILE = "children.json"
"""Where the supervisor writes which of its children were restarted, and why."""
LOOK_S = 0.1


def write_report(file: Path, body: Any) -> None:
    """Readers see all of it or the one before."""
    draft = file.with_suffix(f".{os.getpid()}")
    draft.write_bytes(msgspec.json.encode(body))
    draft.replace(file)


class ChildEnd(msgspec.Struct, frozen=True):
    """How a child last ended without having been told to."""

    text: str
    time_ms: int


class ChildReport(msgspec.Struct, frozen=True):
    """A child, as `headrace status` shows it."""

    name: str
    pid: int | None
    restarts: int
    last_end: ChildEnd | None = None


def read_children(data: Path) -> list[ChildReport]:
    """Return what the running supervisor last wrote about its children; nothing if it has not yet."""
    try:
        return msgspec.json.decode((data / CHILDREN_FILE).read_bytes(), type=ready(list[ChildReport]))
    except (OSError, msgspec.DecodeError):
        return []


class ReportReader:
    """Hands each new report to `receive`, in a thread of its own, until closed. What was there before is old."""

    def __init__(self, file: Path, receive: Callable[[Any], Any]) -> None:
        self._file, self._receive = file, receive
        self._stop = threading.Event()
        self._seen = self._stamp()
        self._thread = threading.Thread(target=self._run, name="headrace-reports", daemon=True)
        self._thread.start()

    def _stamp(self) -> tuple[int, int]:
        try:
            found = self._file.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            stamp = self._stamp()
            if stamp != self._seen:
                self._seen = stamp
                with contextlib.suppress(OSError, msgspec.MsgspecError):
                    self._receive(msgspec.json.decode(self._file.read_bytes()))

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
