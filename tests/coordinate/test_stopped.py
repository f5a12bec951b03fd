"""Processes that a signal has stopped are told from those that are slow."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.coordinate.stopped import StoppedTime, read_state, working_processes
from tests.support import wait_for

PARENT = "import signal, subprocess, sys; subprocess.Popen([sys.argv[1], '3600']); signal.pause()"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A process, and one that it started and that is called `java`."""
    java = tmp_path / "java"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", java)
    with subprocess.Popen([sys.executable, "-c", PARENT, str(java)], process_group=0) as process:
        try:
            wait_for(lambda: len(working_processes(process.pid)) == 2, 60, "its child")
            yield process.pid, working_processes(process.pid)[1]
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def turn(pid: int, number: signal.Signals, letter: str) -> None:
    def is_there() -> bool:
        state = read_state(pid)
        return state is not None and state.letter == letter

    os.kill(pid, number)
    wait_for(is_there, 60, f"state {letter}")


@pytest.mark.parametrize("which", [0, 1], ids=["process", "jvm"])
def test_a_stopped_process_is_counted_while_it_is_stopped_at_every_look(engine: tuple[int, int], which: int) -> None:
    stopped, victim = StoppedTime(), engine[which]
    assert [stopped.after(0.5, engine[0]) for _ in range(3)] == [0.0, 0.0, 0.0], "it sleeps, which is no reason"
    turn(victim, signal.SIGSTOP, "T")
    assert [stopped.after(0.5, engine[0]) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert stopped.after(3600.0, engine[0]) == 2.0, "the supervisor itself did not run"
    turn(victim, signal.SIGCONT, "S")
    assert stopped.after(0.5, engine[0]) == 0.0
    turn(victim, signal.SIGSTOP, "T")
    assert [stopped.after(0.5, engine[0]) for _ in range(2)] == [0.0, 0.5]


def test_a_process_that_ran_between_two_looks_is_not_stopped() -> None:
    """It is stopped whenever it is looked at, but its processor time moves."""
    stopped = StoppedTime()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            for _ in range(3):
                turn(process.pid, signal.SIGSTOP, "T")
                assert stopped.after(1.0, process.pid) == 0.0
                before = read_state(process.pid)
                os.kill(process.pid, signal.SIGCONT)
                wait_for(lambda before=before: ticks(process.pid) > before.ticks, 60, "it to run")  # type: ignore[misc]
        finally:
            process.kill()


def ticks(pid: int) -> int:
    state = read_state(pid)
    assert state is not None
    return state.ticks


def test_a_process_that_has_ended_is_not_stopped() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert read_state(process.pid) is None
    assert StoppedTime().after(1.0, process.pid) == 0.0
