"""Damage of the index of event ids: it is found when the log is opened, and the index is made again from the log. No id
is taken twice, none is refused that is new."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.chaos.log import damage
from tests.chaos.log.kills import Say
from tests.chaos.log.ledger import Broken, check_ids
from tests.chaos.log.workload import open_workload, run

RECORDS = 130
Harm = Callable[[Path, random.Random], None]


def in_place(harm: Callable[[bytearray, random.Random], None]) -> Harm:
    def damaged(path: Path, chance: random.Random) -> None:
        content = bytearray(path.read_bytes())
        harm(content, chance)
        path.write_bytes(content)

    return damaged


def cut(path: Path, chance: random.Random) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(chance.randrange(size))


def remove(path: Path, chance: random.Random) -> None:
    path.unlink()


HARMS: tuple[Harm, ...] = (*[in_place(damage.flip_bit)] * 6, in_place(damage.zero_page), cut, remove)


def damage_ids(folder: Path, times: int, seed: int, say: Say) -> None:
    """One run or manifest at a time."""
    chance = random.Random(seed)
    whole, aside = folder / "whole", folder / "ids"
    log = open_workload(whole, archive=False)
    run(log, range(RECORDS), lambda line: None)
    log.close()
    ids = whole / "log" / "ids"
    shutil.copytree(ids, aside)
    names = sorted(path.relative_to(aside) for path in aside.rglob("*") if path.is_file())
    if not any(name.suffix == ".run" for name in names):
        raise Broken("there is no run to be damaged")
    for _ in range(times):
        name, harm = chance.choice(names), chance.choice(HARMS)
        harm(ids / name, chance)
        log = open_workload(whole, archive=False)
        try:
            check_ids(log, set(range(RECORDS)), RECORDS)
        except Broken as broken:
            raise Broken(f"`{name}` was damaged, and {broken}") from None
        finally:
            log.close()
        shutil.rmtree(ids)
        shutil.copytree(aside, ids)
    say(f"{times} times a part of the index of ids was damaged, of {len(names)} files; every id is known, and no other")
