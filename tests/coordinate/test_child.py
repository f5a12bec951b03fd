"""Children: their logs, their deaths, their back-off, and that nobody is left over."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.clock import ManualClock
from headrace.config import Project, ProjectSettings
from headrace.coordinate import child as children
from headrace.coordinate.child import Child, leftovers, sweep, tail
from headrace.coordinate.local import UpLock
from headrace.coordinate.reports import read_children
from headrace.coordinate.supervisor import Notice, Supervisor
from tests.support import wait_for

SLEEPER = """
import signal, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("up", flush=True)
signal.pause()
"""
BEATING = """
import asyncio, signal, time
from headrace.coordinate.heartbeat import Heartbeat
heartbeat = Heartbeat()
async def main():
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(3600))
    heartbeat.probe_loop(asyncio.get_running_loop())
    print("up", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
PARENT = """
import sys
from pathlib import Path
from headrace.clock import SystemClock
from headrace.coordinate.child import Child
folder = Path(sys.argv[1])
child = Child("sleeper", ["sleeper"], folder / "sleeper.log", str(folder), SystemClock())
child.start()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes `python -m sleeper`, which starts a child of its own, runnable."""
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    (tmp_path / "beating.py").write_text(BEATING)
    (tmp_path / "failing.py").write_text("import sys; print('last words'); sys.exit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def make(folder: Path, name: str, clock: ManualClock) -> Child:
    return Child(name, [name], folder / f"{name}.log", str(folder), clock)


def gone(folder: Path) -> bool:
    return not list(leftovers(str(folder)))


def test_what_a_child_starts_ends_with_it(module: Path, clock: ManualClock) -> None:
    child = make(module, "sleeper", clock)
    child.start()
    wait_for(lambda: child.last_lines() == ["up"] and len(list(leftovers(str(module)))) == 2, 20, "both to run")
    assert child.died() is None
    child.kill()
    wait_for(lambda: gone(module), 10, "both to be gone")
    assert child.pid is None


def test_back_off_doubles_and_is_forgotten_after_a_good_run(module: Path, clock: ManualClock) -> None:
    child = make(module, "failing", clock)
    waits = []
    for _ in range(8):
        child.start()
        assert child.stopped_within(120)
        assert child.died() == 3
        waits.append(child.wait_s)
        assert not child.due()
        clock.advance(int(child.wait_s * 1000) + 1)
        assert child.due()
    assert waits == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30])
    assert child.failures == 8
    assert child.last_lines(1) == ["last words"]
    child.start()
    clock.advance(61_000)
    assert child.stopped_within(120)
    assert child.died() == 3
    assert child.wait_s == pytest.approx(0.5)


def test_being_killed_is_not_a_failure(module: Path, clock: ManualClock) -> None:
    child = make(module, "sleeper", clock)
    child.start()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    assert child.stopped_within(120)
    assert child.died() == -signal.SIGKILL
    assert child.failures == 0
    assert child.died() is None
    wait_for(lambda: gone(module), 10, "its own child to be gone")


def test_a_child_that_cannot_be_started_again_for_a_moment_takes_nothing_with_it(
    module: Path, clock: ManualClock
) -> None:
    notices: list[Notice] = []
    project = Project(module, ProjectSettings())
    supervisor = Supervisor(project, UpLock.acquire(module / "data"), 8088, clock, notices.append)
    child = Child("sleeper", ["sleeper"], module / "logs" / "sleeper.log", str(module), clock)
    child.start()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    assert child.stopped_within(120)
    assert supervisor._tend(child)
    # No room for its log; with no room for another process it is the same.
    (module / "logs").rename(module / "elsewhere")
    (module / "logs").write_text("")
    for _ in range(2):
        clock.advance(60_000)
        assert supervisor._tend(child)
        assert not child.due(), "it is put off"
    (module / "logs").unlink()
    clock.advance(60_000)
    assert supervisor._tend(child)
    assert [notice.kind for notice in notices] == ["died", "died", "died", "restarted"]
    assert "could not be started ([Errno 17] File exists" in notices[1].text
    child.kill()


@pytest.mark.parametrize(
    ("freeze", "text"),
    [
        (signal.SIGSTOP, r"did not answer for 1[0-2] s and was killed \(it was stopped by a signal\)"),
        (signal.SIGUSR1, r"did not answer for 30 s and was killed"),
    ],
)
def test_a_frozen_child_is_killed_and_started_again(
    module: Path, clock: ManualClock, freeze: signal.Signals, text: str
) -> None:
    """Stopped as a whole, which is noticed soon; or alive with an event loop that does not come back, which may be slow
    and is given more time."""
    notices: list[Notice] = []
    project = Project(module, ProjectSettings())
    project.data.mkdir()
    supervisor = Supervisor(project, UpLock.acquire(module / "lock"), 8088, clock, notices.append)
    child = supervisor._engine
    child._command[2:] = ["beating"]
    child.start()
    first = child.pid
    try:
        assert first is not None
        wait_for(lambda: child.last_lines() == ["up"], 60, "the child")
        wait_for(lambda: child.silent_s(0.01) > 0, 60, "a beat and the time after it")
        os.kill(first, freeze)
        # The supervisor itself did not run for an hour: the machine slept.
        assert supervisor._tend(child, 3600.0)
        assert notices == []

        def is_noticed() -> bool:
            return supervisor._tend(child, 0.5) and bool(notices)

        wait_for(is_noticed, 60, "the supervisor to notice")
        assert notices[0].kind == "frozen"
        assert re.fullmatch(rf"the engine \(pid {first}\) {text}; starting it again in .*", notices[0].text)
        clock.advance(60_000)
        assert supervisor._tend(child)
        assert [notice.kind for notice in notices] == ["frozen", "restarted"]
        [engine] = [one for one in read_children(project.data) if one.name == "engine"]
        assert (engine.pid, engine.restarts) == (child.pid, 1)
        assert engine.last_end is not None
        assert re.fullmatch(text, engine.last_end.text)
    finally:
        child.kill()


def test_a_child_is_not_frozen_while_it_starts(module: Path, clock: ManualClock) -> None:
    child = make(module, "sleeper", clock)
    child.start()
    assert [child.silent_s(0.5) for _ in range(1000)] == [0.0] * 1000
    child.kill()


def test_a_killed_parent_leaves_nobody_and_what_is_left_is_swept(module: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(module)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    wait_for(lambda: len(list(leftovers(str(module)))) == 2, 20, "child and grandchild to run")
    parent.kill()
    parent.wait()
    wait_for(lambda: pid not in list(leftovers(str(module))), 10, "the child to die with its parent")
    # The grandchild was not asked: the next supervisor ends it.
    assert len(sweep(str(module))) == 1
    wait_for(lambda: gone(module), 10, "the grandchild to be gone")


def test_a_large_log_is_put_aside(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "LOG_BYTES", 100)
    child = make(tmp_path, "failing", clock)
    child.log.write_text("x" * 99)
    child.rotate_log()
    assert child.log.stat().st_size == 99
    child.log.write_text("y" * 100)
    child.rotate_log()
    assert child.log.read_text() == ""
    assert child.log.with_suffix(".log.1").read_text() == "y" * 100


def test_the_tail_of_nothing(tmp_path: Path) -> None:
    assert tail(tmp_path / "none.log", 5) == []
    (tmp_path / "long.log").write_bytes(b"a\n" * 100_000 + b"\xff end")
    assert tail(tmp_path / "long.log", 2) == ["a", "� end"]
