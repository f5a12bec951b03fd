"""Processes that a signal has stopped: noticed sooner than those that merely do not answer.

A process that does not answer may be slow: a disk that stalls, a long garbage collection, a machine with too much to
do. It is given `frozen_seconds`. One that the kernel reports as stopped (state `T`: SIGSTOP, not a debugger) at every
look, and that has used no processor time since, does not get on however long it is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.coordinate.heartbeat import LONGEST_STEP_S

SUSPECT_S = 3.0
"""After so much silence it is looked whether the process is stopped."""
STOPPED_S = 7.0
"""A process that is stopped for so long after that is frozen. One that is stopped and continued again and again runs in
between, and is not."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    letter: str
    """As in `ps`: `T` is stopped by a signal."""
    ticks: int
    """Processor time used so far."""
    started: int
    """Tells a process from a later one with the same number."""


def read_state(pid: int) -> ProcessState | None:
    """None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may contain anything.
    fields = text.rpartition(")")[2].split()
    return ProcessState(fields[0], int(fields[11]) + int(fields[12]), int(fields[19]))


def working_processes(pid: int) -> list[int]:
    """Return the process and the JVM that it started, if any: neither gets on without the other."""
    found = [pid]
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found += [int(child) for child in children if Path(f"/proc/{child}/comm").read_text() == "java\n"]
    except OSError:
        # One that ended meanwhile, or a kernel that does not list children.
        pass
    return found


class StoppedTime:
    """Counts for how long one of a child's processes has been stopped. Time in which the supervisor did not look counts
    for a second at the most."""

    def __init__(self) -> None:
        self._states: dict[int, ProcessState] = {}
        self._seconds = 0.0

    def after(self, elapsed: float, pid: int) -> float:
        """Return the seconds for which the same process was stopped at every look, `elapsed` seconds after the last
        look."""
        states = {one: state for one in working_processes(pid) if (state := read_state(one)) is not None}
        stopped = {one: state for one, state in states.items() if state.letter == "T"}
        still = {one: state for one, state in stopped.items() if self._states.get(one) == state}
        self._seconds = self._seconds + min(elapsed, LONGEST_STEP_S) if still else 0.0
        self._states = still or stopped
        return self._seconds

    def reset(self) -> None:
        self._states, self._seconds = {}, 0.0
