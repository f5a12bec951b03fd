"""Kappa, Lambda and DuckDB say the same of random pipelines that are changed while events arrive.
`python -m tests.views.oracle` tries as many as you like, each with all that can be done to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.views.oracle.run import Chapter, compare

PROJECTS: tuple[tuple[Chapter, int], ...] = (("said again", 30), ("exchanged", 5))
"""What is done to the five pipelines of each, and by which seed they are made; `make oracle` tries hundreds."""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("chapter", "seed"), PROJECTS)
def test_random_pipelines_are_changed_while_events_arrive(
    tmp_path: Path, spark: SparkSession, chapter: Chapter, seed: int
) -> None:
    wrong, done = compare(spark, tmp_path, seed, chapters=[chapter])
    assert not wrong
    assert done["comparisons"] > 0
