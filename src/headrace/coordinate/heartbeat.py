"""Heartbeats: how a child process shows its supervisor that it is not frozen.

The child has the writing end of a pipe and writes a byte to it every second, after it has asked the part of itself that
does the work: the server its event loop, the engine its JVM. A pipe needs no disk, no port and no clock, and it works
while the HTTP port is flooded: a server with too many clients is busy, not frozen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable

HEARTBEAT = "HEADRACE_HEARTBEAT"
"""Environment variable with the number of the pipe's descriptor."""
EVERY_S = 1.0
LONGEST_STEP_S = 1.0
"""How much one look of the supervisor adds to a silence at the most. A machine that slept, or that gives the supervisor
no time either, says nothing about its children."""

logger = logging.getLogger("headrace.heartbeat")


class Heartbeat:
    """Beats from a thread, every second, for as long as `probe` returns. Until a probe is given only the process itself
    is asked: opening a large log takes its time. Does nothing in a process without a supervisor."""

    def __init__(self) -> None:
        self._probe: Callable[[], object] | None = None
        number = os.environ.pop(HEARTBEAT, None)
        if number is None:
            return
        self._pipe = int(number)
        # Processes that this one starts must not keep the pipe open.
        os.set_inheritable(self._pipe, False)
        os.set_blocking(self._pipe, False)
        threading.Thread(target=self._run, name="headrace-heartbeat", daemon=True).start()

    def probe(self, probe: Callable[[], object]) -> None:
        """Ask this before each beat. It may block: then there is no beat."""
        self._probe = probe

    def probe_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        self.probe(lambda: asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result())

    def _run(self) -> None:
        resting = threading.Event()
        while True:
            if self._probe is not None:
                try:
                    self._probe()
                except Exception:
                    # It answered, if only with an error; whoever needs what failed reports it.
                    logger.debug("the probe failed", exc_info=True)
            # The pipe is full, or the supervisor is gone.
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(self._pipe, b".")
            resting.wait(EVERY_S)


class Silence:
    """The supervisor's side: for how long a child has not been heard. Counts from the first beat on, since importing
    modules on a busy machine may take any time."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._heard = False
        self._seconds = 0.0

    def handed_over(self) -> None:
        """The child has its own copy of the writing end."""
        os.close(self.writing)

    def after(self, elapsed: float) -> float:
        """Seconds of silence, `elapsed` seconds after the last look."""
        try:
            beats = os.read(self._reading, 65_536)
        except BlockingIOError:
            beats = b""
        if beats:
            self._heard, self._seconds = True, 0.0
        elif self._heard:
            self._seconds += min(elapsed, LONGEST_STEP_S)
        return self._seconds

    def close(self) -> None:
        os.close(self._reading)
