"""Pipelines in the manner of ksqlDB's guides, in the project's own words, with data (tests/ksql)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.config import load_project
from headrace.testing import run_project_tests

RECIPES = Path(__file__).parent.parent / "ksql"


@pytest.mark.spark
def test_what_a_ksql_user_pastes_gives_what_they_expect(spark: SparkSession) -> None:
    results = run_project_tests(load_project(RECIPES), spark=spark, quick=True)
    assert len(results) == 7
    assert [(result.name, result.differences) for result in results if not result.passed] == []
