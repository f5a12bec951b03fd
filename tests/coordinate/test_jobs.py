"""Jobs: when they run, that they do not run twice, and that nothing of it is lost with a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from headrace.clock import ManualClock
from headrace.config import LogSettings, load_project
from headrace.coordinate.job_runner import JobRunner, Outcome
from headrace.coordinate.job_schedule import parse_schedule
from headrace.coordinate.jobs import Job, load_jobs
from headrace.errors import Conflict, NotFound
from headrace.log.local.open import LocalLog
from tests.support import wait_for

HOUR = 3_600_000


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("cron", "zone", "now", "then"),
    [
        ("0 3 * * *", "UTC", "2026-11-16T02:59:59", "2026-11-16T03:00"),
        ("0 3 * * *", "UTC", "2026-11-16T03:00", "2026-11-17T03:00"),
        ("*/15 9-17 * * mon-fri", "UTC", "2026-11-13T17:46", "2026-11-16T09:00"),
        ("30 6 1,15 * *", "UTC", "2026-11-02T00:00", "2026-11-15T06:30"),
        ("0 0 13 * fri", "UTC", "2026-11-14T00:00", "2026-11-20T00:00"),
        ("0 0 29 feb *", "UTC", "2026-11-14T00:00", "2028-02-29T00:00"),
        ("0 3 * * 7", "UTC", "2026-11-16T00:00", "2026-11-22T03:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-11-16T00:00", "2026-11-16T02:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T00:00", "2026-03-29T01:30"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:31", "2026-10-26T01:30"),
    ],
)
def test_cron_says_when(cron: str, zone: str, now: str, then: str) -> None:
    schedule = parse_schedule("", cron, zone, "job")
    assert schedule is not None
    assert schedule.after(at(now)) == at(then)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run = 'repair'", "needs `view`"),
        ("run = 'dance'", "`run`: invalid enum value"),
        ("run = 'check'\nview = 'v'\nevery = 'soon'", "not a length of time"),
        ("run = 'check'\nview = 'v'\nafter = ['b']", "comes after `b`, which does not exist"),
        ("run = 'check'\nview = 'v'\nafter = ['a']", "wait for each other"),
        ("run = 'export'\nquery = 'SELECT 1;'\nto = 'x.xls'", "writes `x.xls`"),
        ("run = 'export'\nto = 'x.csv'", "needs `query` or `view` or `topic`"),
        ("run = 'check'\nview = 'v'\nschedule = '0 3 * *'", "is not a schedule"),
        ("run = 'check'\nview = 'v'\nschedule = '0 25 * * *'", "`25` is no hour"),
        ("run = 'check'\nview = 'v'\nschedule = '0 0 30 2 *'", "never comes"),
        ("run = 'check'\nview = 'v'\nschedule = '0 0 5-1 * *'", "ends before it begins"),
        ("run = 'check'\nview = 'v'\nschedule = '0 0 * * *'\nzone = 'Mars'", "no time zone `Mars`"),
        ("run = 'check'\nview = 'v'\nschedule = '0 0 * * *'\nevery = '1h'", "`every` and `schedule`"),
    ],
)
def test_what_is_wrong_with_a_job_is_said(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, f"[[job]]\nname = 'a'\n{text}\n")
    loaded = load_jobs(load_project(tmp_path))
    [problem] = loaded.problems
    assert (problem.file, not loaded.jobs) == ("jobs/all.toml", True)
    assert message in problem.message


def write(folder: Path, text: str) -> None:
    (folder / "headrace.toml").touch()
    (folder / "jobs").mkdir(exist_ok=True)
    (folder / "jobs" / "all.toml").write_text(text)


class Works:
    """Stands for the processes: does what it is told to, and remembers what it did."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.failing: set[str] = set()
        self.held = threading.Event()
        self.held.set()

    def __call__(self, job: Job, said: Callable[[str], None], stopped: threading.Event) -> Outcome:
        self.done.append(job.name)
        said("at it")
        wait_for(lambda: self.held.is_set() or stopped.is_set(), 30, "the job may end")
        return Outcome(job.name not in self.failing, "so it is")


@contextmanager
def running(folder: Path, clock: ManualClock, work: Works) -> Iterator[JobRunner]:
    """A runner that looks when the test does."""
    log = LocalLog(folder / "log", LogSettings(), clock)
    runner = JobRunner(load_project(folder), log, clock)
    runner.start(work, by_itself=False)
    try:
        yield runner
    finally:
        runner.close()
        log.close()


def settle(runner: JobRunner) -> None:
    """Look until nothing is left to do now."""

    def rests() -> bool:
        runner.look()
        return not runner.history.under_way()

    wait_for(rests, 30, "the jobs")


