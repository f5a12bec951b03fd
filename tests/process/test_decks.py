"""Every KSQL statement of the lecture decks runs as written, in classic syntax, with data (tests/decks)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.config import load_project
from headrace.testing import run_project_tests

DECKS = Path(__file__).parent.parent / "decks"


@pytest.mark.spark
def test_the_decks_statements_run_as_written(spark: SparkSession) -> None:
    results = run_project_tests(load_project(DECKS), spark=spark)
    assert len(results) == 3
    assert [(result.name, result.differences) for result in results if not result.passed] == []
