"""How deployments get on, and what must not stop them: computed by hand, without Spark."""

from __future__ import annotations

import logging
import threading
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.clock import ManualClock
from headrace.coordinate.chains import NotComparable
from headrace.coordinate.comparing import Comparer
from headrace.coordinate.deployer import Deployer, Surroundings
from headrace.coordinate.needed import needed_offsets
from headrace.log.base import Append
from headrace.views.versions import Deployment
from tests.coordinate.by_hand import PATIENCE, SAME, SQL, ByHand, by_hand
from tests.support import let_pass, wait_for

KEEP_MS = 7 * 24 * 3_600_000
OTHER = SQL.replace("COUNT(*) AS n", "COUNT(*) * 2 AS n")


def test_a_view_that_is_written_all_the_time_is_compared_at_one_of_its_commits(tmp_path: Path) -> None:
    with by_hand(tmp_path, rows=40_000) as engine:
        stop = threading.Event()

        def work() -> None:
            while not stop.wait(0.001):
                engine.click()

        clicking = threading.Thread(target=work)
        clicking.start()
        try:
            wait_for(lambda: engine.shown() > 0, PATIENCE, "the first rows")
            deployment = engine.reaches(engine.deploy(SAME), "switched")
        finally:
            stop.set()
            clicking.join()
        [found] = deployment.comparisons
        # The count is of so many clicks in both: they were read at the same place.
        assert (found["same"], found["changed"], found["only_old"], found["only_new"]) == (40_001, 0, 0, 0)
        assert 0 < found["cut"] < engine.services.log.snapshot().arrival


def test_what_is_built_serves_only_once_it_shows_no_less(tmp_path: Path) -> None:
    with by_hand(tmp_path) as engine:
        engine.click(3)
        wait_for(lambda: engine.shown() == 3, PATIENCE, "three clicks")
        engine.more["BY_PAGE.v2"] = 1
        waiting = engine.reaches(engine.deploy(SAME), "waiting")
        assert waiting.detail == "1 of 1 rows of `by_page` differ (100.00%): somebody has to approve"
        engine.held.add("BY_PAGE.v2")
        engine.click(5)
        wait_for(lambda: engine.shown() == 8, PATIENCE, "eight clicks")
        engine.services.deployments.approve(waiting.id)
        let_pass(1.0)
        assert (engine.serving(), engine.shown()) == (1, 8)
        engine.held.clear()
        engine.reaches(waiting, "switched")
        assert engine.serving() == 2
        # Readers are told after the catalog has it.
        wait_for(lambda: engine.shown() == 9, PATIENCE, "the new version's clicks")


def test_what_cannot_be_compared_for_whatever_reason_waits_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with by_hand(tmp_path) as engine:
        engine.click()
        scratch = engine.services.project.data / "scratch"
        scratch.write_text("in the way")
        waiting = engine.reaches(engine.deploy(SAME), "waiting")
        assert waiting.detail.startswith("`by_page` not compared: FileExistsError: ")
        assert all(query.until is None for query in engine.services.catalog.queries())
        engine.services.deployments.cancel(waiting.id)
        engine.reaches(engine.deploy(SAME, approve=True), "switched")
    [first, _] = [record for record in caplog.records if "could not be compared" in record.message]
    assert first.exc_info is not None


def test_what_belongs_together_is_waited_for_in_vain_only_once(tmp_path: Path) -> None:
    """All of a chain is held meanwhile, and it may be long."""
    clock = ManualClock(1_790_000_000_000)
    with by_hand(tmp_path, clock=clock) as engine:
        around = engine.services
        parts = around.log, around.catalog, around.deployments, around.followers, clock, tmp_path / "scratch"
        comparer = Comparer(*parts, stopped=lambda: False)
        looked: list[str] = []

        def never(what: str, passes_ms: int) -> bool:
            looked.append(what)
            clock.advance(passes_ms)
            return False

        for what, passes_ms in (("the first", 150_000), ("the next", 0)):
            with pytest.raises(NotComparable, match=f"waited 300 s for {what}"):
                comparer._until(partial(never, what, passes_ms), what)
        assert looked == ["the first", "the first", "the next"]


class Stumbling(Deployer):
    """One deployment cannot even be looked at."""

    def _failure(self, deployment: Deployment) -> str | None:
        if deployment.id == 3:
            raise OSError("no space left on device")
        return super()._failure(deployment)


def deployer_of(engine: ByHand, kind: type[Deployer] = Deployer) -> Deployer:
    services = engine.services
    around = Surroundings(
        services.log,
        services.catalog,
        services.engine,
        services.followers,
        services.clock,
        services.project.data / "scratch",
        KEEP_MS,
    )
    return kind(services.deployments, around)


