"""Restoring a log to moments between backups: exactly what had been acknowledged by then, over all topics."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.clock import ManualClock
from headrace.config import ArchiveSettings, LogSettings
from headrace.errors import Conflict, NotFound
from headrace.log.base import Append, BatchIdentity, Route, TopicConfig, TopicPartition, TopicSpec
from headrace.log.local import marks
from headrace.log.local.backup import back_up
from headrace.log.local.backup_store import BackupStore
from headrace.log.local.cutting import Cut
from headrace.log.local.log import LocalLog
from headrace.log.local.moments import choose_arrival, choose_moment, list_spans, read_marks
from headrace.log.local.restore import restore_log
from headrace.log.local.verify import verify_log
from headrace.types import BIGINT, VARCHAR, Column
from tests.support import wait_for

SETTINGS = LogSettings(segment_bytes=6000, min_free_bytes=0, archive=ArchiveSettings(folder="archive", after_hours=1e6))
KEY, VALUE = (Column("K", VARCHAR),), (Column("N", BIGINT),)
EVENTS = TopicSpec("events", key=KEY, value=VALUE, partitions=2)
TABLE = TopicSpec("table", key=KEY, value=VALUE, role="derived", config=TopicConfig(compacted=True))
AT = TopicPartition("events", 0)


@pytest.fixture(autouse=True)
def _no_marks_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(marks.EVERY_S, "seconds", 3600.0)


@dataclass(slots=True)
class Step:
    """The log after something was acknowledged."""

    time_ms: int
    arrival: int
    events: list[int]
    table: dict[str, int]
    topics: set[str]
    batch: int
    committed: int | None
    columns: int


@dataclass(slots=True)
class Project:
    folder: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_800_000_000_000))
    events: list[int] = field(default_factory=list)
    table: dict[str, int] = field(default_factory=dict)
    topics: set[str] = field(default_factory=lambda: {"events", "table"})
    batch: int = -1
    committed: int | None = None
    next: int = 0
    steps: list[Step] = field(default_factory=list)
    log: LocalLog = field(init=False)
    columns: int = 1

    def __post_init__(self) -> None:
        self.open()
        for spec in (EVENTS, TABLE):
            self.log.create_topic(spec)
        self.log.mark()
        self.note()

    def open(self) -> None:
        self.log = LocalLog(self.folder / "log", SETTINGS, self.clock, serve=False)

    @property
    def backups(self) -> Path:
        return self.folder / "backups"

    def note(self) -> None:
        now, arrival = self.clock.now_ms(), self.log.snapshot().arrival
        facts = (list(self.events), dict(self.table), set(self.topics), self.batch, self.committed, self.columns)
        self.steps.append(Step(now, arrival, *facts))
        self.clock.advance(1)

    def rows(self, count: int) -> pa.RecordBatch:
        numbers = list(range(self.next, self.next + count))
        self.next += count
        self.events += numbers
        self.table |= {f"k{n % 5}": n for n in numbers}
        return pa.RecordBatch.from_pydict({"K": [f"k{n % 5}" for n in numbers], "N": numbers})

    def write(self, count: int = 3) -> None:
        rows = self.rows(count)
        ids = rows.append_column("$id", pa.array([f"id {n}" for n in rows.column("N").to_pylist()]))
        self.log.append([Append("events", ids), Append("table", rows)]).result()
        self.note()

    def commit(self) -> None:
        """Commit a query's batch, in several tasks and topics."""
        self.batch += 1
        columns = {"K": "K", "N": "N"}
        for task in range(2):
            rows = self.rows(4)
            for number, topic in enumerate(("events", "table")):
                self.log.stage(f"t{self.batch}", 2 * task + number, 0, [Route(topic, columns)], iter([rows]))
        identity = BatchIdentity("q", 1, "0123", self.batch, "{}")
        self.log.commit(f"t{self.batch}", [(task, 0) for task in range(4)], identity)
        self.note()

    def commit_offset(self) -> None:
        self.committed = self.log.snapshot().ends["events"][0].end
        self.log.reset_group("readers", {AT: self.committed})
        self.note()

    def change_topics(self, choice: random.Random) -> None:
        gone = sorted(self.topics - {"events", "table"})
        if gone and choice.random() < 0.5:
            self.log.delete_topic(gone[0])
            self.topics.remove(gone[0])
        elif choice.random() < 0.2:
            self.columns += 1
            value = tuple(Column("N" if n == 0 else f"N{n}", BIGINT) for n in range(self.columns))
            self.log.alter_topic(TopicSpec("events", key=KEY, value=value, partitions=2))
        else:
            name = f"t{self.next}"
            self.next += 1
            self.log.create_topic(TopicSpec(name, value=VALUE))
            self.topics.add(name)
        self.note()

    def maintain(self) -> None:
        """Rewrite and compact; archive, too, every other time."""
        self.log.maintain()
        if self.next % 2:
            self.log.archive_now(seal=True)
        self.clock.advance(1)

    def back_up(self) -> None:
        back_up(self.folder / "log", self.backups, self.clock)
        self.clock.advance(1)


