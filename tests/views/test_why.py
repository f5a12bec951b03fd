"""Why this number? Told by the server and the command, about real queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.log.base import Append
from tests.cli.conftest import Headrace, headrace  # noqa: F401
from tests.views.trusted import MINUTE, trusted

pytestmark = pytest.mark.spark

SALES = """
CREATE STREAM sales (shop VARCHAR KEY, item VARCHAR, amount INTEGER, sold BIGINT)
  WITH (KAFKA_TOPIC='sales', TIMESTAMP='sold', PARTITIONS=2);
CREATE TABLE items (item VARCHAR PRIMARY KEY, kind VARCHAR) WITH (KAFKA_TOPIC='items', PARTITIONS=2);
CREATE TABLE per_minute AS SELECT shop, COUNT(*) AS n, SUM(amount) AS total
  FROM sales WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY shop;
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n, MAX(amount) AS most FROM sales GROUP BY shop;
CREATE STREAM large AS SELECT shop, UCASE(item) AS name, amount FROM sales WHERE amount >= 10;
CREATE TABLE large_items AS SELECT name, COUNT(*) AS n FROM large GROUP BY name;
CREATE TABLE large_per_minute AS SELECT shop, COUNT(*) AS n
  FROM sales WINDOW TUMBLING (SIZE 1 MINUTE) WHERE amount >= 10 GROUP BY shop;
CREATE TABLE by_count AS SELECT n, COUNT(*) AS shops FROM by_shop GROUP BY n;
CREATE TABLE by_kind AS SELECT kind, SUM(amount) AS total
  FROM sales JOIN items ON sales.item = items.item GROUP BY kind;
