"""`python -m tests.chaos.hostile --cases 200000 --seed 7`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.hostile.run import run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(Path(folder), options.cases, options.seed)
    print(dict(sorted(outcome.statuses.items())), f"memory {outcome.megabytes} MB")
    print(f"a healthy client sent {outcome.healthy}, the slowest took {outcome.slowest_ms:.0f} ms")
    for problem in outcome.wrong[:50]:
        print(problem)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
