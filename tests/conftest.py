"""What all tests share: one Spark session for those that need one (starting it takes longer than most of them), and no
deadlines for examples, because whichever comes first may have to load a library on a busy machine."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from pyspark.sql import SparkSession
from xdist.scheduler import LoadScopeScheduling

from headrace.config import SparkSettings
from headrace.process.jvm import spark_session
from tests.kafka import kafka

__all__ = ["kafka", "spark"]

ROOT = Path(__file__).parent.parent

# Nor does anything that is slow to begin with say anything about us.
SLOW = [hypothesis.HealthCheck.too_slow]
# What a change is judged by tries the same examples every time; `make oracle` looks for others, `make test-fast` tries
# some of them.
hypothesis.settings.register_profile("same", deadline=None, suppress_health_check=SLOW, derandomize=True)
hypothesis.settings.register_profile(
    "some", deadline=None, suppress_health_check=SLOW, derandomize=True, max_examples=20
)
hypothesis.settings.register_profile("others", deadline=None, suppress_health_check=SLOW, derandomize=False)
hypothesis.settings.load_profile("same")

# For Spark's session and for every engine the tests start. They end before code that is optimised further pays for
# being compiled, which took half of their processor time; and no core is free for collecting garbage beside them.
# Java then leaves 48 MB for compiled code, which one session for hundreds of queries might fill: as much as otherwise.
# Their classes come out of an archive, if `make setup-tests` made one that fits.
JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m"]
CLASSES = ROOT / ".cache" / "spark.jsa"
if CLASSES.exists():
    JVM += [f"-XX:SharedArchiveFile={CLASSES}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(JVM))


LONGEST = (
    "tests/views/test_random_pipelines.py",
    "tests/views/test_kafka_trust.py",
    "tests/process/test_kafka.py",
    "tests/process/test_oracle.py",
    "tests/cli/test_up.py",
    "tests/coordinate/test_move.py",
    "tests/test_docs.py",
    "tests/log/test_copy.py",
    "tests/test_wheel.py",
    "tests/chaos/test_log_faults.py",
)
"""Files that take a minute or more. A lane that came to one of them last would end long after the others."""

SPARK_LANES = 2
"""How many processes of a run have a Spark session: as many as there are cores. A session more costs half a minute."""


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """Several processes run the tests (`make test`), a file never in two. The first of them run the files that need
    Spark, and turn to the others when none of these is left; the last process begins with the others."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: object) -> None:
        on_spark = list(self.assigned_work).index(node) < SPARK_LANES
        mine = (scope for scope in self.workqueue if _on_spark(scope) == on_spark)
        if (first := next(mine, None)) is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


@functools.cache
def _on_spark(file: str) -> bool:
    return "mark.spark" in Path(file).read_text()


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Lanes:
    return Lanes(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files that take longest, so that the lanes end together."""
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("browser")}
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (order.get(str(item.path.relative_to(ROOT)), len(order)), item.path not in slow))


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Undo what commands that a test runs in its own process do to the mode of new files."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session(SparkSettings(master="local[2]", memory="1g", shuffle_partitions=2), "headrace tests")
    yield session
    session.stop()
