"""Compaction: the newest record of each key stays where it was, and who reads or writes notices nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import OffsetOutOfRange, UsageError
from headrace.log.base import Log, TopicConfig, TopicSpec
from headrace.log.local import LocalClient, LocalLog, compaction, maintenance
from headrace.log.local.files import sync_folder
from headrace.log.local.keys import NewestOffsets, key_column
from headrace.log.local.segment import index_path
from headrace.types import BIGINT, DOUBLE, VARCHAR, Array, Column, Decimal
from tests.log.support import DERIVED, PLAIN, VIEWS, batch, manual_clock, open_owner, put, rows, segments

pytestmark = pytest.mark.slow

TABLE = replace(DERIVED, config=TopicConfig(compacted=True, tombstone_ms=60_000))
SMALL: dict[str, Any] = {"segment_bytes": 3_000, "segment_seconds": 10, "frame_rows": 50}


def sealed(log: LocalLog, topic: str = "counts") -> None:
    """Nothing stays in the active segment."""
    log.clock.advance(20_000)  # type: ignore[attr-defined]
    log.maintain()
    log.maintain()


def newest(found: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """The model: of each key the last row, in order."""
    last = {tuple(row[key] for key in keys): row["offset"] for row in found}
    return [row for row in found if last[tuple(row[key] for key in keys)] == row["offset"]]


def fill(log: Log, count: int, keys: int, topic: str = "counts") -> None:
    for n in range(count):
        put(log, topic, K=[f"k{n * 7 % keys}"], N=[n], time_=[10 * n])


def test_the_newest_record_of_each_key_stays_where_it_was(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log", manual_clock(), **SMALL)
    log.create_topic(TABLE)
    fill(log, 200, 9)
    before, ends = rows(log, "counts"), log.snapshot().ends
    sealed(log)
    after = rows(log, "counts")
    assert after == newest(before, "K")
    assert len(after) == 9
    assert log.snapshot().ends == ends
    assert log.stats("counts").records == 9
    for row in before:
        following = next((kept for kept in after if kept["offset"] >= row["offset"]), None)
        arrived = log.offset_at_arrival("counts", 0, row["$arrival"])
        assert row["offset"] <= arrived <= (following["offset"] if following else 200)
        timed = log.offset_at_time("counts", 0, row["$time"])
        assert row["offset"] <= timed <= (following["offset"] if following else 200)
        [*found] = log.read("counts", 0, row["offset"])
        assert [part.first_offset for part in found][:1] == ([following["offset"]] if following else [])
    log.close()
    log = open_owner(tmp_path / "log")
    assert rows(log, "counts") == after
    log.close()


ROW = st.tuples(st.sampled_from("abcdef"), st.integers(0, 3), st.booleans())


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(ROW, min_size=1, max_size=12), min_size=1, max_size=25), st.data())
def test_any_history_compacts_to_its_newest_rows(
    tmp_path_factory: pytest.TempPathFactory, history: list[list[Any]], data: st.DataObject
) -> None:
    """Windowed keys, tombstones, passes in between, a new start: the model is one dictionary."""
    log = open_owner(tmp_path_factory.mktemp("log"), manual_clock(), **SMALL)
    log.create_topic(replace(TABLE, windowed="time"))
    written: list[dict[str, Any]] = []
    for number, part in enumerate(history):
        keys, windows, deleted = zip(*part, strict=True)
        starts = [1000 * window for window in windows]
        columns = {"K": keys, "N": range(len(part)), "tombstone_": deleted}
        columns |= {"window_start_": starts, "window_end_": [start + 1000 for start in starts]}
        put(log, "counts", None, **{name: list(values) for name, values in columns.items()})
        written = written + [row for row in rows(log, "counts") if row["offset"] >= len(written)]
        if data.draw(st.booleans(), label=f"compact after {number}"):
            sealed(log)
    sealed(log)
    kept = newest(written, "K", "$window_start")
    found = rows(log, "counts")
    # A pass waits until it is worth it, so older rows may still be there, but none that is not the history's.
    assert [row for row in found if row in kept] == [row for row in kept if row in found]
    assert [row for row in kept if not row["$tombstone"]] == [
        row for row in newest(found, "K", "$window_start") if not row["$tombstone"]
    ]
    assert all(row in written for row in found)
    log.clock.advance(120_000)  # type: ignore[attr-defined]
    (log.folder / "topics" / "counts" / "0" / compaction.STATE).unlink(missing_ok=True)
    sealed(log)
    assert rows(log, "counts") == [row for row in kept if not row["$tombstone"]]
    log.close()


def test_tombstones_stay_for_their_time_and_nothing_comes_back(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock, **SMALL)
    log.create_topic(TABLE)
    fill(log, 40, 4)
    put(log, "counts", K=["k1"], tombstone_=[True])
    sealed(log)
    kept = [(row["K"], row["$tombstone"]) for row in rows(log, "counts")]
    assert sorted(kept) == [("k0", False), ("k1", True), ("k2", False), ("k3", False)]
    clock.advance(50_000)
    log.maintain()
    assert "k1" in {row["K"] for row in rows(log, "counts")}
    clock.advance(11_000)
    log.maintain()
    assert sorted(row["K"] for row in rows(log, "counts")) == ["k0", "k2", "k3"]
    log.close()
    log = open_owner(tmp_path / "log", clock, **SMALL)
    assert "k1" not in {row["K"] for row in rows(log, "counts")}
    log.close()


def test_old_segments_become_one_and_an_empty_stretch_reads_as_empty(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock, serve=True, **SMALL)
    log.create_topic(replace(TABLE, config=TopicConfig(compacted=True, tombstone_ms=0)))
    client = LocalClient(tmp_path / "log")
    fill(log, 200, 3)
    assert len(segments(log.folder, "counts")) > 10
    put(log, "counts", K=["k0", "k1", "k2"], tombstone_=[True] * 3)
    sealed(log)
    assert rows(log, "counts") == rows(client, "counts") == []
    assert len(segments(log.folder, "counts")) == 2
    put(log, "counts", K=["k9"], N=[9])
    assert [row["offset"] for row in rows(client, "counts")] == [203]
    assert client.offset_at_time("counts", 0, 0) >= 203
    client.close()
    log.close()
    log = open_owner(tmp_path / "log", clock)
    assert [row["offset"] for row in rows(log, "counts")] == [203]
    log.close()


def test_readers_with_open_files_read_on(tmp_path: Path) -> None:
    """A reader in the middle of a segment sees what it would have seen, or the newest of it; never an error."""
    log = open_owner(tmp_path / "log", manual_clock(), serve=True, **SMALL)
    log.create_topic(replace(TABLE, config=TopicConfig(compacted=True, tombstone_ms=0)))
    client = LocalClient(tmp_path / "log")
    fill(log, 300, 5)
    last = newest(rows(log, "counts"), "K")

    def parts(reader: Log) -> Iterator[int]:
        for records in reader.read("counts", 0, 0, 300):
            yield from records.each_offset()

    readers = [parts(log), parts(client)]
    started = [[next(reader) for _ in range(30)] for reader in readers]
    sealed(log)
    for begun, reader in zip(started, readers, strict=True):
        seen = begun + list(reader)
        assert all(one < other for one, other in pairwise(seen))
        assert seen[-5:] == [row["offset"] for row in last]
    client.close()
    log.close()


def test_writers_go_on_and_the_active_segment_is_not_touched(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log", manual_clock(), segment_bytes=3_000, frame_rows=50)
    log.create_topic(TABLE)
    fill(log, 205, 2)
    active = segments(log.folder, "counts")[-1]
    content = active.read_bytes()
    log.maintain()
    assert active.read_bytes() == content
    in_active = [row for row in rows(log, "counts") if row["offset"] >= int(active.name[:20])]
    assert [row["N"] for row in in_active] == list(range(int(active.name[:20]), 205))
    log.close()


def test_more_keys_than_fit_are_compacted_in_several_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "KEY_BYTES", 100)
    log = open_owner(tmp_path / "log", manual_clock(), **SMALL)
    log.create_topic(TABLE)
    fill(log, 200, 90)
    before = rows(log, "counts")
    sealed(log)
    assert {row["offset"] for row in newest(before, "K")} <= {row["offset"] for row in rows(log, "counts")}
    assert len(rows(log, "counts")) < 120
    log.close()


def test_retention_and_compaction_together(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock, **SMALL)
    config = TopicConfig(retention_ms=3_600_000, compacted=True, tombstone_ms=0)
    log.create_topic(replace(TABLE, config=config))
    for hour in range(4):
        fill(log, 60, 6)
        put(log, "counts", K=[f"once {hour}"], N=[hour])
        clock.advance(1_200_000)
        log.maintain()
        log.maintain()
    keys = [row["K"] for row in rows(log, "counts")]
    assert len(keys) == len(set(keys))
    assert {"once 2", "once 3"} <= set(keys)
    assert "once 0" not in keys
    start = log.snapshot().ends["counts"][0].start
    assert start > 0
    with pytest.raises(OffsetOutOfRange):
        list(log.read("counts", 0, start - 1))
    log.close()


def test_a_damaged_segment_is_left_alone_and_keeps_tombstones(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock, **SMALL)
    log.create_topic(replace(TABLE, config=TopicConfig(compacted=True, tombstone_ms=0)))
    fill(log, 100, 2)
    put(log, "counts", K=["k0"], tombstone_=[True])
    first = segments(log.folder, "counts")[0]
    content = bytearray(first.read_bytes())
    content[300] ^= 1
    first.write_bytes(content)
    sealed(log)
    assert first.read_bytes() == bytes(content)
    tail = [row for row in rows_from(log, 30) if row["$tombstone"]]
    assert [row["K"] for row in tail] == ["k0"]
    log.close()


def rows_from(log: Log, start: int) -> list[dict[str, Any]]:
    return [row for records in log.read("counts", 0, start) for row in records.batch.to_pylist()]


@pytest.mark.parametrize("crash", ["before rename", "before index", "between unlinks"])
def test_a_pass_that_was_cut_short_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: str) -> None:
    # On a slow machine the log's own housekeeping would come first.
    monkeypatch.setattr(maintenance, "EVERY_S", 3600.0)
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock, **SMALL)
    log.create_topic(DERIVED)
    fill(log, 200, 3)
    sealed(log)
    log.alter_topic(replace(TABLE, config=TopicConfig(compacted=True, tombstone_ms=0)))
    before = rows(log, "counts")

    class Crash(BaseException):
        pass

    calls = {"count": 0}

    def fail(original: Any, at: int) -> Any:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            calls["count"] += 1
            if calls["count"] == at:
                raise Crash
            return original(*arguments, **named)

        return wrapped

    if crash == "between unlinks":
        monkeypatch.setattr(compaction, "sync_folder", fail(sync_folder, 3))
    else:
        monkeypatch.setattr(os, "rename", fail(os.rename, {"before rename": 1, "before index": 2}[crash]))
    with pytest.raises(Crash):
        log.maintain()
    monkeypatch.undo()
    kept = newest(before, "K")
    assert newest(rows(log, "counts"), "K") == kept
    log.close()
    log = open_owner(tmp_path / "log", clock, **SMALL)
    assert newest(rows(log, "counts"), "K") == kept
    sealed(log)
    assert rows(log, "counts") == kept
    log.close()


def test_records_without_a_key_stay_and_event_ids_are_remembered(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock, **SMALL)
    log.create_topic(replace(VIEWS, partitions=1, config=TopicConfig(compacted=True)))
    for n in range(60):
        put(log, "pageviews", USERID=[None if n % 3 == 0 else "u"], N=[n], id_=[f"id{n}"])
    clock.advance(5_000_000)
    log.maintain()
    log.maintain()
    assert [row["N"] for row in rows(log, "pageviews")] == [*range(0, 59, 3), 59]
    log.close()
    shutil.rmtree(log.folder / "ids")
    log = open_owner(tmp_path / "log", clock)
    assert put(log, "pageviews", USERID=["u"], N=[0], id_=["id59"]).duplicates == (0,)
    log.close()


def test_a_topic_without_a_key_cannot_be_compacted(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    with pytest.raises(UsageError, match="no key"):
        log.create_topic(replace(PLAIN, config=TopicConfig(compacted=True)))
    log.create_topic(DERIVED)
    put(log, "counts", K=["a", "a"], N=[1, 2])
    assert log.alter_topic(TABLE).spec.config.compacted
    log.close()
    log = open_owner(tmp_path / "log")
    assert log.topic("counts").spec == TABLE
    log.close()


def test_a_lost_index_of_a_compacted_segment_only_makes_it_slower(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log", manual_clock(), **SMALL)
    log.create_topic(TABLE)
    fill(log, 200, 9)
    sealed(log)
    before = rows(log, "counts")
    for path in segments(log.folder, "counts")[:-1]:
        index_path(path.parent, int(path.name[:20])).unlink()
    assert rows(log, "counts") == before
    log.close()


KEYS = st.one_of(st.none(), st.text(max_size=3), st.sampled_from(["n", "1:", "1:a", ":", ""]))


@settings(deadline=None)
@given(st.lists(st.tuples(KEYS, KEYS), min_size=1, max_size=40))
def test_joined_keys_are_equal_exactly_if_their_columns_are(pairs: list[tuple[str | None, str | None]]) -> None:
    spec = TopicSpec("t", key=(Column("A", VARCHAR), Column("B", VARCHAR)))
    first, second = (list(side) for side in zip(*pairs, strict=True))
    table = pa.RecordBatch.from_arrays([pa.array(side, pa.utf8()) for side in (first, second)], names=["A", "B"])
    keys = key_column(table, spec).to_pylist()
    for one, key in zip(pairs, keys, strict=True):
        assert (key is None) == (one == (None, None))
        for other, another in zip(pairs, keys, strict=True):
            assert (key == another) == (one == other)


def test_keys_of_every_type_are_compared_by_what_is_stored() -> None:
    from decimal import Decimal as D

    nan = float("nan")
    for type_, values, kept in (
        (BIGINT, [1, 2, 1], [False, True, True]),
        (DOUBLE, [nan, 0.0, -0.0, nan], [False, True, True, True]),
        (Decimal(4, 2), [D("1.00"), D("1.10"), D("1.00")], [False, True, True]),
        (Array(VARCHAR), [["a"], ["a", "b"], ["a"]], [False, True, True]),
    ):
        spec = TopicSpec("t", key=(Column("K", type_),))
        keys, offsets = key_column(batch(K=values), spec), list(range(len(values)))
        newest_offsets = NewestOffsets()
        newest_offsets.add([keys], [offsets])
        assert newest_offsets.is_newest([keys], offsets).tolist() == kept
