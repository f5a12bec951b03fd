"""Backups of a log that is written to, and what a restore makes of them."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.clock import ManualClock
from headrace.config import ArchiveSettings, LogSettings
from headrace.errors import Conflict, LogError, NotFound, PositionOfAnotherLog, UsageError
from headrace.log.base import Append, TopicConfig, TopicSpec
from headrace.log.local.backup import back_up
from headrace.log.local.backup_store import BackupStore
from headrace.log.local.client import LocalClient
from headrace.log.local.log import LocalLog
from headrace.log.local.moments import Target, choose_point
from headrace.log.local.restore import restore_log
from headrace.log.local.verify import verify_log
from headrace.types import BIGINT, VARCHAR, Column
from tests.support import wait_for

SETTINGS = LogSettings(segment_bytes=4096, archive=ArchiveSettings(folder="archive", after_hours=1e6))
SPEC = TopicSpec("numbers", value=(Column("N", BIGINT),))
KEYED = TopicSpec(
    "keyed", key=(Column("K", VARCHAR),), value=(Column("N", BIGINT),), config=TopicConfig(compacted=True)
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000_000)


def opened(folder: Path, clock: ManualClock) -> LocalLog:
    return LocalLog(folder / "log", SETTINGS, clock, serve=False)


def write(log: LocalLog, *numbers: int) -> None:
    """In frames of ten."""
    for first in range(0, len(numbers), 10):
        some = numbers[first : first + 10]
        rows = pa.RecordBatch.from_pydict({"N": some, "$id": [f"id {number}" for number in some]})
        log.append([Append("numbers", rows)]).result()


def numbers(log: LocalLog) -> list[int]:
    return [n for records in log.read("numbers", 0, 0) for n in records.batch.column("N").to_pylist()]


def restored(folder: Path, backups: Path, clock: ManualClock, to_ms: int | None = None) -> LocalLog:
    store = BackupStore(backups)
    restore_log(folder / "log", store, Target(choose_point(store, to_ms)), clock)
    return opened(folder, clock)


def test_a_log_comes_back_as_it_was_at_each_backup(tmp_path: Path, clock: ManualClock) -> None:
    log = opened(tmp_path, clock)
    log.create_topic(SPEC)
    moments = []
    for first in (0, 100, 200):
        write(log, *range(first, first + 100))
        moments.append(clock.now_ms())
        made = back_up(tmp_path / "log", tmp_path / "backups", clock)
        assert made.point.arrival == log.snapshot().arrival
        clock.advance(60_000)
    write(log, *range(300, 350))
    log.close()
    for count, moment in ((2, moments[1]), (1, moments[0] + 1000), (3, None)):
        log = restored(tmp_path, tmp_path / "backups", clock, moment)
        assert numbers(log) == list(range(100 * count))
        # Known ids are those of the records that are there.
        assert log.places("numbers", ["id 99", "id 340"]) == [(0, 99), None]
        write(log, -1)
        assert numbers(log) == [*range(100 * count), -1]
        log.close()
        assert verify_log(tmp_path / "log").findings == ()
    assert len(list(tmp_path.glob("log.before-restore-*"))) == 3


def test_a_backup_copies_only_what_is_new(tmp_path: Path, clock: ManualClock) -> None:
    log = opened(tmp_path, clock)
    log.create_topic(SPEC)
    write(log, *range(200))
    first = back_up(tmp_path / "log", tmp_path / "backups", clock)
    clock.advance(1)
    write(log, 200)
    second = back_up(tmp_path / "log", tmp_path / "backups", clock)
    sealed = sum(one.bytes for one in first.point.files if one.sealed)
    assert sealed > 2 * SETTINGS.segment_bytes
    assert second.copied <= first.copied - sealed + SETTINGS.segment_bytes
    clock.advance(1)
    assert back_up(tmp_path / "log", tmp_path / "backups", clock, keep=1).pruned == 2
    log.close()
    log = restored(tmp_path, tmp_path / "backups", clock)
    assert numbers(log) == list(range(201))
    log.close()


def test_a_log_that_is_written_compacted_and_archived_meanwhile_is_backed_up_at_one_moment(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = opened(tmp_path, clock)
    log.create_topic(SPEC)
    log.create_topic(KEYED)
    over = threading.Event()
    written = 0

    def go_on() -> None:
        nonlocal written
        while not over.is_set():
            rows = pa.RecordBatch.from_pydict({"K": [f"k{written % 3}"], "N": [written]})
            number = pa.RecordBatch.from_pydict({"N": [written]})
            log.append([Append("numbers", number), Append("keyed", rows)]).result()
            written += 1
            if written % 10 == 0:
                log.maintain()
            if written % 30 == 0:
                log.archive_now(seal=True)

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        points = []
        for _ in range(3):
            clock.advance(1)
            enough = written + 25
            wait_for(lambda enough=enough: written >= enough, 60, "more records")  # type: ignore[misc]
            points.append(back_up(tmp_path / "log", tmp_path / "backups", clock).point)
    finally:
        over.set()
        writer.join()
    log.close()
    for number, point in enumerate(points):
        place = tmp_path / f"restored {number}"
        log = restored(place, tmp_path / "backups", clock, point.time_ms)
        found = numbers(log)
        assert found == list(range(len(found)))
        newest: dict[str, int] = {}
        for records in log.read("keyed", 0, 0):
            newest |= zip(*(records.batch.column(name).to_pylist() for name in ("K", "N")), strict=True)
        # Both topics are of one moment, though of one of them most records were compacted away.
        assert newest == {f"k{n % 3}": n for n in found[-3:]}
        log.close()
        assert verify_log(place / "log").findings == ()


def test_positions_of_the_log_of_before_are_not_of_the_restored_one(tmp_path: Path, clock: ManualClock) -> None:
    log = opened(tmp_path, clock)
    log.create_topic(SPEC)
    write(log, *range(10))
    back_up(tmp_path / "log", tmp_path / "backups", clock)
    write(log, *range(10, 20))
    epoch, ahead = log.epochs().current.id, log.snapshot().arrival
    log.close()
    log = restored(tmp_path, tmp_path / "backups", clock)
    write(log, *range(100, 200))
    assert log.epochs().include(epoch, ahead - 10)
    assert not log.epochs().include(epoch, ahead)
    log.close()


def test_a_program_that_has_read_further_is_told_so(tmp_path: Path, clock: ManualClock) -> None:
    log = LocalLog(tmp_path / "log", SETTINGS, clock)
    log.create_topic(SPEC)
    write(log, *range(10))
    back_up(tmp_path / "log", tmp_path / "backups", clock)
    client, behind = LocalClient(tmp_path / "log"), LocalClient(tmp_path / "log")
    behind.snapshot()
    write(log, *range(10, 20))
    assert client.snapshot().arrival == 20
    log.close()
    store = BackupStore(tmp_path / "backups")
    restore_log(tmp_path / "log", store, Target(choose_point(store, None)), clock)
    log = LocalLog(tmp_path / "log", SETTINGS, clock)
    write(log, *range(100, 200))
    with pytest.raises(PositionOfAnotherLog, match="was restored while it was being read"):
        client.snapshot()
    client.close()
    behind.close()
    log.close()


def test_what_cannot_be_restored_is_refused_and_changes_nothing(tmp_path: Path, clock: ManualClock) -> None:
    log = opened(tmp_path, clock)
    log.create_topic(SPEC)
    write(log, *range(100))
    backups = tmp_path / "backups"
    point = back_up(tmp_path / "log", backups, clock).point
    store = BackupStore(backups)
    with pytest.raises(Conflict, match="in use by pid"):
        restore_log(tmp_path / "log", store, Target(point), clock)
    log.close()
    with pytest.raises(NotFound, match="no backup is as old as that"):
        choose_point(store, point.time_ms - 1)
    segment = max(point.files, key=lambda one: one.bytes)
    content = store.path(segment.sha256).read_bytes()
    store.path(segment.sha256).write_bytes(content[:-1] + b"?")
    with pytest.raises(LogError, match="is damaged"):
        restore_log(tmp_path / "log", store, Target(point), clock)
    store.path(segment.sha256).unlink()
    with pytest.raises(LogError, match="the backup lacks"):
        restore_log(tmp_path / "log", store, Target(point), clock)
    log = opened(tmp_path, clock)
    assert numbers(log) == list(range(100))
    log.close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(UsageError, match="is not empty, and holds no backups"):
        back_up(tmp_path / "log", tmp_path / "other", clock)
    with pytest.raises(Conflict, match="is in the log's own folder"):
        back_up(tmp_path / "log", tmp_path / "log" / "backups", clock)


def test_nobody_begins_an_empty_log_in_the_middle_of_a_restore(tmp_path: Path, clock: ManualClock) -> None:
    log = opened(tmp_path, clock)
    log.create_topic(SPEC)
    write(log, 1, 2)
    back_up(tmp_path / "log", tmp_path / "backups", clock)
    log.close()
    # Killed after the log of before was set aside.
    (tmp_path / "log").rename(tmp_path / "log.before-restore-1")
    (tmp_path / "log.restore.json").write_text("{}")
    with pytest.raises(LogError, match="was being restored, and that was cut short"):
        opened(tmp_path, clock)
    log = restored(tmp_path, tmp_path / "backups", clock)
    assert numbers(log) == [1, 2]
    log.close()
