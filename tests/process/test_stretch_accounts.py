"""How a batch job is cut into stretches, what is known of them after a kill, and how fast they may follow."""

from __future__ import annotations

import itertools
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import ManualClock, SystemClock
from headrace.process.base import LayerSpec
from headrace.process.layer_job import Pace
from headrace.process.stretches import ACCOUNT, Places, Stretches, ahead, count
from headrace.sql.api import Draft, parse, plan_query, source_from
from headrace.sql.statements import CreateAsSelect, CreateSource

SQL = """CREATE STREAM events (k VARCHAR KEY) WITH (KAFKA_TOPIC='events', PARTITIONS=2);
CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM events GROUP BY k;"""
ENDS = {"events": {0: 100, 1: 60}}


def spec_of(folder: Path | None) -> LayerSpec:
    declared, statement = parse(SQL)
    assert isinstance(declared, CreateSource)
    assert isinstance(statement, CreateAsSelect)
    draft = Draft()
    draft.add(source_from(declared, draft))
    return LayerSpec("BATCH_T_1", plan_query(statement, draft), ENDS, 160, folder=folder, begins={"events": {0: 20}})


def kept(stretches: Stretches, name: str) -> None:
    assert stretches.folder is not None
    (stretches.folder / name).mkdir(parents=True)


def test_a_job_goes_on_behind_the_last_stretch_that_was_kept(tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "job")
    stretches = Stretches(spec)
    assert (stretches.total, stretches.left) == (140, 140)
    ends = stretches.next(35)
    assert ends == {"events": {0: 40, 1: 15}}
    stretches.plan(ends)
    # Killed before it was kept: another pace has no say in what was planned.
    again = Stretches(spec)
    assert (again.left, again.next(1)) == (140, ends)
    kept(again, "0-a")
    again.done("0-a", [], {"events": {0: 7}})
    found = Stretches(spec)
    assert (found.left, found.account.kept, found.account.times) == (105, ["0-a"], {"events": {0: 7}})
    assert found.next(105) is None
    assert found.next(90) is None  # a few more are not worth another one
    found.plan(found.ends)
    # Killed while all that is left was computed at once: so it is again, whatever the pace.
    assert Stretches(spec).next(1) is None


def test_a_stretch_that_was_planned_without_a_pace_is_not_made_up_for(tmp_path: Path) -> None:
    stretches = Stretches(spec_of(tmp_path / "job"))
    # Five seconds' rows, of each partition its share.
    assert (stretches.paced(0), stretches.paced(4), stretches.paced(1_000)) == (0, 21, 140)
    assert count(stretches.account.done, stretches.next(20) or {}) == 21
    stretches.plan({"events": {0: 90, 1: 50}})
    assert (stretches.paced(0), stretches.paced(4)) == (0, 21)


def test_what_does_not_count_is_removed_and_only_that(tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "job")
    stretches = Stretches(spec)
    for number in range(2):
        stretches.plan(ahead(stretches.account.done, ENDS, 30))
        kept(stretches, f"{number}-x")
        stretches.path(f"{number}-x.letters").write_bytes(b"")
        stretches.done(f"{number}-x", [f"{number}-x.letters"], {})
    kept(stretches, "2-cut-short")
    Stretches(spec).tidy()
    there = {path.name for path in (tmp_path / "job").iterdir()}
    assert there == {ACCOUNT, "0-x", "1-x", "0-x.letters", "1-x.letters"}
    kept(stretches, "2-merged")
    stretches.merged("2-merged")
    assert Stretches(spec).account.kept == ["2-merged"]
    assert not (tmp_path / "job" / "0-x").exists()


def test_who_still_writes_what_does_not_count_stops_nobody(tmp_path: Path) -> None:
    stretches = Stretches(spec_of(tmp_path / "job"))
    kept(stretches, "0-killed")
    wrote, enough = threading.Event(), threading.Event()

    def write() -> None:
        for number in itertools.count():
            with suppress(OSError):
                (tmp_path / "job" / "0-killed").mkdir(exist_ok=True)
                (tmp_path / "job" / "0-killed" / str(number)).touch()
            wrote.set()
            if enough.is_set():
                return

    writing = threading.Thread(target=write)
    writing.start()
    try:
        assert wrote.wait(30)
        for _ in range(100):
            stretches.tidy()
    finally:
        enough.set()
        writing.join()
    stretches.tidy()
    assert list((tmp_path / "job").iterdir()) == []


def test_what_was_kept_for_another_cut_is_worth_nothing(tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "job")
    stretches = Stretches(spec)
    stretches.plan(ahead(stretches.account.done, ENDS, 30))
    kept(stretches, "0-x")
    stretches.done("0-x", [], {})
    other = Stretches(replace(spec, cut=170, ends={"events": {0: 110, 1: 60}}))
    assert (other.left, other.account.kept) == (150, [])
    (tmp_path / "job" / ACCOUNT).write_bytes(b"{torn")
    assert Stretches(spec).left == 140


def test_tables_that_are_read_again_each_time_make_stretches_longer(tmp_path: Path) -> None:
    joined = replace(
        spec_of(tmp_path / "job"), ends={**ENDS, "names": {0: 50}}, from_beginning=frozenset({"names"}), begins={}
    )
    assert Stretches(joined).next(1) == {"events": {0: 32, 1: 19}}


def test_without_a_folder_there_is_one_stretch() -> None:
    assert Stretches(spec_of(None)).next(1) is None


offsets = st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.integers(0, 3), st.integers(0, 9_999)), min_size=1)


@given(offsets, offsets, st.integers(1, 500))
def test_stretches_cover_everything_once(starts: Places, ends: Places, rows: int) -> None:
    left = count(starts, ends)
    while (then := ahead(starts, ends, rows)) is not ends:
        taken = count(starts, then)
        # A partition cannot give a part of a row.
        assert rows <= taken <= rows + 8
        assert count(then, ends) == left - taken
        starts, left = then, left - taken
    assert left <= rows * 5 / 4


def test_a_pace_holds_between_stretches_until_it_is_changed_or_stopped() -> None:
    clock = ManualClock()
    pace = Pace(clock, 100)
    assert pace.left(began=0.0, rows=500) == 5.0
    clock.advance(2_000)
    assert pace.left(began=0.0, rows=500) == 3.0
    pace.set(250)
    assert pace.left(began=0.0, rows=500) == 0.0
    pace.set(0)
    assert pace.left(began=0.0, rows=10**9) == 0.0


def test_whoever_rests_hears_of_a_change_at_once() -> None:
    for stops in (False, True):
        pace = Pace(SystemClock(), 1)
        resting = threading.Thread(target=pace.rest, args=(SystemClock().monotonic(), 10**9), daemon=True)
        resting.start()
        pace.stop() if stops else pace.set(0)
        resting.join(30)
        assert not resting.is_alive()
