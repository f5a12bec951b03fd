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

hypothesis.settings.register_profile("headrace", deadline=None)
hypothesis.settings.load_profile("headrace")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session(SparkSettings(master="local[2]", memory="1g", shuffle_partitions=2), "headrace tests")
    yield session
    session.stop()
