"""One Spark session for every test that needs one: starting it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headrace.config import SparkSettings
from headrace.process.jvm import spark_session
from tests.kafka import kafka

__all__ = ["kafka", "spark"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session(SparkSettings(master="local[2]", memory="1g", shuffle_partitions=2), "headrace tests")
    yield session
    session.stop()