"""


def sale(shop: str, amount: Any, sold: Any, item: str = "tea") -> dict[str, Any]:
    return {"shop": shop, "item": item, "amount": amount, "sold": sold}


def test_every_kind_of_row_says_what_it_is_made_of(
    tmp_path: Path,
    spark: SparkSession,
    headrace: Headrace,  # noqa: F811
) -> None:
    with trusted(tmp_path / "project", spark, SALES) as project:
        project.send("items", {"item": "tea", "kind": "dry"}, {"item": "tea", "kind": "drink"})
        project.send(
            "sales",
            sale("a", 5, 1000),
            sale("a", 12, 2000),
            sale("b", 7, 3000),
            sale("a", 30, MINUTE + 1),
            sale("a", 1, 4000),  # out of order, but in time
            sale("b", 2, 3 * MINUTE),
            sale("a", 99, 5000),  # too late for its minute
            sale("a", "many", 6000),  # a dead letter
        )
        project.compute()

        found = project.why("per_minute", shop="a", window=0)
        assert (found["verdict"], found["row"], found["recomputed"]) == ("equal", *[{"n": 3, "total": 18}] * 2)
        assert [record["value"]["amount"] for record in found["page"]] == [1, 12, 5], "newest first"
        assert [(late["row"]["amount"], late["late_by_ms"]) for late in found["late"]] == [(99, 110_000)]
        assert ["many" in letter["text"] for letter in found["dead"]] == [True]
        assert sum(found["through"]["inputs"]["sales"].values()) == 7
        assert found["looked_at"] < 7, "what came after the window closed is not looked at"

        assert project.why("per_minute", shop="a")["window"]["start_ms"] == MINUTE, "the newest, if none is named"
        largest = project.why("by_shop", shop="a", order="largest", limit=2)
        assert (largest["verdict"], largest["records"]) == ("equal", 5)
        assert [record["value"]["amount"] for record in largest["page"]] == [99, 30]

        newest = project.why("items", item="tea")
        assert (newest["verdict"], newest["records"], newest["page"][0]["value"]["kind"]) == ("equal", 1, "drink")

        joined = project.why("by_kind", kind="drink")
        assert (joined["verdict"], joined["row"]) == ("equal", {"total": 156})
        assert {record["source"] for record in joined["page"]} == {"sales", "items"}

        chained = project.why("large_items", name="TEA")
        assert (chained["verdict"], chained["records"]) == ("equal", 3)
        [below] = chained["page"][0]["below"]["newest"]
        assert (below["topic"], below["value"]["item"], below["value"]["amount"]) == ("sales", "tea", 99)
        assert chained["page"][0]["below"]["same"]

        # What is not in it, though one might have thought so: the window's own, not others'.
        filtered = project.why("large_per_minute", shop="a", window=0)
        assert (filtered["verdict"], filtered["row"], filtered["records"]) == ("equal", {"n": 2}, 2)
        assert (filtered["left_out_total"], filtered["condition"]) == (2, "AMOUNT >= 10")
        assert [record["value"]["amount"] for record in filtered["left_out"]] == [1, 5]
        gone = project.why("large_per_minute", shop="b", window=0)
        assert (gone["row"], gone["left_out_total"]) == (None, 1)
        assert project.why("per_minute", shop="a", window=0)["left_out"] == []

        over_table = project.why("by_count", n=5)
        assert (over_table["verdict"], over_table["row"]) == ("equal", {"shops": 1})
        assert over_table["page"][0]["below"]["records"] == 5

        url = f"http://127.0.0.1:{project.server.port}"
        said = headrace("view", "why", "per_minute", "a", "1970-01-01T00:00:30+00:00", "--records", "5", "--url", url)
        assert said.code == 0, said.err
        assert "n = 3   total = 18" in said.out
        assert "made of     3 records" in said.out
        assert "late        1 record arrived 110 s after the window closed" in said.out
        assert "dead        a letter would have belonged here" in said.out
        assert "the same ✓" in said.out

        project.plant("PER_MINUTE", _wrong())
        wrong = project.why("per_minute", shop="a", window=0)
        assert (wrong["verdict"], wrong["differs"]) == ("different", ["n"])
        said = headrace("view", "why", "per_minute", "a", "0", "--url", url)
        assert said.code == 1
        assert "THIS IS NOT WHAT IS SERVED: n" in said.out


def _wrong() -> dict[str, Any]:
    return {
        "SHOP": "a",
        "N": 4,
        "TOTAL": 18,
        "$time": 4000,
        "$tombstone": False,
        "$window_start": 0,
        "$window_end": MINUTE,
    }


def test_what_cannot_be_asked_is_said(tmp_path: Path, spark: SparkSession) -> None:
    with trusted(tmp_path, spark, SALES) as project:
        ask = project.server.http.get
        assert ask("/v1/views/by_shop/why").json()["error"]["message"] == "`shop` is missing"
        assert "is BIGINT, got `x`" in ask("/v1/views/by_count/why", params={"n": "x"}).text
        assert "has no windows" in ask("/v1/views/by_shop/why", params={"shop": "a", "window": 0}).text
        assert ask("/v1/views/by_shop/why", params={"shop": "a", "version": 7}).status_code == 404
        nothing = project.why("by_shop", shop="nobody")
        assert (nothing["verdict"], nothing["row"], nothing["records"]) == ("equal", None, 0)


KEYLESS = """
CREATE STREAM sales (shop VARCHAR KEY, item VARCHAR, amount INTEGER) WITH (KAFKA_TOPIC='sales', PARTITIONS=1);
CREATE TABLE items (item VARCHAR PRIMARY KEY, kind VARCHAR) WITH (KAFKA_TOPIC='items', PARTITIONS=1);
CREATE TABLE by_item AS SELECT item, COUNT(*) AS n FROM sales WHERE amount > 0 GROUP BY item;
CREATE TABLE by_both AS SELECT shop, amount, COUNT(*) AS n FROM sales GROUP BY shop, amount;
CREATE TABLE per_minute AS SELECT item, COUNT(*) AS n FROM sales WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY item;
"""


def test_records_without_a_key_are_counted_for_who_asks_for_null(
    tmp_path: Path,
    spark: SparkSession,
    headrace: Headrace,  # noqa: F811
) -> None:
    with trusted(tmp_path / "project", spark, KEYLESS) as project:
        sold: list[dict[str, Any]] = [{"shop": "a", "amount": amount} for amount in (3, 1, 0, 2)]
        sold[0]["item"] = "tea"
        project.send("sales", *sold, {"shop": "b", "item": "tea"}, {"item": "tea", "amount": 7})
        project.send("items", {"item": "tea", "kind": "dry"})
        columns = {"KIND": pa.array(["lost"]), "ITEM": pa.array([None], pa.string())}
        project.server.services.log.append([Append("items", pa.record_batch(columns))]).result()
        project.compute()

        def keyless(view: str, **key: Any) -> tuple[list[str], bool, int]:
            found = project.why(view, **key)
            assert (found["row"], found["records"], found["verdict"]) == (None, 0, "equal")
            return found["keyless"]["columns"], found["keyless"]["grouped"], found["keyless"]["records"]

        assert keyless("by_item", item="null") == (["item"], True, 2), "those that WHERE lets pass"
        assert keyless("by_both", shop="b", amount="null") == (["amount"], True, 1)
        assert keyless("by_both", shop="null", amount=7) == (["shop"], True, 1)
        assert keyless("items", item="NULL") == (["item"], False, 1)
        assert project.why("by_item", item="tea")["keyless"] is None
        newest = project.why("by_item", item="null")["keyless"]["newest"]
        assert (newest["offset"], newest["value"]["amount"]) == (3, 2)

        url = f"http://127.0.0.1:{project.server.port}"
        said = headrace("view", "why", "by_item", "null", "--url", url)
        assert said.code == 0, said.err
        assert "no key      2 records without `item`: a GROUP BY counts none without it   newest 0:3 " in said.out
        said = headrace("view", "why", "per_minute", "null", "--url", url)
        assert said.code == 1
        assert "3 of the records have no `item`, and a GROUP BY counts none without" in said.err