def test_one_that_cannot_be_looked_at_keeps_nothing_else_from_being_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(1_790_000_000_000)
    with by_hand(tmp_path, clock=clock) as engine:
        engine.click()
        switched = engine.reaches(engine.deploy(SAME), "switched")
        engine.more["BY_PAGE.v3"] = 1
        waiting = engine.reaches(engine.deploy(OTHER), "waiting")
        assert (switched.id, waiting.id) == (2, 3)
        stumbling = deployer_of(engine, Stumbling)
        clock.advance(KEEP_MS)
        assert not stumbling.look()
        assert not stumbling.look()
        assert [version.number for version in engine.services.catalog.versions("BY_PAGE")] == [2, 3]
    said = [record for record in caplog.records if record.message == "deployment 3 cannot be looked after"]
    assert len(said) == 1, "it is said once"


def test_a_rollback_is_undone_at_once_and_compared_while_events_arrive(tmp_path: Path) -> None:
    with by_hand(tmp_path) as engine:
        engine.click(3)
        wait_for(lambda: engine.shown() == 3, PATIENCE, "three clicks")
        engine.more["BY_PAGE.v2"] = 1
        made = engine.reaches(engine.deploy(OTHER, approve=True), "switched")
        engine.services.deployments.rollback("BY_PAGE")
        queries = [query.id for query in engine.services.catalog.queries()]
        engine.click(2)
        waiting = engine.reaches(engine.deploy(OTHER), "waiting")
        assert waiting.detail == "1 of 1 rows of `by_page` differ (100.00%): somebody has to approve"
        [version] = [one for one in engine.services.catalog.versions("BY_PAGE") if one.number == 2]
        assert (version.state, version.deployment) == ("retired", made.id)
        engine.services.deployments.approve(waiting.id)
        engine.reaches(waiting, "switched")
        wait_for(lambda: engine.shown() == 6, PATIENCE, "what the kept version counts")
        assert (engine.serving(), [query.id for query in engine.services.catalog.queries()]) == (2, queries)
        assert all(query.until is None for query in engine.services.catalog.queries())


def test_a_view_that_is_to_read_another_stream_is_compared_though_nothing_arrives_in_the_old_one(
    tmp_path: Path,
) -> None:
    second = SQL.splitlines()[1].replace("clicks", "clicks_2")
    with by_hand(tmp_path, SQL + second) as engine:
        engine.click(3)
        wait_for(lambda: engine.shown() == 3, PATIENCE, "three clicks")
        columns = {"USERID": pa.array(["ann"]), "PAGE": pa.array(["/"]), "$time": pa.array([0], pa.int64())}
        engine.held.add("BY_PAGE")
        engine.services.log.append([Append("clicks_2", pa.record_batch(columns))]).result()
        moved = engine.deploy((SQL + second).replace("FROM clicks GROUP", "FROM clicks_2 GROUP"))
        [found] = engine.reaches(moved, "waiting").comparisons
        assert (found["same"], found["changed"]) == (0, 1), "three clicks, and one of the other stream"


def test_a_kept_version_that_has_failed_is_built_anew(tmp_path: Path) -> None:
    with by_hand(tmp_path) as engine:
        engine.click()
        engine.reaches(engine.deploy(OTHER, approve=True), "switched")
        engine.services.deployments.rollback("BY_PAGE")
        [kept] = [query for query in engine.services.catalog.queries() if query.sink_topic == "BY_PAGE.v2"]
        engine.fails(kept, "out of memory")
        [item] = [item for item in engine.deploy(OTHER).items if item.name == "BY_PAGE"]
        assert (item.verdict, item.number) == ("rebuilds", 3)


def test_columns_that_go_wait_for_somebody(tmp_path: Path) -> None:
    more = SQL.replace("COUNT(*) AS n", "COUNT(*) AS n, MAX(userid) AS last")
    with by_hand(tmp_path, more) as engine:
        engine.click()
        wait_for(lambda: engine.shown() == 1, PATIENCE, "a click")
        waiting = engine.reaches(engine.deploy(SQL), "waiting")
        assert waiting.detail == "`by_page` has no `last` any more: somebody has to approve"
        engine.services.deployments.cancel(waiting.id)
        gated = engine.reaches(engine.deploy(SQL, max_changed=0.0), "switched")
        assert gated.detail == "`by_page` has no `last` any more"
        engine.reaches(engine.deploy(more), "switched")


