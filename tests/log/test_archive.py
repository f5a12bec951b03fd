"""The archive: old segments are Parquet files, and whoever reads the log does not notice."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.config import ArchiveSettings
from headrace.errors import CorruptFrame, LogError, OffsetOutOfRange, UsageError
from headrace.log.base import Append, Log, TopicConfig
from headrace.log.local import LocalClient, LocalLog, archiving
from headrace.log.local.archive import read_manifest
from headrace.log.local.statistics import log_statistics
from headrace.log.local.verify import verify_log
from headrace.types import VARCHAR, Column
from tests.log.support import DERIVED, PLAIN, VIEWS, manual_clock, numbers, open_owner, put, rows, segments
from tests.log.test_roundtrip import ROW, SPEC, as_batch

HOUR = 3_600_000


def archiving_log(folder: Path, clock: Any = None, **archive: Any) -> LocalLog:
    """Segments of some ten frames; archived when two hours old."""
    wanted: dict[str, Any] = {"folder": "archive", "after_hours": 2.0} | archive
    return open_owner(
        folder / "log",
        clock or manual_clock(),
        serve=True,
        segment_bytes=6_000,
        segment_seconds=600,
        archive=ArchiveSettings(**wanted),
    )


def fill(log: Log, count: int, first: int = 0, topic: str = "plain") -> None:
    for n in range(first, first + count):
        put(log, topic, N=[2 * n, 2 * n + 1], time_=[10 * n + 5, 10 * n])


def parquet(folder: Path) -> list[Path]:
    return sorted((folder / "archive").rglob("*.parquet"))


def test_old_segments_move_and_everything_reads_the_same(tmp_path: Path) -> None:
    clock = manual_clock()
    log = archiving_log(tmp_path, clock)
    log.create_topic(PLAIN)
    client = LocalClient(log.folder)
    fill(log, 60)
    before, ends = rows(log, "plain"), log.snapshot().ends
    times = [log.offset_at_time("plain", 0, time_ms) for time_ms in range(0, 650, 7)]
    arrivals = [log.offset_at_arrival("plain", 0, number) for number in range(121)]
    for _ in range(2):
        clock.advance(2 * HOUR)
        log.maintain()
    assert len(parquet(tmp_path)) > 3
    assert len(segments(log.folder)) == 1
    fill(log, 10, 60)
    for reader in (log, client):
        assert rows(reader, "plain")[:120] == before
        assert reader.snapshot().ends["plain"][0].start == ends["plain"][0].start == 0
        assert numbers(reader) == list(range(140))
        assert numbers(reader, start=33, end=77) == list(range(33, 77))
        assert [reader.offset_at_time("plain", 0, time_ms) for time_ms in range(0, 600, 7)] == times[
            : len(range(0, 600, 7))
        ]
        assert [reader.offset_at_arrival("plain", 0, number) for number in range(121)] == arrivals
    stats = log.stats("plain")
    assert (stats.records, stats.extra["archived_files"]) == (140, len(parquet(tmp_path)))
    client.close()
    log.close()
    log = archiving_log(tmp_path, clock)
    assert numbers(log) == list(range(140))
    assert verify_log(log.folder).findings == ()
    [part] = log_statistics(log.folder)
    assert (part.archived_to, part.records) == (120, 140)
    log.close()


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(ROW, min_size=1, max_size=6), min_size=1, max_size=6))
def test_every_type_survives(tmp_path_factory: pytest.TempPathFactory, written: list[Any]) -> None:
    log = archiving_log(tmp_path_factory.mktemp("archive"))
    log.create_topic(SPEC)
    for part in written:
        log.append([Append(SPEC.name, as_batch(part))]).result(30)
    before = rows(log, SPEC.name)
    log.archive_now(seal=True)
    assert all(len(segments(log.folder, SPEC.name, number)) <= 1 for number in range(3))
    assert rows(log, SPEC.name) == before
    log.close()


def test_other_tools_query_the_files(tmp_path: Path) -> None:
    log = archiving_log(tmp_path)
    log.create_topic(VIEWS)
    for n in range(50):
        put(log, "pageviews", USERID=[f"u{n % 3}"], PAGEID=["/"], N=[n], headers_=[{"trace": b"x"}], id_=[str(n)])
    log.archive_now(seal=True)
    log.close()
    query = """
        SELECT topic, CAST(day AS VARCHAR), USERID, count(*), sum(N), min("$offset"), max("$arrival")
        FROM read_parquet(?, hive_partitioning = true) GROUP BY ALL ORDER BY USERID
    """
    found = duckdb.execute(query, [str(tmp_path / "archive" / "**" / "*.parquet")]).fetchall()
    assert [(row[:2], row[3:5]) for row in found] == [
        (("pageviews", "2023-11-14"), (17, sum(range(0, 50, 3)))),
        (("pageviews", "2023-11-14"), (17, sum(range(1, 50, 3)))),
        (("pageviews", "2023-11-14"), (16, sum(range(2, 50, 3)))),
    ]
    [(headers,)] = duckdb.execute(
        """SELECT "$headers" FROM read_parquet(?) LIMIT 1""", [str(tmp_path / "archive" / "**" / "*.parquet")]
    ).fetchall()
    assert headers == {"trace": b"x"}


def test_a_column_added_later_is_null_before(tmp_path: Path) -> None:
    log = archiving_log(tmp_path)
    log.create_topic(PLAIN)
    fill(log, 3)
    log.archive_now(seal=True)
    log.alter_topic(replace(PLAIN, value=(*PLAIN.value, Column("S", VARCHAR))))
    put(log, "plain", N=[6], S=["s"])
    log.archive_now(seal=True)
    assert [(row["N"], row["S"]) for row in rows(log, "plain")][-2:] == [(5, None), (6, "s")]
    assert [row["$offset"] for row in rows(log, "plain", ["$offset"])] == list(range(7))
    log.close()


def test_only_events_are_archived(tmp_path: Path) -> None:
    log = archiving_log(tmp_path)
    log.create_topic(DERIVED)
    log.create_topic(replace(PLAIN, name="_own"))
    log.create_topic(replace(VIEWS, config=TopicConfig(compacted=True)))
    put(log, "counts", K=["a"], N=[1])
    put(log, "_own", N=[1])
    put(log, "pageviews", USERID=["a"], N=[1])
    assert log.archive_now(seal=True) == 0
    log.close()
    log = open_owner(tmp_path / "log")
    with pytest.raises(UsageError, match="no archive"):
        log.archive_now()
    log.close()


def test_the_logs_retention_sends_to_the_archive_and_the_archives_own_deletes(tmp_path: Path) -> None:
    clock = manual_clock()
    log = archiving_log(tmp_path, clock, after_hours=1000.0, retention_hours=10.0)
    log.create_topic(replace(PLAIN, config=TopicConfig(retention_ms=HOUR)))
    fill(log, 30)
    for _ in range(2):
        clock.advance(2 * HOUR)
        log.maintain()
    assert len(segments(log.folder)) == 1
    assert log.snapshot().ends["plain"][0].start == 0
    assert numbers(log) == list(range(60))
    clock.advance(10 * HOUR)
    log.maintain()
    assert log.snapshot().ends["plain"][0].start == 60
    assert parquet(tmp_path) == []
    with pytest.raises(OffsetOutOfRange):
        numbers(log)
    log.close()


def test_local_copies_may_be_kept_for_a_while(tmp_path: Path) -> None:
    clock = manual_clock()
    log = archiving_log(tmp_path, clock, keep_local_hours=5.0)
    log.create_topic(PLAIN)
    fill(log, 30)
    local = len(segments(log.folder))
    clock.advance(HOUR)
    log.maintain()
    clock.advance(2 * HOUR)
    log.maintain()
    assert len(parquet(tmp_path)) == local == len(segments(log.folder)) - 1
    assert numbers(log) == list(range(60))
    clock.advance(5 * HOUR)
    log.maintain()
    assert len(segments(log.folder)) == 1
    assert numbers(log) == list(range(60))
    log.close()


def test_by_size_the_oldest_go_first(tmp_path: Path) -> None:
    log = archiving_log(tmp_path, after_hours=1000.0, after_bytes=15_000)
    log.create_topic(PLAIN)
    fill(log, 80)
    log.maintain()
    assert sum(path.stat().st_size for path in segments(log.folder)[:-1]) <= 15_000
    assert len(parquet(tmp_path)) > 0
    assert numbers(log) == list(range(160))
    log.close()


def test_a_deleted_topic_is_deleted_from_the_archive_too(tmp_path: Path) -> None:
    log = archiving_log(tmp_path)
    for name in ("plain", "other"):
        log.create_topic(replace(PLAIN, name=name))
        fill(log, 5, topic=name)
    log.archive_now(seal=True)
    log.delete_topic("plain")
    assert [path.parent.parent.name for path in parquet(tmp_path)] == ["topic=other"]
    log.create_topic(PLAIN)
    fill(log, 1)
    assert numbers(log) == [0, 1]
    log.close()


def test_readers_go_on_while_their_segments_move(tmp_path: Path) -> None:
    log = archiving_log(tmp_path)
    log.create_topic(PLAIN)
    fill(log, 60)
    client = LocalClient(log.folder)

    def parts(reader: Log) -> Iterator[int]:
        for records in reader.read("plain", 0, 0, 120, ["N"]):
            yield from records.batch.column(0).to_pylist()

    readers = [parts(log), parts(client)]
    started = [[next(reader) for _ in range(15)] for reader in readers]
    log.archive_now(seal=True)
    for begun, reader in zip(started, readers, strict=True):
        assert begun + list(reader) == list(range(120))
    client.close()
    log.close()


def test_damage_in_the_archive_is_named_and_set_aside(tmp_path: Path) -> None:
    log = archiving_log(tmp_path)
    log.create_topic(PLAIN)
    fill(log, 60)
    log.archive_now(seal=True)
    victim = parquet(tmp_path)[1]
    content = bytearray(victim.read_bytes())
    content[100:400] = bytes(300)
    victim.write_bytes(content)
    log.close()
    log = archiving_log(tmp_path)
    file = read_manifest(log.folder / "topics" / "plain" / "0").files[1]
    with pytest.raises(CorruptFrame) as raised:
        rows(log, "plain")
    assert Path(raised.value.data["file"]).resolve() == victim
    [finding] = verify_log(log.folder).findings
    assert (finding.first_offset, finding.next_offset) == (file.base, file.next)
    assert log.quarantine("plain", 0, file.base + 1) == (file.base, file.next)
    assert numbers(log) == [*range(file.base), *range(file.next, 120)]
    assert victim.exists()
    assert verify_log(log.folder).findings == ()
    log.close()


def test_a_damaged_segment_is_not_archived_nor_those_after_it(tmp_path: Path) -> None:
    log = archiving_log(tmp_path)
    log.create_topic(PLAIN)
    fill(log, 60)
    paths = segments(log.folder)
    content = bytearray(paths[1].read_bytes())
    content[400] ^= 1
    paths[1].write_bytes(content)
    assert log.archive_now() == 1
    assert segments(log.folder) == paths[1:]
    with pytest.raises(CorruptFrame) as raised:
        numbers(log)
    first, after = log.quarantine("plain", 0, raised.value.data["first_offset"])
    assert log.archive_now() == len(paths) - 2
    assert numbers(log) == [*range(first), *range(after, 120)]
    log.close()


@pytest.mark.parametrize("moment", ["compared", "renamed", "manifest", "unlinked"])
def test_a_crash_at_any_moment_leaves_every_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    log = archiving_log(tmp_path)
    log.create_topic(PLAIN)
    fill(log, 60)

    class Crash(BaseException):
        pass

    def crash(*arguments: Any) -> None:
        raise Crash

    if moment == "compared":
        monkeypatch.setattr(archiving, "_compare", crash)
    elif moment == "renamed":
        monkeypatch.setattr(archiving, "write_manifest", crash)
    elif moment == "manifest":
        monkeypatch.setattr("headrace.log.local.archiver.Archiver._drop", crash)
    else:
        monkeypatch.setattr("headrace.log.local.archiver.sync_folder", crash)
    with pytest.raises(Crash):
        log.archive_now()
    monkeypatch.undo()
    assert numbers(log) == list(range(120))
    log.close()
    log = archiving_log(tmp_path)
    assert numbers(log) == list(range(120))
    log.archive_now(seal=True)
    assert numbers(log) == list(range(120))
    assert verify_log(log.folder).findings == ()
    assert not list((tmp_path / "archive").rglob("*.tmp"))
    assert duckdb.execute(
        """SELECT count(*), count(DISTINCT "$offset") FROM read_parquet(?)""",
        [str(tmp_path / "archive" / "**" / "*.parquet")],
    ).fetchall() == [(120, 120)]
    log.close()


def test_what_does_not_read_back_the_same_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = archiving_log(tmp_path)
    log.create_topic(PLAIN)
    fill(log, 20)
    monkeypatch.setattr(archiving, "_same", lambda one, other: False)
    with pytest.raises(LogError, match="does not hold what was written"):
        log.archive_now()
    assert parquet(tmp_path) == []
    assert numbers(log) == list(range(40))
    log.close()


def test_the_index_of_ids_is_made_again_from_the_archive(tmp_path: Path) -> None:
    log = archiving_log(tmp_path)
    log.create_topic(VIEWS)
    for n in range(20):
        put(log, "pageviews", USERID=["a"], N=[n], id_=[f"id{n}"])
    log.archive_now(seal=True)
    log.close()
    shutil.rmtree(log.folder / "ids")
    log = archiving_log(tmp_path)
    assert put(log, "pageviews", USERID=["a"], N=[0], id_=["id3"]).duplicates == (0,)
    log.close()
