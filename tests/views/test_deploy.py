"""Changing a running pipeline: built beside, compared at the same records, switched, rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.coordinate.deployments import Options
from headrace.errors import Conflict, Refused
from tests.support import let_pass, wait_for
from tests.views.live import PATIENCE, Live, live

pytestmark = pytest.mark.spark

CLICKS = "CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR, ms INT) WITH (KAFKA_TOPIC='clicks', PARTITIONS=2);"
HOME = "CREATE STREAM home AS SELECT userid, page, ms FROM clicks WHERE page = '/home';"
BY_USER = "CREATE TABLE by_user AS SELECT userid, COUNT(*) AS n FROM home GROUP BY userid;"
TOP = "CREATE TABLE top AS SELECT userid, n FROM by_user WHERE n > 1;"
CHAIN = "\n".join((CLICKS, HOME, BY_USER, TOP))


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Iterator[Live]:
    with live(tmp_path, spark, CHAIN) as running:
        running.send(
            "clicks",
            {"userid": "ann", "page": "/home", "ms": 1},
            {"userid": "ann", "page": "/home", "ms": 2},
            {"userid": "bob", "page": "/home", "ms": 3},
            {"userid": "bob", "page": "/cart", "ms": 4},
        )
        running.eventually("SELECT * FROM by_user;", [["ann", 2], ["bob", 1]])
        running.eventually("SELECT * FROM top;", [["ann", 2]])
        yield running


def test_a_chain_is_rebuilt_compared_switched_and_rolled_back(project: Live) -> None:
    deployments = project.services.deployments
    assert not deployments.plan(project.files).pending

    project.write(CHAIN.replace("= '/home'", "<> '/nowhere'"))
    deployment = project.reaches(project.deploy(who="ann"), "waiting")
    # It waits for somebody: the numbers are others. What served, serves.
    assert deployment.detail.endswith("somebody has to approve")
    found = {one["view"]: one for one in deployment.comparisons}
    assert {key: found["by_user"][key] for key in ("same", "changed", "only_old", "only_new")} == {
        "same": 1,
        "changed": 1,
        "only_old": 0,
        "only_new": 0,
    }
    assert found["by_user"]["samples"] == [{"key": {"userid": "bob"}, "old": {"n": 1}, "new": {"n": 2}, "window": None}]
    assert found["by_user"]["deltas"] == [{"column": "n", "rows": 1, "total": 1.0, "largest": 1.0}]
    assert found["top"]["only_new"] == 1
    assert project.rows("SELECT * FROM top;") == [["ann", 2]]

    deployments.approve(deployment.id)
    project.reaches(deployment, "switched")
    assert [project.serving(name) for name in ("HOME", "BY_USER", "TOP")] == [2, 2, 2]
    assert sorted(project.rows("SELECT * FROM top;")) == [["ann", 2], ["bob", 2]]
    assert not deployments.plan(project.files).pending

    # Both versions go on, so that the way back takes no time.
    project.send("clicks", {"userid": "cem", "page": "/cart"}, {"userid": "cem", "page": "/home"})
    project.eventually("SELECT * FROM top;", [["ann", 2], ["bob", 2], ["cem", 2]])
    old = project.services.followers.version("BY_USER", 1)
    wait_for(lambda: ("cem", 1) in old.select(["USERID", "N"])[0].rows, PATIENCE, "the version that is kept")
    deployments.rollback("TOP")
    assert sorted(project.rows("SELECT * FROM by_user;")) == [["ann", 2], ["bob", 1], ["cem", 1]]
    assert [project.serving(name) for name in ("HOME", "BY_USER", "TOP")] == [1, 1, 1]
    with pytest.raises(Conflict, match="rolled back already"):
        deployments.rollback("TOP")

    # And so does the way forward again: the versions rolled back from are kept, and go on too.
    project.send("clicks", {"userid": "dan", "page": "/cart"}, {"userid": "dan", "page": "/cart"})
    assert [change.verdict for change in deployments.plan(project.files).pending] == ["serves again"] * 3
    queries = [query.id for query in project.services.catalog.queries()]
    again = project.reaches(project.deploy(approve=True), "switched")
    assert {one["view"]: one["only_new"] for one in again.comparisons} == {"by_user": 1, "top": 3}
    assert [project.serving(name) for name in ("HOME", "BY_USER", "TOP")] == [2, 2, 2]
    project.eventually("SELECT * FROM top;", [["ann", 2], ["bob", 2], ["cem", 2], ["dan", 2]])
    assert [query.id for query in project.services.catalog.queries()] == queries


def test_the_same_numbers_switch_by_themselves_while_events_arrive(project: Live) -> None:
    project.write(CHAIN.replace("WHERE page = '/home'", "WHERE page = '/home' AND page IS NOT NULL"))
    started = project.deploy()
    sent = 0
    while project.services.deployments.get(started.id).stage not in ("switched", "waiting", "failed"):
        project.send("clicks", {"userid": f"u{sent % 7}", "page": "/home"})
        sent += 1
        let_pass(0.05)
    deployment = project.reaches(started, "switched")
    assert all(one["changed"] + one["only_old"] + one["only_new"] == 0 for one in deployment.comparisons)
    # What serves now and what did before are still the same whenever somebody looks, at the end of a chain too.
    asked = project.services.differences.start("TOP")
    while (found := project.services.differences.get("TOP", asked.id)).state not in ("done", "failed"):
        project.send("clicks", {"userid": f"u{sent % 7}", "page": "/home"})
        sent += 1
        let_pass(1.0)
    assert found.comparison is not None, found.error
    assert (found.old, found.new, found.comparison.different) == (1, 2, 0)
    assert found.comparison.same >= 1
    expected = [["ann", 2], ["bob", 1], *([f"u{n}", len(range(n, sent, 7))] for n in range(min(7, sent)))]
    project.eventually("SELECT * FROM by_user;", expected)


def test_a_gate_decides(project: Live) -> None:
    project.write(CHAIN.replace("COUNT(*)", "COUNT(*) + 0 * COUNT(page)").replace("n > 1", "n > 0"))
    waiting = project.reaches(project.deploy(max_changed=0.1), "waiting")
    assert "and 10.00% may" in waiting.detail
    project.services.deployments.cancel(waiting.id)
    assert project.serving("TOP") == 1
    assert [version.number for version in project.services.catalog.versions("TOP")] == [1]
    assert not [topic.name for topic in project.services.log.topics() if ".v2" in topic.name]
    project.reaches(project.deploy(max_changed=0.6), "switched")
    project.eventually("SELECT * FROM top;", [["ann", 2], ["bob", 1]])
    assert project.serving("TOP") == 3


def test_what_no_file_defines_goes_with_consent_and_comes_back(project: Live) -> None:
    project.write(CHAIN.replace(TOP, ""))
    with pytest.raises(Refused, match="no file defines `top`"):
        project.deploy()
    deployment = project.deploy(approve=True)
    assert deployment.stage == "switched"
    assert project.services.catalog.source("TOP") is None
    project.services.deployments.rollback("TOP")
    assert project.rows("SELECT * FROM top;") == [["ann", 2]]


def test_paused_throttled_resumed(project: Live) -> None:
    deployments = project.services.deployments
    project.write(CHAIN.replace("= '/home'", "<> ''"))
    started = project.deploy(rows_per_second=1, approve=True)
    deployments.pause(started.id, True)
    with pytest.raises(Conflict, match=f"deployment {started.id} is"):
        deployments.start({"pipelines/all.sql": CLICKS}, Options(approve=True))
    assert all(query.wanted == "stopped" for query in deployments.queries(started))
    deployments.pause(started.id, False)
    assert [query.rows_per_second for query in deployments.queries(started)] == [1, 0, 0]
    deployments.throttle(started.id, 1000)
    project.reaches(started, "switched")
    project.eventually("SELECT * FROM by_user;", [["ann", 2], ["bob", 2]])


TIMED = """
CREATE STREAM timed (page VARCHAR KEY, at BIGINT) WITH (KAFKA_TOPIC='timed', TIMESTAMP='at', PARTITIONS=2);
CREATE TABLE per_minute AS SELECT page, COUNT(*) AS n FROM timed
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY page;
"""


def test_windows_with_late_events_are_the_same_again_and_may_get_a_column(tmp_path: Path, spark: SparkSession) -> None:
    times = [5_000, 70_000, 20_000, 65_000, 140_000, 61_000, 130_000, 3_000, 200_000, 139_000]
    with live(tmp_path, spark, TIMED) as project:
        project.send("timed", *({"page": f"/{number % 2}", "at": at} for number, at in enumerate(times)))
        query = project.services.catalog.queries()[0]
        topic = f"_late.{query.id}"
        wait_for(lambda: project.services.log.stats(topic).records == 4, PATIENCE, "the late ledger")
        project.eventually("SELECT n FROM per_minute;", [[1], [2], [2], [1]])
        # What is repaired stays so in the version that is built anew.
        view = project.services.catalog.view("PER_MINUTE")
        assert view is not None
        assert len(project.services.care.repair(view).revised) == 4
        project.eventually("SELECT n FROM per_minute;", [[2], [1], [3], [1], [2], [1]])
        before = sorted(project.rows("SELECT page, windowstart, n FROM per_minute;"))

        project.write(TIMED.replace("COUNT(*) AS n", "COUNT(*) AS n, MAX(at) AS newest"))
        deployment = project.reaches(project.deploy(), "switched")
        [found] = deployment.comparisons
        assert (found["same"], found["changed"], found["columns_added"]) == (6, 0, ["newest"])
        assert sorted(project.rows("SELECT page, windowstart, n FROM per_minute;")) == before
        assert sorted(row[0] for row in project.rows("SELECT newest FROM per_minute;"))[-1] == 200_000
        project.services.deployments.rollback("PER_MINUTE")
        assert sorted(project.rows("SELECT page, windowstart, n FROM per_minute;")) == before


def test_what_is_repaired_while_a_deployment_waits_stays_so_when_it_is_switched(
    tmp_path: Path, spark: SparkSession
) -> None:
    timed = TIMED.replace("COUNT(*) AS n", "COUNT(*) AS n, MAX(at) AS newest")
    with live(tmp_path, spark, timed) as project:
        project.send("timed", *({"page": "/", "at": at} for at in (5_000, 200_000, 20_000)))
        topic = f"_late.{project.services.catalog.queries()[0].id}"
        wait_for(lambda: project.services.log.stats(topic).records == 1, PATIENCE, "the late ledger")
        project.eventually("SELECT windowstart, n FROM per_minute;", [[0, 1], [180_000, 1]])

        project.write(TIMED)
        deployment = project.reaches(project.deploy(), "waiting")
        assert deployment.detail == "`per_minute` has no `newest` any more: somebody has to approve"
        view = project.services.catalog.view("PER_MINUTE")
        assert view is not None
        assert len(project.services.care.repair(view).revised) == 1
        project.eventually("SELECT windowstart, n FROM per_minute;", [[0, 2], [180_000, 1]])

        project.services.deployments.approve(deployment.id)
        project.reaches(deployment, "switched")
        assert sorted(project.rows("SELECT windowstart, n FROM per_minute;")) == [[0, 2], [180_000, 1]]


def test_a_view_that_gets_a_window_is_deployed(project: Live) -> None:
    project.write(CHAIN.replace(TOP, "").replace("FROM home GROUP", "FROM home WINDOW TUMBLING (SIZE 1 DAY) GROUP"))
    deployment = project.reaches(project.deploy(max_changed=1.0, approve=True), "switched")
    [found] = deployment.comparisons
    assert (found["only_old"], found["only_new"], found["changed"]) == (2, 2, 0)
    project.eventually("SELECT userid, n FROM by_user;", [["ann", 2], ["bob", 1]])


JOINED = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR, ms INT) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);
CREATE TABLE users (userid VARCHAR PRIMARY KEY, town VARCHAR) WITH (KAFKA_TOPIC='users', PARTITIONS=1);
CREATE STREAM towns AS SELECT c.userid, page, town FROM clicks c LEFT JOIN users u ON c.userid = u.userid;
CREATE TABLE by_town AS SELECT town, COUNT(*) AS n FROM towns GROUP BY town;
"""


