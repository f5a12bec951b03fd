"""As many random queries as you like: python -m tests.process.oracle --queries 2000 --seed 7"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from headrace.config import SparkSettings
from headrace.process.jvm import spark_session
from tests.process.oracle.queries import random_chain
from tests.process.oracle.run import AT_ONCE, compare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--layers", action="store_true", help="also as Lambda views, where they can be")
    options = parser.parse_args()
    spark = spark_session(SparkSettings(master="local[2]", memory="1g", shuffle_partitions=2), "headrace oracle")
    wrong = 0
    for first in range(0, options.queries, AT_ONCE):
        seed = options.seed + first
        with tempfile.TemporaryDirectory(prefix="headrace-oracle-") as folder:
            count = min(AT_ONCE, options.queries - first)
            differences = compare(spark, Path(folder), seed, count, make=random_chain, layers=options.layers)
        wrong += len(differences)
        print(f"{first + AT_ONCE} queries (seed {seed}): {wrong} differences so far", flush=True)
        print("\n".join(differences), end="\n" if differences else "", flush=True)
    spark.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
