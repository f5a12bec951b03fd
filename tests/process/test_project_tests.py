"""`headrace test`: a project's own tests, run on the real engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.config import load_project
from headrace.errors import ConfigError, UsageError
from headrace.testing import load_cases, run_project_tests

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "pageviews"

WRONG = """
[[test]]
name = "expects too much"
statements = '''
CREATE STREAM s (k VARCHAR KEY, v INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM doubled AS SELECT k, v * 2 AS v FROM s;
'''
[[test.input]]
topic = "s"
events = [{ k = "a", v = 1 }, { k = "b", v = 2 }]
[[test.expect]]
from = "doubled"
rows = [{ k = "a", v = 2 }, { k = "b", v = 5 }]
"""


def project(folder: Path, tests: str) -> Path:
    (folder / "tests").mkdir()
    (folder / "headrace.toml").write_text("")
    (folder / "tests" / "t.toml").write_text(tests)
    return folder


@pytest.mark.spark
def test_the_demos_tests_pass(spark: SparkSession) -> None:
    results = run_project_tests(load_project(EXAMPLE), spark=spark)
    assert [(result.name, result.differences) for result in results if not result.passed] == []
    assert len(results) >= 2


@pytest.mark.spark
def test_a_difference_is_shown_row_by_row(spark: SparkSession, tmp_path: Path) -> None:
    [result] = run_project_tests(load_project(project(tmp_path, WRONG)), spark=spark)
    assert result.differences == (
        'doubled: missing     {"k":"b","v":5}',
        'doubled: unexpected  {"k":"b","v":4}',
    )


def test_a_test_that_expects_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`idle` expects nothing"):
        load_cases(project(tmp_path, '[[test]]\nname = "idle"\n'))


def test_a_misspelt_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expekt"):
        load_cases(project(tmp_path, '[[test]]\nname = "x"\nexpekt = []\n'))


def test_no_tests_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no tests"):
        run_project_tests(load_project(project(tmp_path, "")))
