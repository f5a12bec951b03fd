"""Streaming against batch against DuckDB. `python -m tests.process.oracle` tries as many queries as you like."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.process.oracle.run import compare

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("seed", [1, 21])
def test_twenty_random_queries_give_what_duckdb_says(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    assert not compare(spark, tmp_path, seed, queries=20)
