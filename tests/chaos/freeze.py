"""Stop and starve each process of a project under load, and count: nothing is lost or doubled, and it is said.

A process that is stopped (SIGSTOP) for good must be noticed, killed and restarted by the supervisor. Within a minute
the project must be ready again and have counted an event that was sent since. The supervisor itself is stopped for a
while and continued: that must restart nobody. A process that gets a fifth of its time must come through.

    python -m tests.chaos.freeze --rounds 2 --seed 7
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.coordinate.reports import ChildReport, read_children
from tests.chaos.crash import Client, Installation, Outcome, caught_up, compare, ready
from tests.support import wait_for

FROZEN = ("server", "engine", "jvm")
RECOVERY_S = 60.0
"""For noticing, starting again and counting. It is not scaled: measure on a machine that does nothing else."""
PAUSE_S = 40.0
"""For how long the supervisor is stopped, and for how long others are starved: longer than `frozen_seconds`."""
RUNS_S, RESTS_S = 0.2, 0.8


@dataclass
class Frozen(Outcome):
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    """By process: seconds from the freeze until the project was ready and had counted an event sent since."""

    def __str__(self) -> str:
        taken = [f"{name} {max(seconds):.0f} s" for name, seconds in sorted(self.recoveries.items())]
        return f"{super().__str__()}\nlongest recoveries (within {RECOVERY_S:.0f} s): {', '.join(taken)}"


class Project:
    """The installation, with its JVM and what its supervisor reports."""

    def __init__(self, folder: Path) -> None:
        self.installation = Installation(folder)

    def pid(self, role: str) -> int:
        if role != "jvm":
            [found] = self.installation.pids(role)
            return found
        [engine] = self.installation.pids("engine")
        children = Path(f"/proc/{engine}/task/{engine}/children").read_text().split()
        [java] = [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]
        return java

    def child(self, role: str) -> ChildReport:
        name = "engine" if role == "jvm" else role
        [found] = [one for one in read_children(self.installation.folder / ".headrace") if one.name == name]
        return found

    def restarts(self) -> dict[str, int]:
        return {one.name: one.restarts for one in read_children(self.installation.folder / ".headrace")}


def freeze(project: Project, role: str, client: Client) -> tuple[float, str | None]:
    """Stop the process for good; the seconds until all is well again, and what is wrong with how it was reported."""
    before, pid, stopped = project.child(role), project.pid(role), time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: project.child(role).restarts > before.restarts, 120, f"the {role} to be restarted")
    end = project.child(role).last_end
    wait_for(lambda: ready(project.installation), 120, "it to be ready again")
    sent = client.acknowledged
    wait_for(lambda: client.acknowledged > sent, 120, "an event to be taken")
    wait_for(lambda: counted(project.installation) > sent, 120, "it to be counted")
    wrong = None if end and "did not answer" in end.text else f"{role}: reported as {end}"
    return time.monotonic() - stopped, wrong


def starve(pid: int) -> None:
    """Let a process run a fifth of the time."""
    until, resting = time.monotonic() + PAUSE_S, threading.Event()
    try:
        while time.monotonic() < until:
            os.kill(pid, signal.SIGSTOP)
            resting.wait(RESTS_S)
            os.kill(pid, signal.SIGCONT)
            resting.wait(RUNS_S)
    except ProcessLookupError:
        return  # it was restarted; that is checked by whoever called


def counted(installation: Installation) -> int:
    return sum(row[0] for row in installation.query("SELECT clicks FROM clicks_by_page;"))


def run(folder: Path, rounds: int, seed: int, say: Callable[[str], None] = lambda line: None) -> Frozen:
    project, outcome = Project(folder / "project"), Frozen()
    ledger = folder / "ledger.jsonl"
    client = Client(project.installation, ledger, seed)
    try:
        project.installation.up()
        wait_for(lambda: ready(project.installation), 90, "the first start")
        client.start()
        for _ in range(rounds):
            strike(project, client, outcome, say)
        client.finish.set()
        client.join(620)
        if client.failure or client.is_alive():
            outcome.differences.append(client.failure or "the client never finished")
            return outcome
        outcome.acknowledged = client.acknowledged
        wait_for(lambda: caught_up(project.installation, client.acknowledged), 180, "the queries to catch up")
        compare(project.installation, ledger, outcome)
        return outcome
    finally:
        client.finish.set()
        project.installation.down()


def strike(project: Project, client: Client, outcome: Frozen, say: Callable[[str], None]) -> None:
    for role in FROZEN:
        seconds, wrong = freeze(project, role, client)
        outcome.kills[f"frozen {role}"] += 1
        outcome.recoveries.setdefault(role, []).append(seconds)
        outcome.differences += [wrong] if wrong else []
        if seconds > RECOVERY_S:
            outcome.differences.append(f"the {role} was back after {seconds:.0f} s, not within {RECOVERY_S:.0f}")
        say(
            f"{role}: stopped, noticed, and well again after {seconds:.0f} s; {client.acknowledged} acknowledged so far"
        )
    for role in FROZEN:
        before = project.restarts()
        starve(project.pid(role))
        wait_for(lambda: ready(project.installation), RECOVERY_S, f"it to be ready after the {role} starved")
        outcome.kills[f"starved {role}"] += 1
        say(f"{role}: starved for {PAUSE_S:.0f} s; restarts {before} → {project.restarts()}")
    before, supervisor = project.restarts(), project.pid("supervisor")
    os.kill(supervisor, signal.SIGSTOP)
    threading.Event().wait(PAUSE_S)
    os.kill(supervisor, signal.SIGCONT)
    wait_for(lambda: ready(project.installation), RECOVERY_S, "it to be ready after the supervisor was stopped")
    outcome.kills["stopped supervisor"] += 1
    if project.restarts() != before:
        outcome.differences.append(f"a supervisor that was stopped restarted: {before} → {project.restarts()}")
    say(f"supervisor: stopped for {PAUSE_S:.0f} s and continued")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        outcome = run(Path(folder), options.rounds, options.seed, lambda line: print(line, flush=True))
    print(outcome)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
