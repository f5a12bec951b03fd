"""Work beyond its deadline is cancelled wherever it is in Python, and nothing else is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from headrace.errors import DeadlineExceeded
from headrace.watchdog import Watchdog
from tests.support import wait_for

ENOUGH_S = 120.0


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    with Watchdog() as one:
        one.start()
        yield one


def spin() -> None:
    end = time.monotonic() + ENOUGH_S
    while time.monotonic() < end:
        pass
    raise AssertionError("nobody cancelled it")


def spin_and_swallow() -> None:
    with contextlib.suppress(Exception):
        spin()


def spin_in_sqlite() -> None:
    """SQLite makes an error of its own of whatever a function raises."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.create_function("spin", 0, spin)
        connection.execute("SELECT spin()")


@pytest.mark.parametrize("work", [spin, spin_and_swallow, spin_in_sqlite])
def test_what_never_looks_at_the_clock_is_cancelled(
    watchdog: Watchdog, work: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DeadlineExceeded, match="cancelled: it took longer than"):
        watchdog.call("SELECT spin()", 0.1, work)
    assert watchdog.cancelled == 1
    [said] = [record.getMessage() for record in caplog.records if "cancelled after" in record.getMessage()]
    assert "SELECT spin()" in said
    assert "in spin" in said


def test_others_and_what_the_thread_does_next_go_on(watchdog: Watchdog) -> None:
    """Work that ends at about its deadline: cancelled or not, no exception leaks out of `call`."""
    outcomes: list[str] = []
    stop = time.monotonic() + 6

    def work() -> None:
        while time.monotonic() < stop:
            began = time.monotonic()
            # The grace is a second: these end just before and after it.
            seconds = 0.2 + (len(outcomes) % 7) * 0.02

            def last(began: float = began) -> None:
                while time.monotonic() < began + 1.35:
                    pass

            try:
                watchdog.call("x", seconds, last)
                outcomes.append("done")
            except DeadlineExceeded:
                outcomes.append("cancelled")
            sum(range(20_000))
        outcomes.append("over")

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("over") == 2
    assert outcomes.count("cancelled") == watchdog.cancelled


def test_results_and_errors_are_those_of_the_work(watchdog: Watchdog) -> None:
    assert watchdog.call("x", 10, max, 1, 2) == 2
    with pytest.raises(ZeroDivisionError):
        watchdog.call("x", 10, lambda: 1 // 0)


def test_a_blocked_event_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with Watchdog() as watchdog:
            watchdog.start(asyncio.get_running_loop())
            block_until(lambda: watchdog.blocked == 1)
            while not any("goes on" in record.getMessage() for record in caplog.records):
                await asyncio.sleep(0.01)

    def block_until(done: Callable[[], bool]) -> None:
        wait_for(done, 60, "the loop is found blocked")

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    [said] = [record.getMessage() for record in caplog.records if "has been blocked" in record.getMessage()]
    assert "block_until" in said
