"""What several tests need: ports, waiting for a condition, the real `headrace` as a process."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

BUSY = 4.0

SEED = 414_056_795
"""CI's chaos tests all draw from this seed, so that a change is judged by what it changes. `make chaos` draws others.
With this one, two sessions of a key begin at the same time (`tests.chaos.operators`)."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def open_to_all(folder: Path) -> None:
    """Let whoever becomes somebody else in a test reach its folder: pytest keeps its own to itself."""
    for above in (folder, *folder.parents):
        if above == Path(tempfile.gettempdir()):
            return
        above.chmod(0o777)


def let_pass(seconds: float) -> None:
    """Time in which faults may strike, or a fault lasts. Nothing is expected of its end: to wait for something, use
    `wait_for`."""
    threading.Event().wait(seconds)


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Until the condition holds. A server that is not there (yet, or for a moment) counts as "no". On a machine that is
    busy everything takes longer, and a test must not fail for that."""
    seconds *= BUSY
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        try:
            if condition():
                return
        except (httpx.HTTPError, KeyError):
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        pause.wait(0.05)
