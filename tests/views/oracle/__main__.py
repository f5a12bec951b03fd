"""Random pipelines that are changed while events arrive: python -m tests.views.oracle --queries 500 --seed 7"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from headrace.config import SparkSettings
from headrace.process.jvm import spark_session
from tests.views.oracle.run import AT_ONCE, compare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="pipelines of a project")
    parser.add_argument("--verbose", action="store_true", help="say what is done")
    options = parser.parse_args()
    spark = spark_session(SparkSettings(master="local[2]", memory="1g", shuffle_partitions=2), "headrace live oracle")
    wrong, done, began = 0, Counter[str](), time.monotonic()

    def say(line: str) -> None:
        if options.verbose:
            print(f"  {time.monotonic() - began:.0f} s: {line}", flush=True)

    for first in range(0, options.queries, options.at_once):
        seed, count = options.seed + first, min(options.at_once, options.queries - first)
        with tempfile.TemporaryDirectory(prefix="headrace-oracle-") as folder:
            differences, tally = compare(spark, Path(folder), seed, count, say)
        wrong, done, tried = wrong + len(differences), done + tally, first + count
        told = ", ".join(f"{count} {what}" for what, count in sorted(done.items()))
        took = time.monotonic() - began
        print(f"{tried} pipelines (seed {seed}), {took:.0f} s: {wrong} differences; {told}", flush=True)
        print("\n".join(differences), end="\n" if differences else "", flush=True)
    spark.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