def found(log: LocalLog) -> dict[str, Any]:
    events: list[tuple[int, int]] = []
    for partition in range(2):
        for records in log.read("events", partition, 0):
            events += zip(*(records.batch.column(name).to_pylist() for name in ("$arrival", "N")), strict=True)
    table: dict[str, int] = {}
    for records in log.read("table", 0, 0):
        table |= zip(*(records.batch.column(name).to_pylist() for name in ("K", "N")), strict=True)
    identity = log.last_identity("q", 1)
    offsets = log.group("readers").offsets if "readers" in log.groups() else ()
    return {
        "events": [n for _, n in sorted(events)],
        "table": table,
        "topics": {topic.name for topic in log.topics() if not topic.internal},
        "batch": -1 if identity is None else identity.batch,
        "committed": offsets[0].committed if offsets else None,
        "columns": len(log.topic("events").spec.value),
    }


@pytest.mark.parametrize("seed", range(2))
def test_a_restore_to_any_moment_has_exactly_what_was_acknowledged_by_then(tmp_path: Path, seed: int) -> None:
    project, choice = Project(tmp_path), random.Random(seed)
    actions = [project.write] * 6 + [project.commit] * 3 + [project.commit_offset, project.back_up]
    actions += [project.log.mark] * 8 + [lambda: project.change_topics(choice), lambda: project.clock.advance(5_000)]
    for _ in range(120):
        choice.choice([*actions, project.maintain])()
    project.log.close()
    project.open()
    for _ in range(40):
        choice.choice([project.write, project.commit, lambda: project.log.mark(), project.back_up])()
    project.back_up()
    project.log.close()
    store, exact = BackupStore(project.backups), 0
    for number in range(8):
        asked = choice.choice(project.steps[1:]).time_ms + choice.choice([0, 0, 0, 1])
        target = choose_moment(store, asked)
        wanted = [step for step in project.steps if step.time_ms <= asked][-1]
        assert target.arrival <= wanted.arrival
        if target.exact:
            assert target.arrival == wanted.arrival
            exact += 1
        else:
            wanted = [step for step in project.steps if step.time_ms <= target.time_ms][-1]
        place = tmp_path / f"restored-{number}"
        shutil.copytree(tmp_path / "archive", place / "archive") if (tmp_path / "archive").exists() else None
        cut = Cut(store, target) if target.mark is not None else None
        losses = {loss.topic for loss in cut.losses} if cut is not None else set()
        assert losses <= {"table", "_offsets"}, losses
        restore_log(place / "log", store, cut or target, project.clock)
        log = LocalLog(place / "log", SETTINGS, project.clock, serve=False)
        facts = found(log)
        for name, value in facts.items():
            if name not in losses and not (name == "committed" and "_offsets" in losses):
                assert value == getattr(wanted, name), (name, asked, target)
        # The log goes on, and known ids are those of the records that are there.
        known = log.places("events", [f"id {n}" for n in range(project.next)])
        assert {n for n, at in enumerate(known) if at is not None} <= set(wanted.events)
        log.append([Append("events", pa.RecordBatch.from_pydict({"K": ["k"], "N": [-1]}))]).result()
        log.maintain()
        assert found(log)["events"] == [*wanted.events, -1]
        log.close()
        assert verify_log(place / "log").findings == ()
    assert exact


