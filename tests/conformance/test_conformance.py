"""A spread of the shared KSQL cases, where they are beside the repository, and the runner's own rules."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.types import BOOLEAN, DATE, INTEGER, VARCHAR, Column
from headrace.types import Decimal as DecimalType
from tests.conformance.__main__ import run_cases
from tests.conformance.case import CaseData, load_cases
from tests.conformance.compare import compare_topics, same_value
from tests.conformance.records import Format, Unreadable

SHARED = Path(__file__).parents[3] / "shared" / "ksql-conformance"
needs_cases = pytest.mark.skipif(not SHARED.is_dir(), reason="the cases are not beside the repository")
# Misspelt in the case itself: see docs/reference/conformance.md.
IMPOSSIBLE = {"cast/of-nulls"}
QUERIES, REFUSALS, ANSWERS = 70, 60, 12


def spread(file: str, tiers: tuple[str, ...], count: int) -> list[CaseData]:
    """The same cases each time, from all over the file."""
    cases = [case for case in load_cases(SHARED / file) if case["tier"] in tiers and case["id"] not in IMPOSSIBLE]
    return sorted(cases, key=lambda case: hashlib.sha256(case["id"].encode()).digest())[:count]


def failures(cases: list[CaseData], spark: SparkSession) -> list[str]:
    return [f"{result.id}: {result.reason}" for result in run_cases(cases, spark) if result.outcome == "failed"]


@needs_cases
@pytest.mark.spark
def test_queries_give_what_ksqldb_gives(spark: SparkSession) -> None:
    assert failures(spread("cases.jsonl", ("core",), QUERIES), spark) == []


@needs_cases
@pytest.mark.spark
def test_pull_queries_answer_as_ksqldb_does(spark: SparkSession) -> None:
    found = failures(spread("rest_cases.jsonl", ("core",), ANSWERS), spark)
    assert len(found) <= ANSWERS * 0.1, "\n".join(found)


@needs_cases
@pytest.mark.spark
def test_what_ksqldb_refuses_is_refused(spark: SparkSession) -> None:
    found = failures(spread("errors.jsonl", ("core",), REFUSALS), spark)
    assert len(found) <= REFUSALS * 0.05, "\n".join(found)


def record(key: Any, value: Any, time: int | None = None) -> dict[str, Any]:
    return {"topic": "t", "key": key, "value": value, "timestamp": time}


def compared(mode: str, expected: list[Any], actual: list[Any], optional: tuple[int, ...] = ()) -> int:
    case = {"compare": {"t": {"mode": mode, "optional": list(optional)}}, "outputs": expected}
    return len(compare_topics(case, actual))


def test_a_stream_is_compared_by_key_and_in_order() -> None:
    two = [record(1, {"A": 1}), record(1, {"A": 2}), record(2, {"A": 3})]
    assert compared("sequence-per-key", two, [two[2], two[0], two[1]]) == 0
    assert compared("sequence-per-key", two, [two[1], two[0], two[2]]) == 2
    assert compared("multiset-per-key", two, [two[1], two[0], two[2]]) == 0
    assert compared("sequence-per-key", two, two[:2]) == 1
    assert compared("multiset-per-key", two, two[:2], optional=(2,)) == 0


def test_a_table_is_compared_by_what_is_left() -> None:
    expected = [record(1, {"A": 1}, 5), record(2, {"A": 2}), record(2, None)]
    assert compared("final-per-key", expected, [record(1, {"A": 0}, 4), record(1, {"A": 1}, 5)]) == 0
    assert compared("final-per-key", expected, [record(1, {"A": 1}, 6)]) == 1
    assert compared("final-per-key", expected, [record(1, {"A": 1}, 5), record(2, {"A": 2})]) == 1
    assert compared("final-once-per-key", expected, [record(1, {"A": 1}, 5), record(1, {"A": 1}, 5)]) == 1


def test_values_are_compared_as_the_cases_mean_them() -> None:
    assert same_value(Decimal("1.0000001"), 1.0)
    assert same_value("1.50", Decimal("1.50"))
    assert not same_value("1.5", Decimal("1.50"))
    assert not same_value(1, True)
    assert same_value({"a": None}, {"A": None})
    assert not same_value({"A": None}, {})


def test_delimited_text_is_read_and_written_by_the_declared_types() -> None:
    columns = (Column("D", DATE), Column("P", DecimalType(4, 2)), Column("T", VARCHAR), Column("B", BOOLEAN))
    text = Format("DELIMITED", columns, wrapped=True)
    row = text.read('-10,1.5,"a,b",true')
    assert text.write(row) == '"-10",1.50,"a,b",true'
    with pytest.raises(Unreadable):
        text.read("1,2")
    with pytest.raises(Unreadable):
        Format("JSON", (Column("N", INTEGER),), wrapped=True).read({"n": "many"})
