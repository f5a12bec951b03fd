"""`make conformance CASES=path.jsonl [REPORT=out.jsonl] [FILTER=tier or part of an id]`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from headrace.config import SparkSettings
from headrace.process.jvm import spark_session
from tests.conformance.case import CaseData, Result, load_cases
from tests.conformance.run import run_case

SIDE_BY_SIDE = 4


def run_cases(cases: list[CaseData], spark: SparkSession, side_by_side: int = SIDE_BY_SIDE) -> Iterator[Result]:
    """Several at once in one session; results in the order of the cases."""

    def run(case: CaseData) -> Result:
        result: Result = inheritable_thread_target(spark)(run_case)(case, spark)
        return result

    with ThreadPoolExecutor(side_by_side) as pool:
        yield from pool.map(run, cases)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--filter", default=None)
    arguments = parser.parse_args()
    if not arguments.cases.is_file():
        parser.error(f"there is no file `{arguments.cases}`")
    cases = load_cases(arguments.cases, arguments.filter)
    started = time.monotonic()
    settings = SparkSettings(master="local[2]", memory="2g", shuffle_partitions=1)
    spark = spark_session(settings, "conformance")
    results = []
    with contextlib.ExitStack() as stack:
        report = stack.enter_context(arguments.report.open("w")) if arguments.report else None
        for result in run_cases(cases, spark):
            results.append(result)
            if result.outcome == "failed":
                print(f"FAILED {result.id} ({result.tier})\n    {result.reason}", flush=True)
            if report is not None:
                print(result.report(), file=report, flush=True)
    for tier in sorted({result.tier for result in results}):
        counted = Counter(result.outcome for result in results if result.tier == tier)
        print(f"{tier}: {counted['passed']} of {counted.total()} passed")
    took = time.monotonic() - started
    print(f"{took:.0f} s, {took / max(1, len(results)):.2f} s a case")
    counted = Counter(result.outcome for result in results)
    print(f"{counted['passed']} passed, {counted['failed']} failed, {counted['skipped']} skipped")
    return 1 if counted["failed"] else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Spark's threads need not be waited for.
    os._exit(status)
