"""Versions of which one reads what is made of what the other reads, while events arrive: computed by hand, without
Spark."""

from __future__ import annotations

from pathlib import Path

from headrace.views.versions import Deployment
from tests.coordinate.by_hand import PATIENCE, ByHand, by_hand
from tests.coordinate.test_differences import clicking
from tests.support import let_pass, wait_for

INPUTS = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);
CREATE STREAM home AS SELECT userid, page FROM clicks;
"""
FROM_RAW = INPUTS + "CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;"
FROM_DERIVED = FROM_RAW.replace("FROM clicks GROUP", "FROM home GROUP")


def compared(engine: ByHand, sql: str) -> Deployment:
    """Once it is known whether they differ."""
    wait_for(lambda: engine.shown() > 0, PATIENCE, "the first rows")
    deployments, started = engine.services.deployments, engine.deploy(sql)
    wait_for(lambda: deployments.get(started.id).stage in ("switched", "waiting"), PATIENCE, "the comparison")
    return deployments.get(started.id)


def test_what_a_derived_stream_is_made_of_is_read_up_to_the_same_record(tmp_path: Path) -> None:
    with by_hand(tmp_path, FROM_DERIVED) as engine, clicking(engine):
        found = compared(engine, FROM_RAW)
        assert found.stage == "switched", found.detail
        assert [(one["same"], one["changed"]) for one in found.comparisons] == [(1, 0)]


def test_a_derived_stream_that_is_behind_is_waited_for(tmp_path: Path) -> None:
    with by_hand(tmp_path, FROM_DERIVED) as engine:
        engine.click(3)
        wait_for(lambda: engine.shown() == 3, PATIENCE, "three clicks")
        # The last that was read for `home` is not in it, so nothing arrived there since its place, though there is more
        # to come.
        engine.left_out.add("HOME")
        engine.more["BY_PAGE.v2"] = -1
        engine.click()
        wait_for(lambda: engine.lag("HOME") == 0, PATIENCE, "the fourth click")
        engine.held.add("HOME")
        engine.left_out.clear()
        engine.click(2)
        started = engine.deploy(FROM_RAW)
        wait_for(lambda: engine.until("BY_PAGE.v2") is not None, PATIENCE, "the new version to be held")
        wait_for(lambda: engine.lag("BY_PAGE.v2") == 0, PATIENCE, "the new version to rest")
        let_pass(0.5)
        engine.held.clear()
        [found] = engine.reaches(started, "switched").comparisons
        assert (found["same"], found["changed"]) == (1, 0)


def test_a_derived_stream_that_goes_on_as_it_is_is_no_obstacle(tmp_path: Path) -> None:
    with by_hand(tmp_path, FROM_DERIVED) as engine, clicking(engine):
        noted = FROM_DERIVED.replace("SELECT userid, page FROM clicks", "SELECT clicks.userid, page FROM clicks")
        found = compared(engine, noted.replace("FROM home GROUP", "FROM home WHERE page IS NOT NULL GROUP"))
        assert [(item.name, item.verdict) for item in found.items] == [
            ("HOME", "keeps its state"),
            ("BY_PAGE", "rebuilds"),
        ]
        assert found.stage == "switched", found.detail
        assert [(one["same"], one["changed"]) for one in found.comparisons] == [(1, 0)]


def test_a_derived_stream_in_place_of_what_it_is_made_of_is_not_compared_and_says_why(tmp_path: Path) -> None:
    with by_hand(tmp_path, FROM_RAW) as engine, clicking(engine):
        found = compared(engine, FROM_DERIVED)
        assert found.stage == "waiting"
        assert found.detail == (
            "`by_page` not compared: the new version reads `home`, which is made of `clicks`: what is read of the "
            "one at some moment is not what is read of the other"
        )


def test_what_can_be_compared_is_though_another_view_of_the_deployment_cannot(tmp_path: Path) -> None:
    more = FROM_RAW.splitlines()[-1].replace("by_page", "by_page_too")
    with by_hand(tmp_path, FROM_RAW + more) as engine, clicking(engine):
        found = compared(engine, FROM_DERIVED + more.replace("GROUP", "WHERE page IS NOT NULL GROUP"))
        assert found.stage == "waiting"
        assert found.detail.startswith("`by_page` not compared: the new version reads `home`")
        assert [(one["view"], one["same"], one["changed"]) for one in found.comparisons] == [("by_page_too", 1, 0)]
        assert all(query.until is None for query in engine.services.catalog.queries())
        engine.services.deployments.approve(found.id)
        engine.reaches(found, "switched")
