"""A disk that is full, and one that fails: no acknowledgement for what was not synced."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import run

from tests.chaos.log.kills import Say, strace
from tests.chaos.log.ledger import Broken, Ledger, check, run_workload

FAULTS = {
    "fdatasync": "error=EIO",
    "fsync": "error=EIO",
    "pwritev,pwritev2,pwrite64": "error=ENOSPC",
    "rename,renameat,renameat2": "error=EIO",
    "unlink,unlinkat": "error=EIO",
}


def fail_calls(folder: Path, rounds: int, records: int, seed: int, say: Say) -> None:
    """Each round another call fails once, somewhere; the writer goes on, and says what failed."""
    chance = random.Random(seed)
    for number in range(rounds):
        here, ledger = folder / f"fault-{number}", Ledger()
        call = chance.choice(list(FAULTS))
        place = chance.randrange(1, 2 * records if call.startswith(("fdatasync", "pwritev")) else records // 5)
        run_workload(here, ledger, 0, records, *strace(call, f"{FAULTS[call]}:when={place}"))
        if not ledger.done and ledger.acknowledged:
            raise Broken(f"{call} number {place} failed, and the writer ended")
        check(here, ledger, records)
        again = Ledger()
        for first, after in runs(set(range(records)) - ledger.acknowledged):
            run_workload(here, again, first, after - first)
        if ledger.acknowledged | again.acknowledged != set(range(records)):
            raise Broken(f"{call} number {place} failed once, and the log takes no more")
        shutil.rmtree(here)
        say(f"{call} number {place} failed: {len(ledger.failed)} steps refused")


def runs(numbers: set[int]) -> list[tuple[int, int]]:
    """Consecutive numbers as ranges."""
    firsts = sorted(n for n in numbers if n - 1 not in numbers)
    afters = sorted(n + 1 for n in numbers if n + 1 not in numbers)
    return list(zip(firsts, afters, strict=True))


def fill_disk(folder: Path, rounds: int, records: int, seed: int, say: Say) -> None:
    """A small disk runs full again and again, each time with another record half written; room is made; it goes on."""
    chance = random.Random(seed)
    with small_disk(folder, megabytes=6) as disk:
        ledger, ever = Ledger(), 0
        for number in range(rounds):
            filler = fill(disk, leave=chance.randrange(40_000, 400_000))
            refused = Ledger()
            first = ledger.next
            run_workload(disk / "data", refused, first, records)
            filler.unlink()
            ledger.acknowledged |= refused.acknowledged
            ledger.failed, ever = refused.failed, ever + len(refused.failed)  # sent again by the next round
            check(disk / "data", ledger, first + records)
            say(f"full {number + 1}: {len(refused.acknowledged)} taken, {len(refused.failed)} refused")
        if not ever:
            raise Broken("the disk was never full")


def fill(disk: Path, leave: int) -> Path:
    """A file that leaves so many bytes free."""
    filler, room = disk / "filler", os.statvfs(disk)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, room.f_bavail * room.f_frsize - leave))
    return filler


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        run(["umount", "--lazy", str(folder)], check=True)  # a log that did not open may hold files