CHAIN = """
[[job]]
name = "later"
run = "check"
view = "v"
after = ["first"]
[[job]]
name = "first"
run = "repair"
view = "v"
every = "1h"
[[job]]
name = "asked"
run = "check"
view = "v"
"""


def test_a_job_runs_when_its_time_has_come_and_what_comes_after_it_runs_then(tmp_path: Path) -> None:
    write(tmp_path, CHAIN)
    clock, work = ManualClock(10 * HOUR), Works()
    with running(tmp_path, clock, work) as runner:
        settle(runner)
        assert work.done == ["first", "later"], "the first time, at once"
        settle(runner)
        assert work.done == ["first", "later"], "once"
        [run] = runner.history.runs("first")
        assert (run.state, run.why, run.attempts, run.message) == ("done", "schedule", 1, "so it is")
        assert runner.next_ms(runner.job("first")) == 11 * HOUR
        assert runner.next_ms(runner.job("later")) is None
        clock.advance(3 * HOUR)
        settle(runner)
        assert work.done == ["first", "later"] * 2, "what was missed is made up for once"
        work.failing = {"first"}
        clock.advance(HOUR)
        settle(runner)
        assert work.done[-1] == "first", "what comes after a failure waits"
        assert [run.state for run in runner.history.runs("first")] == ["failed", "done", "done"]


def test_what_is_asked_for_runs_with_what_it_comes_after_and_never_twice_at_once(tmp_path: Path) -> None:
    write(tmp_path, CHAIN.replace('every = "1h"', "retries = 1"))
    work = Works()
    work.held.clear()
    with running(tmp_path, ManualClock(HOUR), work) as runner:
        runner.ask(["later"])
        runner.look()
        wait_for(lambda: work.done == ["first"], 30, "the first")
        assert [run.number for run in runner.ask(["first"])] == [1], "it is running already"
        wait_for(lambda: runner.progress("first") == "at it", 30, "its progress")
        work.held.set()
        settle(runner)
        assert work.done == ["first", "later"]
        work.failing = {"first"}
        runner.ask(["later"])
        settle(runner)
        assert work.done[2:] == ["first", "first"], "tried again once"
        assert runner.history.runs("first")[0].attempts == 2
        waiting = runner.history.runs("later")[0]
        assert (waiting.state, waiting.message) == ("waiting", "`first` failed")
        with pytest.raises(Conflict):
            runner.cancel("later")


def test_what_runs_can_be_cancelled_also_when_no_file_has_it_any_more(tmp_path: Path) -> None:
    write(tmp_path, CHAIN.replace('every = "1h"', ""))
    work = Works()
    work.held.clear()
    with running(tmp_path, ManualClock(HOUR), work) as runner:
        runner.ask(["asked"])
        runner.look()
        wait_for(lambda: "asked" in work.done, 30, "it to run")
        write(tmp_path, "")
        assert runner.jobs() == []
        assert [job.name for job in runner.shown()] == ["asked"]
        runner.cancel("asked")
        wait_for(lambda: runner.shown() == [], 30, "it to end")
        assert runner.history.runs("asked")[0].state == "cancelled"


def test_a_run_that_was_killed_with_its_server_is_run_once_more(tmp_path: Path) -> None:
    write(tmp_path, CHAIN)
    clock, work = ManualClock(HOUR), Works()
    work.held.clear()
    for _ in range(2):
        with running(tmp_path, clock, work) as runner:
            if not work.done:
                runner.ask(["asked"])
            seen = len(work.done)
            runner.look()
            wait_for(lambda before=seen: work.done[before:].count("asked") == 1, 30, "it")  # type: ignore[misc]
    with running(tmp_path, clock, work) as runner:
        found = [(run.state, run.why) for run in runner.history.runs("asked")]
        assert found == [("interrupted", "again"), ("interrupted", "asked")], "a third time would be a habit"


def test_a_runner_that_is_closed_begins_nothing_more(tmp_path: Path) -> None:
    """It may have been about to look when it was told."""
    write(tmp_path, CHAIN)
    clock, work = ManualClock(HOUR), Works()
    work.held.clear()
    with running(tmp_path, clock, work) as runner:
        runner.ask(["asked"])
        runner.look()
        wait_for(lambda: sorted(work.done) == ["asked", "first"], 30, "both")
        runner.close()
        runner.look()
        assert [run.state for run in runner.history.runs("asked")] == ["running"]
        assert len(work.done) == 2


