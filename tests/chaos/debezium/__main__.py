"""A real PostgreSQL, a real Debezium Server and Headrace, killed under changes: the tables are the same, no row twice.

python -m tests.chaos.debezium --changes 300 --kills 8 --format cloudevents --seed 7
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from scripts.jars import JarsMissing
from tests.chaos.debezium.postgres import Missing
from tests.chaos.debezium.run import run
from tests.chaos.debezium.sender import FORMATS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=200, help="transactions")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--format", choices=FORMATS, default="json")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as a user of its own
        try:
            outcome = run(Path(folder), options.changes, options.kills, options.seed, options.format)
        except (Missing, JarsMissing) as missing:
            print(f"✗ {missing}")
            return 1
    kills = ", ".join(f"{count} × {victim}" for victim, count in outcome.kills.items())
    print(f"{outcome.told} changes as {options.format}, kills: {kills or 'none'}", *outcome.wrong, sep="\n")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