def small(folder: Path, clock: ManualClock) -> LocalLog:
    return LocalLog(folder / "log", LogSettings(segment_bytes=4096, min_free_bytes=0), clock, serve=False)


def put(log: LocalLog, topic: str, *numbers: int) -> None:
    for number in numbers:
        rows = pa.RecordBatch.from_pydict({"K": [f"k{number % 3}"], "N": [number]})
        log.append([Append(topic, rows)]).result()


def values(log: LocalLog, topic: str) -> list[int]:
    return [n for records in log.read(topic, 0, 0) for n in records.batch.column("N").to_pylist()]


def restored(folder: Path, target: Any, clock: ManualClock) -> LocalLog:
    restore_log(folder / "log", BackupStore(folder / "backups"), target, clock)
    return small(folder, clock)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000_000)


ONE = TopicSpec("one", key=KEY, value=VALUE)


def test_a_moment_between_two_marks_is_said_not_to_be_exact(tmp_path: Path, clock: ManualClock) -> None:
    log = small(tmp_path, clock)
    log.create_topic(ONE)
    began = clock.now_ms()
    for number in range(3):
        put(log, "one", 2 * number)
        clock.advance(400)
        put(log, "one", 2 * number + 1)
        log.mark()
        clock.advance(600)
    back_up(tmp_path / "log", tmp_path / "backups", clock)
    put(log, "one", 6)
    log.close()
    store = BackupStore(tmp_path / "backups")
    arrivals = {asked: choose_moment(store, began + asked) for asked in (400, 999, 1000, 1399, 1400, 1700)}
    assert {asked: (target.arrival, target.exact) for asked, target in arrivals.items()} == {
        400: (2, True),
        999: (2, True),  # nothing was written in between
        1000: (2, False),
        1399: (2, False),
        1400: (4, True),
        1700: (4, True),
    }
    assert (arrivals[1399].time_ms, arrivals[1399].later) == (began + 400, 4)
    assert [(choose_arrival(store, n).arrival, choose_arrival(store, n).exact) for n in (2, 3, 4, 6)] == [
        (2, True),
        (2, False),
        (4, True),
        (6, True),
    ]
    with pytest.raises(NotFound, match="no backup has records up to arrival number 7"):
        choose_arrival(store, 7)
    with pytest.raises(NotFound, match="no backup is as old as that"):
        choose_moment(store, began - 1)
    [span] = list_spans(store)
    assert (span.first_ms, span.marks) == (began + 400, 3)
    log = restored(tmp_path, arrivals[1399], clock)
    assert values(log, "one") == [0, 1]
    log.close()