def test_a_join_goes_on_with_its_state_after_a_further_column_that_it_does_not_use(
    tmp_path: Path, spark: SparkSession
) -> None:
    with live(tmp_path, spark, JOINED) as project:
        project.send("users", {"userid": "ann", "town": "Bern"})
        project.send("clicks", {"userid": "ann", "page": "/"})
        project.eventually("SELECT * FROM by_town;", [["Bern", 1]])
        project.write(JOINED.replace("ms INT", "ms INT, referrer VARCHAR"))
        done = project.deploy()
        assert (done.stage, [item.verdict for item in done.items]) == ("switched", ["keeps its state"])
        # Planned anew when it is started the next time, it finds the state that it left.
        [query] = [query for query in project.services.catalog.queries() if query.sink == "TOWNS"]
        for word, states in (("PAUSE", ("stopped", None)), ("RESUME", ("running",))):
            project.services.statements.execute(f"{word} {query.id};")
            status = project.services.engine.status
            wait_for(lambda: getattr(status(query.id), "state", None) in states, PATIENCE, word)  # noqa: B023
        project.send("clicks", {"userid": "ann", "page": "/a", "referrer": "x"}, {"userid": "ann", "page": "/b"})
        project.eventually("SELECT * FROM by_town;", [["Bern", 3]])