def test_what_failed_stops_holds_nothing_and_goes_with_the_next(tmp_path: Path) -> None:
    with by_hand(tmp_path, SQL + SQL.splitlines()[2].replace("by_page", "by_page_too")) as engine:
        services = engine.services
        engine.held |= {"BY_PAGE.v2", "BY_PAGE_TOO.v2"}
        changed = SAME + SAME.splitlines()[2].replace("by_page", "by_page_too")
        engine.click(5)
        building = engine.deploy(changed)
        assert wait_until_holds(engine, 0)
        engine.fails(services.deployments.queries(building)[0], "out of memory")
        failed = engine.reaches(building, "failed")
        first = services.deployments.queries(failed)[0].id
        assert failed.detail == (
            f"{first}: out of memory; throw away what it built:  headrace deploy cancel {building.id}"
        )
        assert {query.wanted for query in services.deployments.queries(failed)} == {"stopped"}
        assert wait_until_holds(engine, 5), "retention waits for nobody who will not go on"
        engine.reaches(engine.deploy(changed, approve=True), "switched")
        wait_for(
            lambda: [version.number for version in services.catalog.versions("BY_PAGE")] == [1, 3],
            PATIENCE,
            "what failed to be let go",
        )


def test_what_fails_while_it_is_compared_is_noticed_at_once(tmp_path: Path) -> None:
    with by_hand(tmp_path) as engine:
        engine.click()
        wait_for(lambda: engine.shown() == 1, PATIENCE, "the click")
        engine.held.add("BY_PAGE")
        engine.click()
        compared = engine.deploy(SAME)
        # What serves is behind, so that the comparison waits for it.
        engine.reaches(compared, "comparing")
        [query] = engine.services.deployments.queries(compared)
        engine.fails(query, "out of memory")
        wait_for(lambda: engine.services.deployments.get(compared.id).stage == "failed", 5, "it to be noticed")


def wait_until_holds(engine: ByHand, offset: int) -> bool:
    """Whether retention may remove what is before this offset, and no more."""
    log, catalog = engine.services.log, engine.services.catalog
    wait_for(lambda: needed_offsets(log, catalog, "clicks") == {0: offset}, PATIENCE, f"{offset} to be needed")
    return True


LAYERED = "CREATE TABLE hits AS SELECT userid, COUNT(*) AS n FROM clicks GROUP BY userid REFRESH EVERY 1 HOUR;"


def test_one_that_waits_keeps_nothing_from_being_refreshed_but_what_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(1_790_000_000_000)
    with by_hand(tmp_path, clock=clock) as engine:
        deployments = engine.services.deployments
        engine.click()
        engine.more["BY_PAGE.v2"] = 1
        waiting = engine.reaches(engine.deploy(SAME), "waiting")
        engine.services.statements.execute(LAYERED)
        assert [one.id for one in engine.services.catalog.deployments() if not one.over] == [waiting.id]
        clock.advance(10_000)
        refresh = waiting.id + 1
        wait_for(lambda: refresh in engine.services.catalog.state.deployments, PATIENCE, "the refresh")
        assert deployments.get(refresh).items[0].name == "HITS"
        assert deployments.get(waiting.id).stage == "waiting"

        deployments.cancel(refresh)
        deployments.cancel(waiting.id)
        changed = engine.deploy(SAME + LAYERED.replace("COUNT(*)", "COUNT(page)"), drop=False)
        deployments.pause(changed.id, True)
        caplog.clear()
        for _ in range(3):
            clock.advance(3_600_000)
            assert deployer_of(engine).look()
        assert [one.id for one in engine.services.catalog.deployments() if not one.over] == [changed.id]
        assert f"view `HITS` cannot be refreshed: deployment {changed.id} is building" in caplog.text


class Jumping(ManualClock):
    def jump(self, milliseconds: int) -> None:
        """Somebody sets it."""
        self._now_ms += milliseconds


def test_a_clock_that_is_set_forward_does_not_take_the_way_back_away(tmp_path: Path) -> None:
    clock = Jumping(1_790_000_000_000)
    with by_hand(tmp_path, clock=clock) as engine:
        engine.click()
        engine.reaches(engine.deploy(SAME), "switched")
        careful = deployer_of(engine)
        clock.jump(10 * KEEP_MS)
        assert careful.look()
        assert [version.number for version in engine.services.catalog.versions("BY_PAGE")] == [1, 2]
        clock.advance(KEEP_MS)
        assert careful.look()
        assert [version.number for version in engine.services.catalog.versions("BY_PAGE")] == [2]


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace.deploy")
