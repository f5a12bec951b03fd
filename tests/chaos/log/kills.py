"""Kill -9 of the writer, at random moments, and at exactly the n-th system call of a kind."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.chaos.log.ledger import Broken, Ledger, check, run_workload

Say = Callable[[str], None]
CALLS = ("pwritev,pwritev2,pwrite64,write", "fdatasync", "fsync", "rename,renameat,renameat2", "unlink,unlinkat")
ROWS = 25
CHECK_EVERY, SAY_EVERY = 20, 20
"""Reading everything after each kill would take longer than all else; the next check sees what an earlier one would."""


def kill_often(folder: Path, rounds: int, records: int, seed: int, say: Say) -> None:
    """The writer is killed `rounds` times while it writes `records`; then the rest is written."""
    chance, ledger, sent = random.Random(seed), Ledger(), 0
    for number in range(rounds):
        first, left = ledger.next, rounds - number
        steps = max(2, 2 * (records - first) // ROWS // left)
        run_workload(folder, ledger, first, records, rows=ROWS, kill_after=chance.randrange(1, steps))
        sent = max(sent, ledger.next + ROWS)
        if left % CHECK_EVERY == 1 or number < CHECK_EVERY:
            check(folder, ledger, sent)
        if left % SAY_EVERY == 1:
            say(f"killed {number + 1} times: {len(ledger.acknowledged)} acknowledged, all there, once")
        if ledger.failed:
            raise Broken(f"failed without a fault: {sorted(ledger.failed)[:5]}")
    run_workload(folder, ledger, ledger.next, max(1, records - ledger.next), rows=ROWS)
    check(folder, ledger, max(sent, records))
    if not ledger.done:
        raise Broken("the last writer did not finish")
    say(f"killed {rounds} times: {len(ledger.acknowledged)} acknowledged, all there, once")


def kill_at_calls(folder: Path, calls: str, every: int, records: int, say: Say, first: int = 1) -> int:
    """For n = first, first + every, …: a new log, a writer killed at its n-th call of these, until it is done before
    that. The log must open, hold what was acknowledged, and take the rest. Returns how often it was killed."""
    place = first
    while True:
        here, ledger = folder / f"{calls.partition(',')[0]}-{place}", Ledger()
        run_workload(here, ledger, 0, records, *strace(calls, f"signal=KILL:when={place}"))
        if ledger.done:
            return (place - first) // every
        check(here, ledger, ledger.next + 1)
        again = Ledger()
        run_workload(here, again, ledger.next, records - ledger.next)
        if not again.done:
            raise Broken(f"killed at {calls} number {place}: the next writer did not finish")
        ledger.acknowledged |= again.acknowledged
        check(here, ledger, records)
        shutil.rmtree(here)
        say(f"killed at {calls.partition(',')[0]} number {place}: {len(ledger.acknowledged)} acknowledged")
        place += every


def strace(calls: str, fault: str) -> tuple[str, ...]:
    """A command that runs another one with faults. Counts calls by thread; `-f`: of all threads."""
    return ("strace", "-f", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:{fault}")
