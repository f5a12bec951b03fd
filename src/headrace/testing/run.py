"""Runs a project's tests: each on logs of its own, through the real collector, planner and Spark, in several ways."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from headrace.config import Project
from headrace.errors import HeadraceError, UsageError
from headrace.process.failures import short_failure
from headrace.testing.cases import Case, load_cases
from headrace.testing.stage import Stage
from headrace.testing.ways import other_order, run_batches, run_pieces, run_stream, seed_of

SIDE_BY_SIDE = 4
SPARK_LOG = "tests.log"
"""Where Spark, and the Python functions that it calls, write while tests run."""
MOST_PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class TestResult:
    """One case and what differed; nothing if it passed."""

    __test__ = False

    file: str
    name: str
    differences: tuple[str, ...]
    seconds: float
    ways: tuple[str, ...] = ()
    """In which ways it was run."""

    @property
    def passed(self) -> bool:
        return not self.differences


def run_project_tests(
    project: Project,
    only: Sequence[str] = (),
    spark: SparkSession | None = None,
    report: Callable[[TestResult], None] = lambda result: None,
    seed: int = 0,
    quick: bool = False,
) -> list[TestResult]:
    """Run the cases whose names contain one of `only` (all, if there is none), several side by side; results come in
    their order. `seed` decides about cuts and orders; `quick` runs each as one stream and no more."""
    loaded = load_cases(project.folder)
    words = [word.lower() for word in only]
    cases = [(file, case) for file, case in loaded if not words or any(word in case.name.lower() for word in words)]
    if not cases:
        raise UsageError(
            "there is no such test" if loaded else "there are no tests",
            hint="there are: " + ", ".join(case.name for _, case in loaded) if loaded else "tests/*.toml holds them",
        )
    if spark is None:
        from headrace.process.jvm import spark_session

        with stderr_in(project.logs_folder / SPARK_LOG):
            spark = spark_session(project.settings.spark, f"tests of {project.name}")
    run = inheritable_thread_target(spark)(_run)
    results: list[TestResult] = []
    with ThreadPoolExecutor(min(SIDE_BY_SIDE, len(cases))) as pool:
        for result in pool.map(lambda one: run(project, *one, spark, seed, quick), cases):
            report(result)
            results.append(result)
    return results


@contextmanager
def stderr_in(file: Path) -> Iterator[None]:
    """Let processes that are started meanwhile write their errors and warnings to a file, for as long as they live: a
    JVM has much to say that is none of a test's business. If it cannot be started, all that it said is printed."""
    for folder in (file.parent.parent, file.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    with file.open("wb") as output:
        os.dup2(output.fileno(), 2)
    try:
        yield
    except BaseException:
        os.write(kept, file.read_bytes())
        raise
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _run(project: Project, file: Path, case: Case, spark: SparkSession, seed: int, quick: bool) -> TestResult:
    started = time.monotonic()
    found: dict[str, list[str]] = {}
    try:
        found.update(_ways(project, case, spark, seed, quick))
    except HeadraceError as error:
        found["it could not be run"] = str(error).splitlines()
    except Exception as error:
        # Of whatever kind: the other tests still have to run.
        found["it could not be run"] = [f"it failed in Spark: {short_failure(error)}"]
    return TestResult(file.name, case.name, tuple(_merged(found)), time.monotonic() - started, tuple(found))


def _ways(project: Project, case: Case, spark: SparkSession, seed: int, quick: bool) -> Iterator[tuple[str, list[str]]]:
    with Stage(project, case, spark) as stage:
        yield "as a stream", run_stream(stage, case)
        if quick:
            return
        yield "as a bounded batch", run_batches(stage, case)
        number = seed_of(case, seed)
        events = other_order(stage, case, number)
    chance = random.Random(number)
    with Stage(project, case, spark, chance.randint(1, MOST_PARTITIONS)) as stage:
        yield f"in pieces, with a restart (--seed {seed})", run_pieces(stage, case, events, chance)


def _merged(found: dict[str, list[str]]) -> Iterator[str]:
    """What differs is said once if it is the same in every way; else with the way."""
    lines = list(found.values())
    if all(one == lines[0] for one in lines):
        yield from lines[0]
        return
    for way, differing in found.items():
        yield f"{way}: {'as expected' if not differing else ''}".rstrip()
        yield from (f"  {line}" for line in differing)
