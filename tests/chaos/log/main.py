"""All faults, at the length asked for."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos.log import damage, faults, id_care, ids, kills, power
from tests.chaos.log.kills import Say
from tests.chaos.log.ledger import Broken

Fault = Callable[[Path, int, Say], None]


def suite(scale: float) -> dict[str, Fault]:
    """Each fault with its full length times `scale`."""

    def times(full: int) -> int:
        return max(1, round(full * scale))

    def at_calls(folder: Path, seed: int, say: Say) -> None:
        every = max(1, round(1 / scale))
        for calls in kills.CALLS:
            count = kills.kill_at_calls(folder, calls, every, 60, lambda line: None, 1 + seed % every)
            say(f"killed at {count} places of {calls}")

    return {
        "kills": lambda at, seed, say: kills.kill_often(at, times(1_000), times(1_000_000), seed, say),
        "calls": at_calls,
        "power": lambda at, seed, say: power.lose_power(at, times(2_000), seed, say),
        "truncate": lambda at, _, say: none(damage.truncate_everywhere(at, 40, max(1, round(1 / scale)), say)),
        "bits": lambda at, seed, say: damage.flip_bits(at, times(10_000), seed, say),
        "pages": lambda at, seed, say: damage.zero_pages(at, times(1_000), seed, say),
        "ids": lambda at, seed, say: ids.damage_ids(at, times(2_000), seed, say),
        "id-care": lambda at, seed, say: id_care.care_for_ids(at, times(50), seed, say),
        "full": lambda at, seed, say: faults.fill_disk(at, times(20), 200, seed, say),
        "errors": lambda at, seed, say: faults.fail_calls(at, times(200), 40, seed, say),
    }


def none(_: object) -> None:
    """What a fault returns is for tests."""


def main() -> int:
    names = list(suite(1))
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.log", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(names) + "; all by default")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is the full length")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    if unknown := set(options.faults) - set(names):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    failed = 0
    print(f"seed {options.seed}", flush=True)
    for name in options.faults or names:
        failed += not run_fault(name, suite(options.scale)[name], options.seed)
    return 1 if failed else 0


def run_fault(name: str, fault: Fault, seed: int) -> bool:
    def say(line: str) -> None:
        print(f"{name}: {line}", flush=True)

    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        try:
            fault(Path(place), seed, say)
        except Broken as broken:
            say(f"BROKEN, seed {seed}: {broken}")
            return False
    say(f"good, {time.monotonic() - started:.0f} s")
    return True
