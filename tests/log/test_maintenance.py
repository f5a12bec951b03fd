"""Sealing, rewriting and retention: offsets and content stay, readers and writers go on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.errors import OffsetOutOfRange
from headrace.log.base import TopicConfig, TopicSpec
from headrace.log.local import LocalClient, LocalLog
from headrace.log.local.segment import MappedSegment, list_segments
from headrace.types import VARCHAR, Column
from tests.log.support import DERIVED, PLAIN, VIEWS, manual_clock, numbers, open_owner, put, rows, segments


def frames(folder: Path, topic: str = "plain") -> list[int]:
    """Frames per segment but the last."""
    home = folder / "topics" / topic / "0"
    bases = list_segments(home)
    return [len(list(MappedSegment(home, base).frames(base, after))) for base, after in pairwise(bases)]


def one_by_one(log: LocalLog, count: int, first: int = 0, topic: str = "plain") -> None:
    for n in range(first, first + count):
        put(log, topic, N=[n], time_=[n])


def test_small_frames_become_large_ones_with_the_same_content(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log", segment_bytes=40_000, frame_rows=50)
    log.create_topic(replace(VIEWS, partitions=1))
    for number in range(200):
        put(log, "pageviews", USERID=[f"u{number}"], N=[number], time_=[1000 - number], id_=[f"{number}"])
    before, sizes = rows(log, "pageviews"), frames(tmp_path / "log", "pageviews")
    modified = [path.stat().st_mtime_ns for path in segments(tmp_path / "log", "pageviews")]
    log.maintain()
    after = frames(tmp_path / "log", "pageviews")
    assert len(sizes) >= 2
    assert sum(after) < sum(sizes) / 10
    assert rows(log, "pageviews") == before
    assert [path.stat().st_mtime_ns for path in segments(tmp_path / "log", "pageviews")] == modified
    for n in (0, 57, 199):
        assert log.offset_at_arrival("pageviews", 0, n) == n
    assert [log.offset_at_time("pageviews", 0, time_ms) for time_ms in (0, 1000, 1001)] == [0, 0, 200]
    log.close()
    log = open_owner(tmp_path / "log")
    assert rows(log, "pageviews") == before
    log.close()


def test_rewriting_keeps_schema_versions_apart(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log", segment_bytes=20_000)
    log.create_topic(PLAIN)
    one_by_one(log, 10)
    log.alter_topic(replace(PLAIN, value=(*PLAIN.value, Column("S", VARCHAR))))
    one_by_one(log, 80, 10)
    put(log, "plain", N=[90], S=["s"])
    before = rows(log, "plain")
    log.maintain()
    assert rows(log, "plain") == before
    assert frames(tmp_path / "log")[0] == 2
    log.close()


def test_readers_read_on_while_segments_are_rewritten_and_deleted(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock, segment_bytes=15_000, serve=True, segment_seconds=10)
    log.create_topic(replace(PLAIN, config=TopicConfig(retention_ms=3_600_000)))
    one_by_one(log, 300)
    client = LocalClient(tmp_path / "log")

    def parts(reader: LocalLog | LocalClient) -> Iterator[int]:
        for records in reader.read("plain", 0, 0, 300, ["N"]):
            yield from records.batch.column(0).to_pylist()

    readers = [parts(log), parts(client)]
    started = [[next(reader) for _ in range(20)] for reader in readers]
    log.maintain()
    assert [begun + [next(reader) for _ in range(100)] for begun, reader in zip(started, readers, strict=True)] == [
        list(range(120))
    ] * 2
    for _ in range(2):
        clock.advance(7_200_000)
        log.maintain()
    start = log.snapshot().ends["plain"][0].start
    assert start == client.snapshot().ends["plain"][0].start == 300
    for reader in readers:
        with pytest.raises(OffsetOutOfRange):
            list(reader)
    client.close()
    log.close()


def test_a_reader_follows_a_log_that_is_written_rewritten_and_retained(tmp_path: Path) -> None:
    """Everything at once: the reader sees each record once, in order, to the end."""
    log = open_owner(tmp_path / "log", segment_bytes=6_000, serve=True)
    log.create_topic(PLAIN)
    client = LocalClient(tmp_path / "log")

    def write() -> None:
        one_by_one(log, 1200)

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[int] = []
    arrival = 0
    while len(seen) < 1200:
        snapshot = client.wait(arrival, 30)
        arrival = snapshot.arrival
        seen += numbers(client, start=len(seen), end=snapshot.ends["plain"][0].end)
        log.maintain()
        assert len(seen) == snapshot.ends["plain"][0].end
    writer.join()
    assert seen == list(range(1200))
    assert numbers(log) == seen
    assert max(frames(tmp_path / "log")) == 1
    client.close()
    log.close()


def test_old_segments_are_sealed_though_nobody_writes(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock, segment_seconds=60)
    log.create_topic(PLAIN)
    one_by_one(log, 3)
    log.maintain()
    assert len(segments(tmp_path / "log")) == 1
    clock.advance(60_000)
    log.maintain()
    log.maintain()
    assert len(segments(tmp_path / "log")) == 2
    log.close()
    log = open_owner(tmp_path / "log", clock)
    one_by_one(log, 3, 3)
    assert numbers(log) == list(range(6))
    log.close()


def test_retention_by_time_goes_by_when_records_came(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock, segment_seconds=10, retention_hours=1.0)
    for spec in (PLAIN, replace(PLAIN, name="_own"), DERIVED):
        log.create_topic(spec)
    for minutes in range(5):
        for topic in ("plain", "_own", "counts"):
            put(log, topic, N=[minutes])
        log.maintain()
        clock.advance(20 * 60_000)
    log.maintain()
    ends = log.snapshot().ends
    # Headrace's own topics and tables are kept: nobody asked for less.
    assert {topic: ends[topic][0].start for topic in ends} == {"plain": 2, "_own": 0, "counts": 0}
    assert numbers(log, start=2) == [2, 3, 4]
    log.close()
    log = open_owner(tmp_path / "log", clock)
    assert log.snapshot().ends == ends
    log.close()


def test_retention_by_size_keeps_the_newest(tmp_path: Path) -> None:
    spec = TopicSpec("plain", value=PLAIN.value, config=TopicConfig(retention_bytes=12_000))
    log = open_owner(tmp_path / "log", segment_bytes=4_000)
    log.create_topic(spec)
    for n in range(200):
        put(log, "plain", N=[n])
    log.maintain()
    start = log.snapshot().ends["plain"][0].start
    size = sum(path.stat().st_size for path in segments(tmp_path / "log"))
    assert 0 < start < 200
    assert size <= 12_000
    assert numbers(log, start=start) == list(range(start, 200))
    with pytest.raises(OffsetOutOfRange):
        numbers(log)
    log.close()


def test_a_deletion_by_retention_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    spec = TopicSpec("plain", value=PLAIN.value, config=TopicConfig(retention_bytes=1))
    log = open_owner(tmp_path / "log", segment_bytes=2_000)
    log.create_topic(spec)
    for n in range(40):
        put(log, "plain", N=[n])
    kept = {path: path.read_bytes() for path in segments(tmp_path / "log")}
    log.maintain()
    start = log.snapshot().ends["plain"][0].start
    log.close()
    for path, content in kept.items():
        if not path.exists():
            path.write_bytes(content)
    (tmp_path / "log" / "topics" / "plain" / "0" / f"{start:020}.seg.tmp").write_bytes(b"half")
    log = open_owner(tmp_path / "log")
    assert numbers(log, start=start) == list(range(start, 40))
    assert sorted(os.listdir(tmp_path / "log" / "topics" / "plain" / "0"))[0] == f"{start:020}.idx"
    assert len(segments(tmp_path / "log")) == 1
    log.close()


def test_deleting_records_frees_whole_segments_below_the_new_start(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_owner(folder, segment_bytes=2_000)
    log.create_topic(PLAIN)
    for n in range(40):
        put(log, "plain", N=[n])
    bases = [int(path.stem) for path in segments(folder)]
    middle = bases[3] + 1
    assert log.delete_records("plain", 0, middle) == middle
    assert [int(path.stem) for path in segments(folder)] == bases[3:]
    assert numbers(log, start=middle) == list(range(middle, 40))
    log.close()
    log = open_owner(folder, segment_bytes=2_000)
    assert numbers(log, start=middle) == list(range(middle, 40))
    # Everything: the active segment stays, and nothing of it is readable.
    assert log.delete_records("plain", 0, 40) == 40
    assert (len(segments(folder)), numbers(log, start=40)) == (1, [])
    put(log, "plain", N=[40])
    log.close()
    log = open_owner(folder)
    assert numbers(log, start=40) == [40]
    log.close()
