"""kill -9 in the middle of a deployment that Spark builds. In a file of its own, for Spark's lane: what needs no Spark
does not wait there."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.chaos import batch_job
from tests.chaos.deploy import survive


@pytest.mark.slow
@pytest.mark.spark
def test_killed_while_spark_builds_and_compares_it_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    assert survive(tmp_path, "after 3", spark)


@pytest.mark.slow
@pytest.mark.spark
def test_a_server_killed_while_a_batch_layer_is_written_has_it_computed_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    assert batch_job.survive(tmp_path, "writing", 1, "server", spark) == batch_job.LAST
