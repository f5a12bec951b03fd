"""Cancels work that runs beyond its deadline, and reports an event loop or interpreter that stands still.

Queries look at the clock between chunks of rows. An expression that takes long for a single row never gets there, so a
thread of its own looks too: it raises `Cancelled` in the thread that evaluates the query, which any Python code
notices. Code in C that keeps the interpreter cannot be cancelled; for that the stacks of all threads are written to
the log while it lasts, and the queries that were running are named afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

from headrace.errors import DeadlineExceeded

T = TypeVar("T")

GRACE_S = 1.0
"""How long after its deadline work is left to notice that by itself."""
AGAIN_S = 5.0
"""When to raise again in a thread where the first exception was lost (in a destructor, or a callback of SQLite)."""
LOOK_S = 0.25
BLOCKED_S = 2.0
"""An event loop that does nothing for so long is reported."""
FROZEN_S = 10.0
"""An interpreter that no other thread gets is reported after this."""
STDERR = 2
SHOWN = 2000
"""Characters of a query in the log."""

logger = logging.getLogger("headrace.watchdog")


class Cancelled(BaseException):
    """Raised in a thread whose work is beyond its deadline. Not an `Exception`: nothing may take it for a bad value."""


@dataclass(slots=True, eq=False)
class Work:
    what: str
    seconds: float
    thread: int
    began: float
    cancelled_at: float | None = field(default=None)


class Watchdog:
    """Knows which thread evaluates which query. `call` may be used before `start` and after `close`; then nothing is
    cancelled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[Work] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread, self._beat, self._blocked, self._armed = 0, 0.0, False, 0.0
        self.cancelled = 0
        """Queries cancelled so far."""
        self.blocked = 0
        """How often the event loop, or the whole interpreter, stood still."""

    def call(self, what: str, seconds: float, function: Callable[..., T], *arguments: object) -> T:
        """Call the function in this thread. `DeadlineExceeded` if it did not end within `seconds` and some grace."""
        work = Work(what, seconds, threading.get_ident(), time.monotonic())
        with self._lock:
            self._running.add(work)
        try:
            try:
                return function(*arguments)
            finally:
                self._leave(work)
        except BaseException:
            # A second time: `Cancelled` may have come while leaving.
            self._leave(work)
            if work.cancelled_at is None:
                raise
        raise DeadlineExceeded(
            f"the query was cancelled: it took longer than `{seconds:g}` s",
            detail="evaluating a single row took too long",
            hint="use simpler expressions, or let it run on (CREATE TABLE … AS SELECT)",
        )

    def _leave(self, work: Work) -> None:
        with self._lock:
            self._running.discard(work)
            if work.cancelled_at is not None:
                # One that was raised and has not arrived must not meet whatever this thread does next.
                _raise_in(work.thread, None)

    # The thread that looks

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Begin to look. With `loop` (the one that runs in this thread) also after it, and after the interpreter."""
        self._loop, self._loop_thread, self._beat = loop, threading.get_ident(), time.monotonic()
        self._thread = threading.Thread(target=self._look_on, name="headrace-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _look_on(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(LOOK_S):
            now = time.monotonic()
            if now - before > FROZEN_S:
                self.blocked += 1
                logger.error("the interpreter stood still for %.0f s%s", now - before, self._shown(now))
            before = now
            try:
                self._cancel_late(now)
                self._look_at_loop(now)
            except Exception:
                logger.exception("the watchdog failed to look")
        if self._loop is not None:
            faulthandler.cancel_dump_traceback_later()

    def _cancel_late(self, now: float) -> None:
        with self._lock:
            for work in self._running:
                late = now - work.began > work.seconds + GRACE_S
                if late and (work.cancelled_at is None or now - work.cancelled_at > AGAIN_S):
                    if work.cancelled_at is None:
                        self.cancelled += 1
                    work.cancelled_at = now
                    stack = _stack_of(work.thread)
                    _raise_in(work.thread, Cancelled)
                    logger.error(
                        "cancelled after %.1f s (deadline %g s): %s\n%s",
                        now - work.began,
                        work.seconds,
                        work.what[:SHOWN],
                        stack,
                    )

    def _look_at_loop(self, now: float) -> None:
        if self._loop is None:
            return
        if now - self._armed > 1.0:
            # Written by a thread in C, which needs no interpreter.
            self._armed = now
            faulthandler.dump_traceback_later(FROZEN_S, file=STDERR)
        if now - self._beat > BLOCKED_S and not self._blocked:
            self._blocked = True
            self.blocked += 1
            logger.error(
                "the event loop has been blocked for %.1f s%s\n%s",
                now - self._beat,
                self._shown(now),
                _stack_of(self._loop_thread),
            )
        with contextlib.suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(self._beats)

    def _beats(self) -> None:
        now = time.monotonic()
        if self._blocked:
            logger.error("the event loop goes on after %.1f s", now - self._beat)
        self._beat, self._blocked = now, False

    def _shown(self, now: float) -> str:
        with self._lock:
            running = [f"{now - work.began:.1f} s: {work.what[:SHOWN]}" for work in self._running]
        return "; running: " + "; ".join(running) if running else ""


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Raise an exception in another thread at its next step in Python; None takes back one that has not arrived."""
    raised = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


def _stack_of(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame, 30)).rstrip()
