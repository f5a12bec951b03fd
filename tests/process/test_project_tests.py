"""`headrace test`: a project's own tests, run on the real engine in several ways."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headrace.config import load_project
from headrace.errors import ConfigError, UsageError
from headrace.testing import load_cases, run_project_tests, write_junit
from headrace.testing.compare import differences
from headrace.testing.shuffle import Arrived, shuffled

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

[[test]]
name = "looks at where rows lie"
statements = '''
CREATE STREAM s (k VARCHAR KEY, v INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1);
CREATE STREAM placed AS SELECT k, v, ROWOFFSET AS place FROM s;
'''
[[test.input]]
topic = "s"
events = [{ k = "a", v = 1 }, { k = "b", v = 2 }]
[[test.expect]]
from = "placed"
rows = [{ k = "a", place = 0 }, { k = "b", place = 1 }]
"""

# Everything a test may say: files, records with times and tombstones, a query, a script.
RIGHT = """
[[test]]
name = "orders by customer"
script = "orders.sql"
[[test.input]]
topic = "customers"
file = "customers.csv"
[[test.input]]
topic = "orders"
file = "orders.ndjson"
[[test.input]]
topic = "customers"
records = [{ key = "c2" }]
[[test.input]]
topic = "orders"
records = [{ key = "c2", value = { amount = 1.5 }, time = 3000 }]
[[test.expect]]
from = "placed"
file = "placed.csv"
[[test.expect]]
query = "SELECT customer, total FROM totals WHERE total > 5"
rows = [{ customer = "c1", total = 30 }]
[[test.expect]]
from = "totals"
rows = [{ customer = "c1", total = 30 }, { customer = "c2", total = 4 }]
"""
ORDERS = """
CREATE TABLE customers (id VARCHAR PRIMARY KEY, city VARCHAR, age INT) WITH (KAFKA_TOPIC='customers', PARTITIONS=2);
CREATE STREAM orders (customer VARCHAR KEY, amount DOUBLE) WITH (KAFKA_TOPIC='orders', PARTITIONS=2);
CREATE STREAM placed AS
  SELECT o.customer AS customer, amount, city, age FROM orders o LEFT JOIN customers c ON o.customer = c.id;
CREATE TABLE totals AS SELECT customer, SUM(amount) AS total FROM placed GROUP BY customer;
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
    wrong, placed = run_project_tests(load_project(project(tmp_path, WRONG)), spark=spark)
    # The same in every way: said once.
    assert wrong.differences == (
        "doubled: 1 of 2 rows differs",
        "    k  v",
        "  - b  5",
        "  + b  4",
    )
    assert len(wrong.ways) == 3
    assert placed.passed, placed.differences
    write_junit(tmp_path / "out.xml", "shop", [wrong, placed])
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert "- b  5" in (suite.findtext("testcase/failure") or "")


@pytest.mark.spark
def test_files_records_and_queries(spark: SparkSession, tmp_path: Path) -> None:
    folder = project(tmp_path, RIGHT) / "tests"
    (folder / "orders.sql").write_text(ORDERS)
    (folder / "customers.csv").write_text("id,city,age\nc1,Bern,31\nc2,Basel,\n")
    (folder / "orders.ndjson").write_text('{"customer":"c1","amount":30}\n{"customer":"c2","amount":2.5}\n')
    # The last order came after its customer was deleted.
    (folder / "placed.csv").write_text("customer,amount,city,age\nc1,30,Bern,31\nc2,2.5,Basel,\nc2,1.5,,\n")
    [result] = run_project_tests(load_project(tmp_path), spark=spark)
    assert result.passed, "\n".join(result.differences)
    assert len(result.ways) == 3


def test_what_differs_in_one_way_only_is_said_with_it() -> None:
    from headrace.testing.run import _merged

    merged = list(_merged({"as a stream": [], "in pieces": ["t: 1 of 1 rows differs"]}))
    assert merged == ["as a stream: as expected", "in pieces:", "  t: 1 of 1 rows differs"]


def test_rows_are_paired_with_those_most_like_them() -> None:
    expected = [{"k": "a", "n": 1, "m": 1}, {"k": "b", "n": 2, "m": 2}]
    found = [["b", 2, 3, "not looked at"], ["c", 0, 0, ""], ["a", 1, 1, ""]]
    assert differences("t", expected, ["K", "N", "M", "OTHER"], found) == [
        "t: 2 of 3 rows differ",
        "    k  n  m",
        "  - b  2  2",
        "  + b  2  3",
        "  + c  0  0",
    ]
    assert differences("t", [{"x": 1}], ["K"], []) == ["t: there is no column `x`; there are K"]
    assert differences("t", [], ["K"], [["a"]]) == ["t: 1 of 1 rows differs", "    K", "  + a"]


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 9)), max_size=20),
    st.booleans(),
    st.integers(0, 99),
)
def test_shuffling_keeps_keys_in_order_and_time(events: list[tuple[str | None, int]], timed: bool, n: int) -> None:
    arrived = [Arrived(key, time) for key, time in events]
    order = shuffled(arrived, timed, random.Random(n))
    assert Counter(order) == Counter(range(len(events)))
    for key in "abc":
        places = [place for place in order if events[place][0] == key]
        assert places == sorted(places)

    def stamped(places: list[int]) -> dict[int, int]:
        return {place: max([-1, *(events[p][1] for p in places[:n])]) for n, place in enumerate(places)}

    if timed:
        assert stamped(order) == stamped(list(range(len(events))))


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ('[[test]]\nname = "idle"\n', "`idle` expects nothing"),
        ('[[test]]\nname = "x"\nexpekt = []\n', "expekt"),
        ('[[test]]\nname = "x"\nrejected = 1\n[[test]]\nname = "x"\nrejected = 1\n', "there twice"),
        ('[[test]]\nname = "x"\n[[test.expect]]\nfrom = "t"\n', "needs either `rows` or a `file`"),
        ('[[test]]\nname = "x"\n[[test.expect]]\nrows = []\n', "needs either `from` or `query`"),
        ('[[test]]\nname = "x"\nrejected = 1\n[[test.input]]\ntopic = "t"\nfile = "gone.csv"\n', "gone.csv"),
        ('[[test]]\nname = "x"\nrejected = 1\n[[test.input]]\ntopic = "t"\nfile = "t.toml"\n', "neither .csv"),
    ],
)
def test_a_file_that_is_no_test_says_why(tmp_path: Path, tests: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_cases(project(tmp_path, tests))


def test_no_tests_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no tests"):
        run_project_tests(load_project(project(tmp_path, "")))
