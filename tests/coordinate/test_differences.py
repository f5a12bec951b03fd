"""Any two versions that are kept, compared when somebody asks: computed by hand, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.clock import ManualClock
from headrace.coordinate import comparing, differences
from headrace.coordinate.differences import KEPT_MS, Difference
from headrace.coordinate.events import QueryPaced, QueryWanted
from headrace.errors import Conflict, Gone, HeadraceError, NotFound
from headrace.views.difference_rows import Filters
from tests.coordinate.by_hand import PATIENCE, SAME, ByHand, by_hand
from tests.coordinate.test_deployer import OTHER, deployer_of
from tests.support import wait_for


def ended(engine: ByHand, old: int | None = None, new: int | None = None) -> Difference:
    """Compared, or not."""
    known = engine.services.differences
    number = known.start("BY_PAGE", old, new).id
    wait_for(lambda: known.get("BY_PAGE", number).state in ("done", "failed"), PATIENCE, "the comparison")
    return known.get("BY_PAGE", number)


def counted(found: Difference) -> tuple[int, int, int, int]:
    assert found.comparison is not None, found.error
    one = found.comparison
    return one.same, one.changed, one.only_old, one.only_new


def bounds(engine: ByHand) -> list[object]:
    return [query.until for query in engine.services.catalog.queries() if query.until is not None]


@contextmanager
def clicking(engine: ByHand) -> Iterator[None]:
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.001):
            engine.click()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def two_versions(folder: Path, rows: int = 0, more: int = 0) -> Iterator[ByHand]:
    """The first retired, the second serves, and counts so many more."""
    with by_hand(folder, rows=rows) as engine:
        engine.click(3)
        wait_for(lambda: engine.shown() == 3, PATIENCE, "three clicks")
        engine.more["BY_PAGE.v2"] = more
        engine.reaches(engine.deploy(SAME, approve=True), "switched")
        yield engine


def test_versions_that_rest_are_compared_as_they_are_either_way_round(tmp_path: Path) -> None:
    with two_versions(tmp_path, rows=120, more=4) as engine:
        before = engine.services.catalog.state.events
        found = ended(engine)
        assert (found.old, found.new, counted(found)) == (1, 2, (120, 1, 0, 0))
        assert found.rows is not None
        [row], more = found.rows.page(Filters(), 0, 10)
        assert (row.key, row.old, row.new, row.deltas, more) == ({"page": "all"}, {"n": 3}, {"n": 7}, {"n": 4.0}, None)
        turned = ended(engine, 2, 1)
        assert turned.rows is not None
        [row], _ = turned.rows.page(Filters(), 0, 10)
        assert (row.old, row.new, row.deltas) == ({"n": 7}, {"n": 3}, {"n": -4.0})
        assert engine.services.catalog.state.events == before, "nobody was held up"


def test_versions_that_are_written_all_the_time_are_compared_at_the_same_records(tmp_path: Path) -> None:
    with two_versions(tmp_path, rows=20_000) as engine, clicking(engine):
        found = ended(engine)
        assert counted(found) == (20_001, 0, 0, 0)
        assert found.comparison is not None
        assert 0 < (found.comparison.cut or 0) <= engine.services.log.snapshot().arrival
        engine.more["BY_PAGE.v1"] = 2
        wait_for(lambda: counted(ended(engine)) == (20_000, 1, 0, 0), PATIENCE, "what counts otherwise to be seen")
        assert bounds(engine) == []


def test_one_that_waits_for_somebody_is_compared_with_what_serves_and_with_what_did(tmp_path: Path) -> None:
    with two_versions(tmp_path) as engine:
        engine.more["BY_PAGE.v3"] = 1
        engine.reaches(engine.deploy(OTHER), "waiting")
        found = ended(engine)
        assert (found.old, found.new, counted(found)) == (2, 3, (0, 1, 0, 0))
        with clicking(engine):
            assert counted(ended(engine, 1, 3)) == (0, 1, 0, 0)
            assert counted(ended(engine, 1, 2)) == (1, 0, 0, 0)
        assert bounds(engine) == []


def test_one_that_stands_still_at_the_same_place_is_compared_however_late_that_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "QUIET_S", -1.0)
    with two_versions(tmp_path) as engine:
        [retired] = [query for query in engine.services.catalog.queries() if query.sink_topic == "BY_PAGE.v1"]
        engine.services.catalog.append([QueryWanted(retired.id, "stopped")])
        assert counted(ended(engine)) == (1, 0, 0, 0)


def test_one_that_stands_still_elsewhere_is_refused_and_says_where(tmp_path: Path) -> None:
    with two_versions(tmp_path) as engine:
        catalog = engine.services.catalog
        [retired] = [query for query in catalog.queries() if query.sink_topic == "BY_PAGE.v1"]
        catalog.append([QueryWanted(retired.id, "stopped")])
        assert counted(ended(engine)) == (1, 0, 0, 0)
        engine.click(2)
        wait_for(lambda: engine.shown() == 5, PATIENCE, "five clicks")
        found = ended(engine)
        assert isinstance(found.error, HeadraceError)
        assert found.error.message.startswith("version 1 of `by_page` stands at arrival ")
        assert found.error.message.endswith(f"its query {retired.id} is stopped")
        assert found.error.hint == f"headrace query start {retired.id}"
        assert (found.error.detail or "").startswith("version 2 is at arrival ")


def test_what_begins_to_serve_is_held_up_no_longer(tmp_path: Path) -> None:
    with two_versions(tmp_path) as engine:
        known, deployments = engine.services.differences, engine.services.deployments
        engine.held.add("BY_PAGE.v1")
        engine.click(2)
        number = known.start("BY_PAGE").id
        wait_for(lambda: bounds(engine) != [], PATIENCE, "the retired version to be held")
        deployments.rollback("BY_PAGE")
        wait_for(lambda: known.get("BY_PAGE", number).state == "failed", PATIENCE, "the comparison to end")
        error = known.get("BY_PAGE", number).error
        assert error is not None
        assert error.message == "the comparison was ended: which version serves has changed meanwhile"
        assert bounds(engine) == []
        serving = [query.id for query in engine.services.catalog.queries() if query.sink_topic == "BY_PAGE.v1"]
        deployments.bound({serving[0]: 1})
        assert bounds(engine) == []
        engine.held.clear()
        wait_for(lambda: engine.shown() == 5, PATIENCE, "five clicks")


def test_what_a_killed_process_held_is_let_go(tmp_path: Path) -> None:
    with two_versions(tmp_path) as engine:
        catalog = engine.services.catalog
        [retired] = [query for query in catalog.queries() if query.sink_topic == "BY_PAGE.v1"]
        catalog.append([QueryPaced(retired.id, 0, 1)])
        deployer_of(engine).look()
        assert bounds(engine) == []


def test_what_cannot_be_compared_is_refused_at_once(tmp_path: Path) -> None:
    with by_hand(tmp_path) as engine:
        known = engine.services.differences
        with pytest.raises(Conflict, match="`by_page` has no two versions to compare"):
            known.start("BY_PAGE")
        with pytest.raises(NotFound, match="version 7 of `by_page` is not kept"):
            known.start("BY_PAGE", 1, 7)
        engine.click()
        engine.held.add("BY_PAGE.v2")
        engine.deploy(SAME)
        with pytest.raises(Conflict, match="version 2 of `by_page` is building"):
            known.start("BY_PAGE", 1, 2)


def test_only_so_many_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "MOST_KEPT", 2)
    with two_versions(tmp_path) as engine:
        known, scratch = engine.services.differences, engine.services.project.data / "scratch"
        first, second, third = (ended(engine) for _ in range(3))
        with pytest.raises(Gone, match="difference 1 is not kept any more"):
            known.get("BY_PAGE", first.id)
        assert {path.name for path in scratch.iterdir()} == {f"compare-kept-{n}" for n in (second.id, third.id)}
        monkeypatch.setattr(differences, "KEPT_MS", 0)
        known.sweep()
        assert list(scratch.iterdir()) == []
        with pytest.raises(NotFound, match="has no difference 9"):
            known.get("BY_PAGE", 9)


def test_what_is_being_taken_away_is_kept_however_long_that_takes(tmp_path: Path) -> None:
    with two_versions(tmp_path) as engine:
        known, found = engine.services.differences, ended(engine)
        clock = ManualClock(found.looked_ms)
        known.around = replace(known.around, clock=clock)
        taken = known.watched(found, iter([b"1", b"2", b"3", b"4"]))
        for piece in (b"1", b"2", b"3"):
            clock.advance(KEPT_MS - 1)
            known.sweep()
            assert next(taken) == piece
        clock.advance(KEPT_MS)
        known.sweep()
        with pytest.raises(Gone, match="is not kept any more"):
            next(taken)
