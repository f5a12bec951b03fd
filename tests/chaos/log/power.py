"""The power goes at a random moment of a traced run: whatever the disk may have kept opens, with all that was
acknowledged."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from headrace.errors import HeadraceError
from tests.chaos.log.disk import Disk
from tests.chaos.log.kills import Say
from tests.chaos.log.ledger import Broken, Ledger, check, run_workload
from tests.chaos.log.trace import Call, read_trace, strace

RECORDS = 80
UNSYNCED = ("stable", "owner.lock")
"""Mapped, or of no use after a crash: a former run's, or none."""


def lose_power(folder: Path, images: int, seed: int, say: Say) -> None:
    chance = random.Random(seed)
    root, trace = folder / "log", folder / "trace"
    root.mkdir()
    traced = Ledger()
    run_workload(root, traced, 0, RECORDS, *strace(trace))
    if not traced.done:
        raise Broken("the traced run did not finish")
    calls = list(read_trace(trace))
    moments = sorted(chance.randrange(len(calls)) for _ in range(images))
    disk, ledger = Disk(str(root)), Ledger()
    done = kept = 0
    for number, call in enumerate(calls):
        while moments and moments[0] == number:
            moments.pop(0)
            kept += open_image(disk, folder / "image", ledger, chance, f"call {number} of {len(calls)}")
            done += 1
            if done % 100 == 0:
                say(f"{done} images, each with all that was acknowledged")
        note(call, disk, ledger)
    if not ledger.acknowledged:
        raise Broken("the trace has no acknowledgement")
    say(f"{done} images of {len(calls)} calls opened; {kept / max(1, done):.0f} records on average")


def note(call: Call, disk: Disk, ledger: Ledger) -> None:
    if call.what == "say":
        for line in call.data.splitlines(keepends=True):
            ledger.note(line)
    else:
        disk.apply(call)


def open_image(disk: Disk, image: Path, ledger: Ledger, chance: random.Random, where: str) -> int:
    disk.write_image(image, chance)
    for name in UNSYNCED:
        (image / "log" / name).unlink(missing_ok=True)
    try:
        found = check(image, ledger, RECORDS)
    except (Broken, HeadraceError) as error:
        aside = image.with_name("broken")
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(image, aside)
        raise Broken(f"power lost at {where}: {error}") from error
    shutil.rmtree(image)
    return found
