"""What all tests share: one Spark session for those that need one (starting it takes longer than most of them), and no
deadlines for examples, because whichever comes first may have to load a library on a busy machine."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest
from pyspark.sql import SparkSession

from headrace.config import SparkSettings
from headrace.process.jvm import spark_session
from tests.kafka import kafka

__all__ = ["kafka", "spark"]

# What a change is judged by tries the same examples every time; `make oracle` looks for others.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.register_profile("others", deadline=None, derandomize=False)
hypothesis.settings.load_profile("same")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session(SparkSettings(master="local[2]", memory="1g", shuffle_partitions=2), "headrace tests")
    yield session
    session.stop()
