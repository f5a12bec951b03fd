"""Trust and change on Kafka: rows explained, checked, repaired, and two versions compared at the same offsets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from headrace.coordinate.base import ViewDefinition
from headrace.coordinate.deployments import Options
from headrace.coordinate.including import Inclusion
from headrace.coordinate.subjects import source_subject, view_subject
from headrace.errors import UsageError
from headrace.log.base import Append
from headrace.server.trust_models import why_model
from headrace.views.drift import Drift
from headrace.views.subject import reading_of
from headrace.views.why import Why, why
from tests.kafka import kafka_settings
from tests.store.project import batch_of
from tests.support import let_pass, wait_for
from tests.views.live import PATIENCE, Live, live

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MINUTE = 60_000
SALES = """
CREATE STREAM sales (shop VARCHAR KEY, amount INTEGER, sold BIGINT)
  WITH (KAFKA_TOPIC='sales', TIMESTAMP='sold', PARTITIONS=2);
CREATE TABLE per_minute AS SELECT shop, COUNT(*) AS n, SUM(amount) AS total
  FROM sales WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY shop;
"""
SOLD = "CREATE STREAM sold AS SELECT shop, amount FROM sales WHERE amount > 0;"
LAST = "CREATE TABLE last AS SELECT 1 AS one, COUNT(*) AS n, LATEST_BY_OFFSET(amount) AS amount FROM sold GROUP BY 1;"
CHAIN = SOLD + LAST
LAYERED = """
CREATE TABLE layered AS SELECT shop, COUNT(*) AS n, SUM(amount) AS total
  FROM sales WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY shop;
"""
FINAL = """
CREATE TABLE finals AS SELECT shop, COUNT(*) AS n FROM sales
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) WHERE amount > 0 GROUP BY shop EMIT FINAL;
"""
JOINED = """
CREATE TABLE shops (shop VARCHAR PRIMARY KEY, town VARCHAR) WITH (KAFKA_TOPIC='shops', PARTITIONS=2);
CREATE TABLE by_town AS SELECT town, COUNT(*) AS n FROM sales JOIN shops ON sales.shop = shops.shop GROUP BY town;
"""


def sale(shop: str, amount: int, sold: int) -> dict[str, Any]:
    return {"shop": shop, "amount": amount, "sold": sold}


def view_of(project: Live, name: str) -> ViewDefinition:
    [view] = [view for view in project.services.catalog.views() if view.name == name]
    return view


def explain(project: Live, name: str, at: int | None = None, **key: Any) -> Why:
    services, view = project.services, view_of(project, name)
    subject = view_subject(services.catalog, view)
    store = services.followers.version(name, subject.version)
    below = partial(source_subject, services.catalog)
    found = why(services.log, subject, store, key, at, None, below, services.care.revisions, seconds=60)
    msgspec.json.encode(why_model(found, services))
    return found


def check_all(project: Live, name: str) -> list[Drift]:
    """Two rounds: from one end, and what is newest."""
    view = view_of(project, name)
    return [drift for _ in range(2) for drift in project.services.care.check(view, 50, 60.0)]


def plant(project: Live, name: str, **row: Any) -> None:
    """Write a row into the view's changelog, as no query would."""
    source = view_subject(project.services.catalog, view_of(project, name)).source
    times = {"$time": 1, "$tombstone": False, "$window_start": 0, "$window_end": MINUTE}
    project.services.log.append([Append(source.topic, batch_of(source, [times | row]))]).result(30)


def other_shop(project: Live) -> str:
    """One whose sales are in another partition than those of `a`."""
    log = project.services.log

    def partition_of(shop: str) -> int:
        before = log.snapshot().ends["sales"]
        project.send("sales", sale(shop, 1, 1000))
        return next(n for n, end in enumerate(log.snapshot().ends["sales"]) if end.end > before[n].end)

    own = partition_of("a")
    return next(shop for shop in "bcdefghij" if partition_of(shop) != own)


