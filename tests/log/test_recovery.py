"""Opening after a crash: everything committed is there, nothing else is."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import CorruptFrame, LogError
from headrace.log.base import Append
from headrace.log.local import group, journal, owner, unsynced
from headrace.log.local.frame import decode_header
from headrace.log.local.journal import GROUP, SNAPSHOT, Journal, encode_record, frames_of
from headrace.log.local.segment import SegmentWriter
from headrace.log.local.state import fold
from tests.log.support import PLAIN, VIEWS, batch, numbers, open_owner, put, rows, segments


def write_log(folder: Path, groups: int = 3) -> None:
    log = open_owner(folder)
    log.create_topic(PLAIN)
    for number in range(groups):
        put(log, "plain", N=[number])
    log.close()


class Crash:
    """A log just before its last group was committed, and all that the group wrote: any part of it may have reached the
    disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        log = open_owner(folder)
        log.create_topic(PLAIN)
        for number in range(2):
            put(log, "plain", N=[number])
        self.segment, self.journal = segments(folder)[0], folder / "journal"
        self.before = {path: path.read_bytes() for path in (self.segment, self.journal, folder / "stable")}
        put(log, "plain", N=[2], time_=[5])
        self.after = {path: path.read_bytes() for path in self.before}
        log.close()

    def happen(self, segment_size: int, journal_size: int) -> None:
        # The index may know more than the journal; `stable` never does.
        (self.folder / "stable").write_bytes(self.before[self.folder / "stable"])
        self.segment.write_bytes(self.after[self.segment][:segment_size])
        self.journal.write_bytes(self.after[self.journal][:journal_size])


@pytest.mark.slow
def test_a_group_torn_at_any_byte_of_its_frames_is_as_if_it_never_was(tmp_path: Path) -> None:
    crash = Crash(tmp_path / "log")
    before, after = len(crash.before[crash.segment]), len(crash.after[crash.segment])
    for size in range(before, after + 1, 7):
        crash.happen(size, len(crash.before[crash.journal]))
        log = open_owner(crash.folder)
        assert numbers(log) == [0, 1]
        put(log, "plain", N=[7])
        assert numbers(log) == [0, 1, 7]
        assert log.snapshot().arrival == 3
        log.close()


@pytest.mark.slow
def test_a_group_torn_at_any_byte_of_the_journal_is_as_if_it_never_was(tmp_path: Path) -> None:
    crash = Crash(tmp_path / "log")
    before, after = len(crash.before[crash.journal]), len(crash.after[crash.journal])
    for size in range(before, after + 1):
        crash.happen(len(crash.after[crash.segment]), size)
        log = open_owner(crash.folder)
        assert numbers(log) == ([0, 1, 2] if size == after else [0, 1])
        assert log.snapshot().stream_times["plain"] >= 0
        log.close()


def test_what_the_journal_holds_is_written_again_to_segments_that_lost_it(tmp_path: Path) -> None:
    """Small groups are synced in the journal only; the power may go before their segment is synced."""
    crash = Crash(tmp_path / "log")
    whole = crash.after[crash.segment]
    synced = _first_group_end(whole)  # it began the segment
    for kept in [
        whole[:synced] + bytes(len(whole) - synced),
        *(whole[:size] for size in range(synced, len(whole), 97)),
    ]:
        crash.happen(0, len(crash.after[crash.journal]))
        crash.segment.write_bytes(kept)
        log = open_owner(crash.folder)
        assert numbers(log) == [0, 1, 2]
        assert crash.segment.read_bytes() == whole
        log.close()


def _first_group_end(segment: bytes) -> int:
    header = decode_header(segment, 64)
    assert header is not None
    return 64 + header.size


def test_a_large_group_is_synced_in_its_segments_and_not_written_twice(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    put(log, "plain", N=[0])
    before = (tmp_path / "log" / "journal").stat().st_size
    put(log, "plain", N=list(range(100_000)))
    assert (tmp_path / "log" / "journal").stat().st_size - before < 500
    log.close()


def test_a_closed_log_needs_its_journal_s_frames_no_more(tmp_path: Path) -> None:
    write_log(tmp_path / "log")
    _, records = Journal.open(tmp_path / "log" / "journal")
    assert [kind for kind, _ in records] == [SNAPSHOT]
    assert list(frames_of(records)) == []


def test_segments_are_synced_in_rounds_and_the_journal_keeps_only_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsynced, "ROUND_BYTES", 4000)
    monkeypatch.setattr(journal, "MOST_BYTES", 20_000)
    log = open_owner(tmp_path / "log")
    log.create_topic(replace(PLAIN, partitions=3))
    path, longest = tmp_path / "log" / "journal", 0
    for number in range(150):
        put(log, "plain", N=[number])
        longest = max(longest, path.stat().st_size)
        if number == 100:
            crashed = tmp_path / "crashed"
            shutil.copytree(tmp_path / "log", crashed)
    assert longest < 60_000
    log.close()
    (crashed / "stable").unlink()
    log = open_owner(crashed)
    assert sorted(row["N"] for row in rows(log, "plain")) == list(range(101))
    log.close()