def test_a_run_whose_end_could_not_be_written_down_is_run_once_more(tmp_path: Path) -> None:
    write(tmp_path, CHAIN)
    work = Works()
    with running(tmp_path, ManualClock(HOUR), work) as runner:
        [run] = runner.ask(["asked"])
        runner.history.write(msgspec.structs.replace(run, state="running"), HOUR)
        settle(runner)
        assert work.done.count("asked") == 1
        assert [run.state for run in runner.history.runs("asked")] == ["done", "interrupted"]


def test_times_that_nobody_saw_may_be_left_out_and_a_clock_may_jump(tmp_path: Path) -> None:
    daily = "[[job]]\nname = 'daily'\nrun = 'check'\nview = 'v'\nschedule = '0 3 * * *'\n"
    write(tmp_path, daily + "missed = 'skip'\n")
    clock, work = ManualClock(at("2026-11-16T00:00")), Works()
    with running(tmp_path, clock, work) as runner:
        settle(runner)
        assert work.done == [], "a new job waits for its time"
        clock.advance(4 * HOUR)
        settle(runner)
        assert work.done == ["daily"]
    clock.advance(48 * HOUR)
    with running(tmp_path, clock, work) as runner:
        settle(runner)
        assert work.done == ["daily"], "left out"
        assert runner.next_ms(runner.job("daily")) == at("2026-11-19T03:00")
    write(tmp_path, daily)
    with running(tmp_path, clock, work) as runner:
        settle(runner)
        assert work.done == ["daily"] * 2, "made up for once, though two were missed"
        clock.advance(-30 * 24 * HOUR)
        settle(runner)
        assert runner.next_ms(runner.job("daily")) == at("2026-10-20T03:00"), "a clock set back delays nothing for ever"
        clock.advance(24 * HOUR)
        settle(runner)
        assert work.done == ["daily"] * 3


def test_files_that_are_wrong_change_nothing_and_are_said(tmp_path: Path) -> None:
    write(tmp_path, CHAIN)
    with running(tmp_path, ManualClock(HOUR), Works()) as runner:
        assert [job.name for job in runner.jobs()] == ["first", "asked", "later"]
        write(tmp_path, "[[job]]\nname = 'a'\n")
        assert len(runner.jobs()) == 3
        assert runner.problem is not None
        assert "all.toml" in runner.problem
        write(tmp_path, CHAIN)
        assert len(runner.jobs()) == 3
        assert runner.problem is None


def test_a_file_that_is_wrong_keeps_the_jobs_of_others_from_nothing(tmp_path: Path) -> None:
    write(tmp_path, CHAIN)
    good, bad = '[[job]]\nname = "{}"\nrun = "check"\nview = "v"\n', '[[job]]\nname = "x"\nrn = "check"\nview = "v"\n'
    (tmp_path / "jobs" / "more.toml").write_text(good.format("ok") + "\n" + bad)
    (tmp_path / "jobs" / "torn.toml").write_text("[[job]]\nname = 'y\n")
    (tmp_path / "jobs" / "next.toml").write_text(good.format("z") + 'after = ["ok"]\n' + good.format("first"))
    with running(tmp_path, ManualClock(HOUR), Works()) as runner:
        with pytest.raises(NotFound, match="job `ok` does not exist") as refused:
            runner.job("ok")
        assert refused.value.detail is not None
        assert "jobs/more.toml:8: there is no setting `rn`" in refused.value.detail
        assert sorted(run.job for run in runner.ask([])) == ["asked", "first", "later"]
        assert runner.problem is not None
        said = runner.problem.splitlines()
        assert said.pop(2).startswith("jobs/torn.toml:2: not valid TOML: ")
        assert said == [
            "jobs/more.toml:8: there is no setting `rn`",
            "  did you mean `run`?  docs/howto/run-jobs.md says what a job can be",
            "jobs/next.toml:6: there are two jobs `first`",
            "  the other is jobs/all.toml:7",
            "jobs/next.toml:1: job `z` comes after `ok`, which does not exist",
        ]


def test_what_an_older_version_wrote_is_taken_over(tmp_path: Path) -> None:
    write(tmp_path, CHAIN)
    (tmp_path / ".headrace").mkdir()
    (tmp_path / ".headrace" / "jobs.json").write_text(
        f'{{"first":{{"state":"done","started_ms":{HOUR},"finished_ms":{HOUR + 5},"attempts":1,"message":"well"}}}}'
    )
    work = Works()
    with running(tmp_path, ManualClock(HOUR + 10), work) as runner:
        assert runner.next_ms(runner.job("first")) == 2 * HOUR
        assert [run.message for run in runner.history.runs("first")] == ["well"]
        assert not (tmp_path / ".headrace" / "jobs.json").exists()
