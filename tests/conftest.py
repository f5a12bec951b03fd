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
CLASSES = Path(__file__).parents[1] / ".cache" / "spark.jsa"
if CLASSES.exists():
    JVM += [f"-XX:SharedArchiveFile={CLASSES}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(JVM))


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """Several processes run the tests (`make test`): the files that share Spark's session are all in one, the others
    wherever there is room, a file never in two."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if _on_spark(file) else file


@functools.cache
def _on_spark(file: str) -> bool:
    return "mark.spark" in Path(file).read_text()


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Lanes:
    return Lanes(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The lanes begin with what takes longest, so that they end together: Spark's files, which one lane does alone,
    then those with anything slow."""
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("browser")}
    items.sort(key=lambda item: (not _on_spark(str(item.path)), item.path not in slow))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session(SparkSettings(master="local[2]", memory="1g", shuffle_partitions=2), "headrace tests")
    yield session
    session.stop()
