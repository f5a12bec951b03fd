"""How much a query reads at a time, by what it does with a row."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headrace.process.pace import adds_up
from tests.sql.catalog import plan

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE TABLE t AS SELECT pageid, COUNT(*) AS n FROM pageviews GROUP BY pageid;", True),
        (
            "CREATE TABLE t AS SELECT pageid, COUNT(*) AS n FROM pageviews"
            " WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY pageid;",
            True,
        ),
        (
            "CREATE TABLE t AS SELECT pageid, COUNT(*) AS n FROM pageviews WINDOW SESSION (1 MINUTE) GROUP BY pageid;",
            False,
        ),
        ("CREATE STREAM s AS SELECT * FROM pageviews;", False),
        ("CREATE STREAM s AS SELECT * FROM pageviews PARTITION BY pageid;", False),
    ],
)
def test_only_what_is_added_up_as_it_is_read_takes_the_largest_batches(
    spark: SparkSession, sql: str, expected: bool
) -> None:
    assert adds_up(plan(sql)) is expected