@pytest.mark.parametrize("when", ["in a round", "at the end of a segment"])
def test_a_segment_that_cannot_be_synced_is_written_again_from_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(unsynced, "ROUND_BYTES", 3000 if when == "in a round" else 1 << 30)
    log = open_owner(tmp_path / "log", segment_bytes=1 << 30 if when == "in a round" else 8000)
    log.create_topic(PLAIN)
    put(log, "plain", N=[0])
    failures: list[SegmentWriter] = []
    taken = [0]
    with monkeypatch.context() as patched:

        def fail_once(writer: SegmentWriter) -> None:
            if not failures:
                # What a disk does that fails: the bytes are gone, and no later sync says so.
                os.truncate(segments(tmp_path / "log")[0], 3000)
                failures.append(writer)
                raise OSError(errno.EIO, "Input/output error")
            os.fdatasync(writer._opened())

        patched.setattr(SegmentWriter, "sync", fail_once)
        for number in range(1, 40):
            try:
                put(log, "plain", N=[number])
                taken.append(number)
            except LogError:
                pass
        assert len(failures) == 1
    assert len(taken) >= (40 if when == "in a round" else 39)
    assert numbers(log) == taken
    log.close()


def test_a_log_of_the_first_format_is_opened_and_is_of_the_second_from_then_on(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    write_log(folder)
    opened, records = Journal.open(folder / "journal")
    opened.close()
    state = fold(records).to_payload()
    (folder / "format").write_text("headrace-log 1\n")
    (folder / "journal").write_bytes(
        encode_record(SNAPSHOT, state | {"group": 2}) + encode_record(GROUP, [3, 3, [], [], []])
    )
    log = open_owner(folder)
    assert (numbers(log), (folder / "format").read_text()) == ([0, 1, 2], "headrace-log 2\n")
    put(log, "plain", N=[3])
    shutil.copytree(folder, tmp_path / "crashed")
    log.close()
    (tmp_path / "crashed" / "stable").unlink()
    log = open_owner(tmp_path / "crashed")
    assert numbers(log) == [0, 1, 2, 3]
    log.close()


def test_a_bit_flipped_in_the_last_journal_record_is_not_taken_for_a_torn_tail(tmp_path: Path) -> None:
    """The last group was published, so its record must be there."""
    crash = Crash(tmp_path / "log")
    damaged = bytearray(crash.after[crash.journal])
    damaged[len(crash.before[crash.journal]) + 17] ^= 1
    crash.happen(len(crash.after[crash.segment]), 0)
    crash.journal.write_bytes(damaged)
    stable = crash.folder / "stable"
    stable.write_bytes(crash.after[stable])
    with pytest.raises(LogError, match="group 3 was already committed"):
        open_owner(crash.folder)
    assert crash.journal.read_bytes() == damaged
    stable.unlink()
    log = open_owner(crash.folder)
    assert numbers(log) == [0, 1]
    log.close()


def test_a_missing_journal_is_never_an_empty_log(tmp_path: Path) -> None:
    write_log(tmp_path / "log")
    (tmp_path / "log" / "journal").unlink()
    with pytest.raises(LogError, match="journal is missing") as raised:
        open_owner(tmp_path / "log")
    assert "backup" in str(raised.value)
    assert len(segments(tmp_path / "log")) == 1


def test_another_format_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "log")
    (tmp_path / "log" / "format").write_text("headrace-log 3\n")
    with pytest.raises(LogError, match="not a log of this version"):
        open_owner(tmp_path / "log")


