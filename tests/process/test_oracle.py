"""Streaming against batch against DuckDB. `python -m tests.process.oracle` tries as many queries as you like."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.process.oracle.run import compare

pytestmark = pytest.mark.spark

QUERIES = 8
"""How many random queries each case tries; `make oracle` tries thousands."""


@pytest.mark.parametrize(("seed", "layers"), [(1, False), (21, True)])
def test_random_queries_give_what_duckdb_says(spark: SparkSession, tmp_path: Path, seed: int, layers: bool) -> None:
    assert not compare(spark, tmp_path, seed, queries=QUERIES, layers=layers)