def include(project: Live, name: str, event: dict[str, Any]) -> None:
    """Send it, and wait for the view to have it."""
    services = project.services
    inclusion = Inclusion(services.log, services.catalog, lambda: services.followers.view(name), "sales")
    inclusion.check()
    project.send("sales", event)
    inclusion.begin([])
    wait_for(inclusion.is_complete, PATIENCE, f"{name} to include {event}")


def test_rows_on_kafka_are_explained_checked_repaired_and_compared(
    tmp_path: Path, spark: SparkSession, kafka: str
) -> None:
    settings = kafka_settings(kafka).kafka
    toml = f'[log]\nbackend = "kafka"\n[log.kafka]\nbootstrap = "{kafka}"\nprefix = "{settings.prefix}"\n'
    with live(tmp_path, spark, SALES + CHAIN, toml + "[views]\ncheck_every_seconds = 0\n") as project:
        other = other_shop(project)
        sales = [sale("a", 5, 2000), sale("a", 30, MINUTE + 1), sale("a", 1, 4000), sale("a", 2, 3 * MINUTE)]
        project.send("sales", *sales, sale("a", 99, 5000))  # the last is too late for its minute
        project.eventually(
            "SELECT shop, windowstart, n, total FROM per_minute WHERE shop = 'a';",
            [["a", 0, 3, 7], ["a", MINUTE, 1, 30], ["a", 3 * MINUTE, 1, 2]],
        )
        wait_for(lambda: len(explain(project, "PER_MINUTE", 0, SHOP="a").late) == 1, PATIENCE, "the late ledger")

        found = explain(project, "PER_MINUTE", 0, SHOP="a")
        assert (found.verdict, found.row and found.row["TOTAL"], found.records) == ("equal", 7, 3)
        assert found.inputs["sales"] == {n: e.end for n, e in enumerate(project.services.log.snapshot().ends["sales"])}
        project.eventually("SELECT amount FROM last;", [[99]])
        latest = explain(project, "LAST", ONE=1)
        assert (latest.verdict, latest.row and latest.row["AMOUNT"]) == ("equal", 99), "in the query's own order"
        [below] = latest.below[latest.page[0]].newest
        assert (below.topic, below.values["SOLD"]) == ("sales", 5000), "a projection's record is followed down"
        assert check_all(project, "PER_MINUTE") == check_all(project, "LAST") == []

        # The other partition has not come so far: its sales are still counted there, so the row is not touched yet.
        care, view = project.services.care, view_of(project, "PER_MINUTE")
        tried = care.repair(view, dry_run=True)
        reading = reading_of(project.services.log, view_subject(project.services.catalog, view))
        assert reading is not None
        # (On a machine so slow that the partition was idle for a minute, it does not hold the window open.)
        passed = reading.floor() >= MINUTE + 10_000
        assert (tried.waiting, len(tried.revised)) == ((0, 1) if passed else (1, 0))
        project.send("sales", sale(other, 7, 3 * MINUTE))
        project.eventually(f"SELECT n FROM per_minute WHERE shop = '{other}' AND windowstart = {3 * MINUTE};", [[1]])
        assert [one.new for one in care.repair(view).revised] == ['{"n":4,"total":106}']
        project.eventually("SELECT n, total FROM per_minute WHERE shop = 'a' AND windowstart = 0;", [[4, 106]])
        repaired = explain(project, "PER_MINUTE", 0, SHOP="a")
        assert (repaired.verdict, repaired.records, repaired.late) == ("equal", 4, [])
        assert check_all(project, "PER_MINUTE") == []

        plant(project, "PER_MINUTE", SHOP=other, N=77, TOTAL=77)
        wrong = explain(project, "PER_MINUTE", 0, SHOP=other)
        assert (wrong.verdict, wrong.differs) == ("different", ["N", "TOTAL"])
        assert [(one.key, one.served) for one in check_all(project, "PER_MINUTE")] == [
            (f'{{"shop":"{other}"}}', '{"n":77,"total":77}')
        ]

        # Sent with a question, an event is in the answer, through both queries of the chain.
        [[counted]] = project.rows("SELECT n FROM last;")
        for number in range(1, 4):
            include(project, "LAST", sale("a", 3, 4 * MINUTE))
            assert project.rows("SELECT n FROM last;") == [[counted + number]]

        # A change is compared at the same offsets of what the chain begins with, while events arrive.
        project.write(SALES + CHAIN.replace("amount > 0", "amount > 0 AND shop IS NOT NULL"))
        started = project.deploy()
        while project.services.deployments.get(started.id).stage not in ("switched", "waiting", "failed"):
            project.send("sales", sale("a", 3, 4 * MINUTE))
            let_pass(0.25)
        [same] = project.reaches(started, "switched").comparisons
        assert (same["same"], same["changed"], same["cut"]) == (1, 0, None)
        assert set(same["inputs"]) == {"sales"}
        # From an offset on the new version counts less: the gate sees it.
        project.write(SALES + CHAIN.replace("amount > 0", "amount >= 1"))
        stopped = project.reaches(project.deploy(start="2", max_changed=0.01), "waiting")
        assert stopped.comparisons[0]["changed"] == 1
        assert "and 1.00% may" in stopped.detail
        project.services.deployments.approve(stopped.id)
        project.reaches(stopped, "switched")
        shorter = explain(project, "LAST", ONE=1)
        assert (shorter.verdict, shorter.missing) == ("equal", frozenset())

        # As a batch up to offsets and a stream from there: the same again, and nothing twice.
        now = SALES + CHAIN.replace("amount > 0", "amount >= 1")
        project.write(now + LAYERED)
        project.reaches(project.deploy(strategy="lambda"), "switched")
        project.send("sales", sale("a", 3, 4 * MINUTE), sale(other, 4, 9 * MINUTE), sale(other, 8, 1000))
        numbers = f"SELECT shop, windowstart, n, total FROM {{}} WHERE windowstart > 0 OR shop <> '{other}';"
        project.eventually("SELECT n FROM layered WHERE windowstart = 540000;", [[1]])
        project.eventually("SELECT n FROM per_minute WHERE windowstart = 540000;", [[1]])
        in_layers = {tuple(row[:2]): row[2:] for row in project.rows(numbers.format("layered"))}
        replayed = {tuple(row[:2]): row[2:] for row in project.rows(numbers.format("per_minute"))}
        assert replayed | {("a", 0): [3, 7]} == in_layers, "but for what was repaired"
        merged = explain(project, "LAYERED", 4 * MINUTE, SHOP="a")
        assert (merged.verdict, merged.row and merged.row["N"]) == ("equal", in_layers["a", 4 * MINUTE][0])
        assert len(explain(project, "LAYERED", 0, SHOP=other).late) == 1
        latest_in_layers = LAYERED.replace("SUM(amount)", "LATEST_BY_OFFSET(amount)").replace("layered", "newest")
        project.write(now + LAYERED + latest_in_layers)
        [refused] = project.services.deployments.plan(project.files, Options(strategy="lambda")).refused
        assert "LATEST_BY_OFFSET goes by order" in refused.reason

        # No commit says that all is out which waits for time: what seems to differ may be about to come, so whatever
        # the gate allows, it waits for somebody.
        project.write(now + LAYERED + FINAL)
        project.reaches(project.deploy(), "switched")
        project.eventually(f"SELECT n FROM finals WHERE shop = 'a' AND windowstart = {MINUTE};", [[1]])
        project.write(now + LAYERED + FINAL.replace("amount > 0", "amount > 50"))
        uncertain = project.reaches(project.deploy(max_changed=1.0), "switched", "waiting")
        assert uncertain.stage == "waiting"
        assert "rows of `finals` differ" in uncertain.detail
        assert "some of them may be about to come" in uncertain.detail
        project.services.deployments.cancel(uncertain.id)

        # What a stream's row met in a table depends on what was there: nobody can say that again.
        project.write(now + LAYERED + FINAL + JOINED)
        project.deploy()
        wait_for(lambda: "BY_TOWN" in project.services.followers.names(), PATIENCE, "the join's view")
        with pytest.raises(UsageError, match="is made of a join with a stream"):
            explain(project, "BY_TOWN", TOWN="here")