def test_what_the_journal_does_not_know_is_set_aside(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    write_log(folder)
    [segment] = segments(folder)
    shutil.copy(segment, segment.with_name(f"{99:020}.seg"))
    shutil.copytree(folder / "topics" / "plain", folder / "topics" / "stranger")
    log = open_owner(folder)
    assert [topic.name for topic in log.topics()] == ["plain"]
    assert numbers(log) == [0, 1, 2]
    assert sorted(path.name for path in (folder / "quarantine").iterdir()) == [
        f"topics-plain-0-{99:020}.seg",
        "topics-stranger",
    ]
    log.close()


def test_a_deletion_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_owner(folder)
    log.create_topic(PLAIN)
    kept = tmp_path / "kept"
    shutil.copytree(folder / "topics" / "plain", kept)
    log.delete_topic("plain")
    log.close()
    shutil.copytree(kept, folder / "topics" / "plain")
    log = open_owner(folder)
    assert log.topics() == []
    assert not (folder / "topics" / "plain").exists()
    log.close()


def test_a_lost_definition_is_written_again(tmp_path: Path) -> None:
    write_log(tmp_path / "log")
    definition = tmp_path / "log" / "topics" / "plain" / "topic.json"
    content = definition.read_bytes()
    definition.write_bytes(b"{")
    log = open_owner(tmp_path / "log")
    assert definition.read_bytes() == content
    assert numbers(log) == [0, 1, 2]
    log.close()


@pytest.mark.parametrize("harm", ["missing", "empty", "zeros", "torn", "of another generation"])
def test_the_index_can_always_be_made_again(tmp_path: Path, harm: str) -> None:
    folder = tmp_path / "log"
    log = open_owner(folder)
    log.create_topic(VIEWS)
    for first in range(0, 5000, 500):
        columns: dict[str, list[Any]] = {
            "USERID": ["u" * 300] * 500,
            "N": list(range(first, first + 500)),
            "time_": list(range(500)),
        }
        log.append([Append("pageviews", batch(**columns), 0)]).result(30)
    log.close()
    index = next((folder / "topics" / "pageviews" / "0").glob("*.idx"))
    content = index.read_bytes()
    assert len(content) > 32 + 5 * 40
    match harm:
        case "missing":
            index.unlink()
        case "empty":
            index.write_bytes(b"")
        case "zeros":
            index.write_bytes(content[:80] + bytes(len(content) - 80))
        case "torn":
            index.write_bytes(content[:-50])
        case _:
            index.write_bytes(content[:8] + b"\x07" + content[9:])
    log = open_owner(folder)
    for _ in range(2):
        assert [
            n for records in log.read("pageviews", 0, 4321, 4323, ["N"]) for n in records.batch.column(0).to_pylist()
        ] == [4321, 4322]
        # The active segment is looked at when it is written to.
        put(log, "pageviews", 0, USERID=["u"], N=[5000])
    assert index.read_bytes()[: len(content)] == content
    log.close()


@pytest.mark.parametrize("what", ["truncated", "deleted"])
def test_an_active_segment_that_lost_bytes_is_damage_and_writing_goes_on(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "log"
    write_log(folder)
    [segment] = segments(folder)
    if what == "deleted":
        segment.unlink()
    else:
        segment.write_bytes(segment.read_bytes()[:-100])
    log = open_owner(folder)
    put(log, "plain", N=[3])
    with pytest.raises(CorruptFrame) as raised:
        numbers(log)
    lost = (raised.value.data["first_offset"], raised.value.data["next_offset"])
    assert lost == ((2, 3) if what == "truncated" else (0, 3))
    assert log.quarantine("plain", 0, 2) == lost
    assert numbers(log) == [*range(lost[0]), 3]
    log.close()


@pytest.mark.parametrize("partitions", [1, 6])
def test_a_sync_that_fails_in_one_partition_fails_the_group(
    tmp_path: Path, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "JOURNAL_BYTES", 0)
    log = open_owner(tmp_path / "log")
    log.create_topic(replace(PLAIN, partitions=partitions))
    put(log, "plain", N=list(range(12)))
    before, sync = rows(log, "plain"), SegmentWriter.sync

    def fail_in_the_last(writer: SegmentWriter) -> None:
        if writer.folder.name == str(partitions - 1):
            raise OSError(errno.EIO, "Input/output error")
        sync(writer)

    with monkeypatch.context() as patched:
        patched.setattr(SegmentWriter, "sync", fail_in_the_last)
        with pytest.raises(LogError, match="nothing of it was stored"):
            put(log, "plain", N=list(range(12, 24)))
    assert rows(log, "plain") == before
    put(log, "plain", N=list(range(24, 36)))
    assert sorted(row["N"] for row in rows(log, "plain")) == [*range(12), *range(24, 36)]
    assert log.snapshot().arrival == 24
    log.close()


def test_a_log_that_cannot_be_opened_again_says_so_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "_RETRY_S", 0.0)
    monkeypatch.setattr(group, "JOURNAL_BYTES", 0)
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    journal, aside = tmp_path / "log" / "journal", tmp_path / "journal"

    def lose_the_journal(_: SegmentWriter) -> None:
        journal.rename(aside)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(SegmentWriter, "sync", lose_the_journal)
        with pytest.raises(LogError):
            put(log, "plain", N=[2])
    with pytest.raises(LogError, match="journal is missing"):
        put(log, "plain", N=[3])
    assert numbers(log) == [1]
    aside.rename(journal)
    put(log, "plain", N=[4])
    assert numbers(log) == [1, 4]
    log.close()


def test_everything_is_there_after_opening_again(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log", segment_bytes=2000)
    for spec in (PLAIN, VIEWS):
        log.create_topic(spec)
    for number in range(50):
        put(log, "pageviews", USERID=[f"u{number}"], N=[number])
    before, snapshot = rows(log, "pageviews"), log.snapshot()
    log.close()
    assert len(segments(tmp_path / "log", "pageviews")) > 2
    log = open_owner(tmp_path / "log")
    assert rows(log, "pageviews") == before
    assert log.snapshot() == snapshot
    log.close()