READINGS = """CREATE STREAM readings (device VARCHAR KEY, celsius DOUBLE, ts BIGINT)
    WITH (KAFKA_TOPIC='readings', TIMESTAMP='ts');"""
ROLLING = """CREATE TABLE rolling AS SELECT device, AVG(celsius) AS avg_c FROM readings
    WINDOW HOPPING (SIZE 2 MINUTES, ADVANCE BY 1 MINUTE) GROUP BY device;"""
ROLLING_EVENTS = """CREATE STREAM rolling_events (device VARCHAR KEY, avg_c DOUBLE)
    WITH (KAFKA_TOPIC='ROLLING', WINDOW_TYPE='HOPPING', WINDOW_SIZE='2 MINUTES');"""
HOT = (
    "CREATE TABLE hot AS SELECT device, MAX(avg_c) AS most FROM rolling_events GROUP BY device HAVING MAX(avg_c) > 100;"
)


def test_what_reads_a_views_topic_follows_a_corrected_formula(tmp_path: Path, spark: SparkSession) -> None:
    """A stream over a windowed table's topic, what is computed from it, and whoever reads the topic by its name."""
    wrong = "\n".join((READINGS, ROLLING.replace("AVG(celsius)", "AVG(celsius * 10)"), ROLLING_EVENTS, HOT))
    right = "\n".join((READINGS, ROLLING, ROLLING_EVENTS, HOT))

    def published(project: Live) -> dict[tuple[str, int], float]:
        """The newest value by device and window, of the public topic."""
        found: dict[tuple[str, int], float] = {}
        [ends] = project.services.log.snapshot().ends["ROLLING"]
        names = ["DEVICE", "AVG_C", "$window_start"]
        for records in project.services.log.read("ROLLING", 0, ends.start, ends.end, names):
            rows = zip(*(records.batch.column(name).to_pylist() for name in names), strict=True)
            found |= {(device, start): value for device, value, start in rows}
        return found

    with live(tmp_path, spark, wrong) as project:
        project.send(
            "readings",
            {"device": "a", "celsius": 36.0, "ts": 600_000},
            {"device": "b", "celsius": 120.0, "ts": 610_000},
        )
        project.eventually("SELECT device, most FROM hot;", [["a", 360.0], ["b", 1200.0]])
        project.write(right)
        plan = project.services.deployments.plan(project.files)
        assert {change.name for change in plan.pending} == {"ROLLING", "ROLLING_EVENTS", "HOT"}
        project.reaches(project.deploy(approve=True), "switched")
        project.eventually("SELECT device, most FROM hot;", [["b", 120.0]])
        assert not project.services.deployments.plan(project.files).pending
        expected = {("a", 540_000): 36.0, ("a", 600_000): 36.0, ("b", 540_000): 120.0, ("b", 600_000): 120.0}
        wait_for(lambda: published(project) == expected, PATIENCE, "the topic to say what the view says")
        project.send("readings", {"device": "a", "celsius": 40.0, "ts": 605_000})
        wait_for(lambda: published(project)["a", 600_000] == 38.0, PATIENCE, "the new version's changes")
        # The versions before go on with what they have kept, though their topics are others now.
        project.services.deployments.rollback("HOT")
        project.eventually("SELECT device, most FROM hot;", [["a", 380.0], ["b", 1200.0]])
        wait_for(lambda: published(project)["a", 600_000] == 380.0, PATIENCE, "the topic to be rolled back")
        project.send("readings", {"device": "c", "celsius": 50.0, "ts": 606_000})
        project.eventually("SELECT device, most FROM hot;", [["a", 380.0], ["b", 1200.0], ["c", 500.0]])
        wait_for(lambda: published(project).get(("c", 600_000)) == 500.0, PATIENCE, "the first version's changes")