def test_marks_are_written_by_themselves(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(marks.EVERY_S, "seconds", 0.01)
    log = small(tmp_path, clock)
    log.create_topic(ONE)
    put(log, "one", 1)
    folder = tmp_path / "log" / "marks"

    def arrivals() -> list[int]:
        files = marks.list_files(folder, "seconds")
        return [mark.arrival for file in files for mark, _, _ in marks.decode_marks(file.read_bytes(), "")]

    wait_for(lambda: arrivals()[-1:] == [1], 60, "a mark")
    log.close()
    assert arrivals() == sorted(arrivals()), "marks are in the order of what they mark"


def test_a_clock_that_was_set_back_leaves_the_choice_to_the_user(tmp_path: Path, clock: ManualClock) -> None:
    log = small(tmp_path, clock)
    log.create_topic(ONE)
    began = clock.now_ms()
    for number, step in enumerate((3_600_000, -1_800_000, -100, 3_600_000)):
        put(log, "one", number)
        log.mark()
        clock.advance(step)
    back_up(tmp_path / "log", tmp_path / "backups", clock)
    log.close()
    store = BackupStore(tmp_path / "backups")
    assert choose_moment(store, began).arrival == 1
    with pytest.raises(Conflict, match="was more than once") as refused:
        choose_moment(store, began + 2_000_000)
    assert "--to-arrival 1  or  --to-arrival 4" in str(refused.value.hint)
    # A small step back is no second time.
    assert [mark.last_ms - began for mark in read_marks(store, store.points()[-1])["seconds"]] == [
        0,
        3_600_000,
        1_800_000,
        1_800_000,
    ]
    log = restored(tmp_path, choose_arrival(store, 1), clock)
    assert values(log, "one") == [0]
    log.close()


def test_what_a_later_backup_lacks_is_taken_from_an_older_one_or_named(tmp_path: Path, clock: ManualClock) -> None:
    log = small(tmp_path, clock)
    for spec in (ONE, TopicSpec("gone", key=KEY, value=VALUE), TABLE):
        log.create_topic(spec)
    for topic in ("one", "gone", "table"):
        put(log, topic, *range(40))
    log.mark()
    first = clock.now_ms()
    clock.advance(1000)
    back_up(tmp_path / "log", tmp_path / "backups", clock)
    clock.advance(1000)
    for topic in ("one", "gone", "table"):
        put(log, topic, *range(40, 80))
    log.mark()
    second = clock.now_ms()
    clock.advance(1000)
    put(log, "one", *range(80, 120))
    put(log, "table", *range(80, 120))
    log.delete_topic("gone")
    log.delete_records("one", 0, 60)
    log.mark()
    log.maintain()
    assert values(log, "table")[0] > 40
    back_up(tmp_path / "log", tmp_path / "backups", clock)
    log.close()
    store = BackupStore(tmp_path / "backups")
    cut = Cut(store, choose_moment(store, first))
    assert cut.losses == []
    cut = Cut(store, choose_moment(store, second))
    assert cut.target.exact
    assert [(loss.topic, loss.why.split()[0]) for loss in cut.losses] == [
        ("one", "retention"),
        ("gone", "the"),
        ("table", "compaction"),
    ]
    assert [loss.records for loss in cut.losses[:2]] == [20, 40]
    log = restored(tmp_path, cut, clock)
    # Offsets stay what they were, also where nothing is left.
    assert log.snapshot().ends["one"][0].end == log.snapshot().ends["gone"][0].end == 80
    assert values(log, "one") == [*range(40), *range(60, 80)]
    assert values(log, "gone") == list(range(40))
    put(log, "gone", 80)
    assert values(log, "gone") == [*range(40), 80]
    log.close()
    assert verify_log(tmp_path / "log").findings == ()
    log = restored(tmp_path, Cut(store, choose_moment(store, first)), clock)
    assert [values(log, topic) for topic in ("one", "gone")] == [list(range(40))] * 2
    newest = {n % 3: n for n in values(log, "table")}
    assert newest == {n % 3: n for n in range(40)}
    log.close()


def test_a_restored_log_can_be_restored_again_and_knows_what_it_does_not_have(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = small(tmp_path, clock)
    log.create_topic(ONE)
    times = []
    for number in range(4):
        put(log, "one", number)
        log.mark()
        times.append(clock.now_ms())
        clock.advance(1000)
    back_up(tmp_path / "log", tmp_path / "backups", clock, keep=1)
    log.close()
    clock.advance(1000)
    store = BackupStore(tmp_path / "backups")
    log = restored(tmp_path, choose_moment(store, times[1]), clock)
    clock.advance(1000)
    put(log, "one", 10, 11)
    log.close()
    clock.advance(1000)
    back_up(tmp_path / "log", tmp_path / "backups", clock, keep=1)
    target = choose_moment(store, times[0])
    assert (target.arrival, target.exact) == (1, True)
    # What was written then is not in this log: it was restored to before.
    target = choose_moment(store, times[2])
    assert (target.arrival, target.exact, target.time_ms) == (2, False, times[1])
    log = restored(tmp_path, target, clock)
    assert values(log, "one") == [0, 1]
    log.close()


def test_marks_are_bounded_and_survive_a_crash_and_a_log_without_any(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "FILE_BYTES", 2000)
    monkeypatch.setattr(marks, "FILES", 2)
    log = small(tmp_path, clock)
    log.create_topic(ONE)
    put(log, "one", *range(5))
    log.close()
    shutil.rmtree(tmp_path / "log" / "marks")  # as a version without marks leaves it
    log = small(tmp_path, clock)
    for number in range(5, 80):
        clock.advance(1000)
        put(log, "one", number)
        log.mark()
    files = marks.list_files(tmp_path / "log" / "marks", "seconds")
    assert len(files) == 2
    log.close()
    # Killed in the middle of a mark, and the one before was lost.
    found = [mark for mark, _, _ in marks.decode_marks(files[-1].read_bytes(), "")]
    assert found[-1].arrival == 80
    files[-1].write_bytes(files[-1].read_bytes()[: found[-2].length + 20])
    marks.list_files(tmp_path / "log" / "marks", "minutes")[-1].unlink()
    assert verify_log(tmp_path / "log").findings == ()
    log = small(tmp_path, clock)
    clock.advance(1000)
    back_up(tmp_path / "log", tmp_path / "backups", clock)
    clock.advance(1000)
    put(log, "one", 80)
    log.mark()
    clock.advance(1000)
    back_up(tmp_path / "log", tmp_path / "backups", clock)
    log.close()
    store = BackupStore(tmp_path / "backups")
    lost = choose_moment(store, found[-1].last_ms)
    assert (lost.arrival, lost.exact) == (79, False)
    before = choose_moment(store, found[-2].last_ms)
    assert (before.arrival, before.exact) == (79, True)
    log = restored(tmp_path, before, clock)
    assert values(log, "one") == list(range(79))
    log.close()
    # Damage costs moments, and is named.
    file = marks.list_files(tmp_path / "log" / "marks", "seconds")[0]
    file.write_bytes(b"?" + file.read_bytes()[1:])
    assert [finding.kind for finding in verify_log(tmp_path / "log").findings] == ["marks"]


def test_forks_and_split_partitions_are_as_they_were(tmp_path: Path, clock: ManualClock) -> None:
    log = small(tmp_path, clock)
    log.create_topic(ONE)
    log.create_topic(TABLE)
    times = []

    def go_on(first: int) -> None:
        put(log, "one", *range(first, first + 30))
        put(log, "table", *range(first, first + 30))
        log.mark()
        times.append(clock.now_ms())
        clock.advance(1000)

    go_on(0)
    log.fork_topic("table", "fork")
    log.split_partition("one", 0)
    go_on(30)
    go_on(60)
    log.maintain()
    back_up(tmp_path / "log", tmp_path / "backups", clock)
    log.close()
    store = BackupStore(tmp_path / "backups")
    for time_ms, topics, partitions, total in ((times[0], 2, 1, 30), (times[1], 3, 3, 60)):
        log = restored(tmp_path, choose_moment(store, time_ms), clock)
        assert len([topic for topic in log.topics() if not topic.internal]) == topics
        assert log.topic("one").spec.partitions == partitions
        assert sum(ends.end for ends in log.snapshot().ends["one"]) == total
        if topics == 3:
            assert {n % 3: n for n in values(log, "fork")} == {0: 27, 1: 28, 2: 29}
            assert log.topic("fork").forked_from == log.topic("table").id
        put(log, "one", 1000)
        log.close()
        assert verify_log(tmp_path / "log").findings == ()
