"""Event ids are used once: across restarts, crashes and lost indexes, in bounded memory."""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import LogError
from headrace.log.base import TopicConfig
from headrace.log.local import id_runs, ids
from headrace.log.local.ids import MANIFEST, IdIndex
from headrace.log.local.journal import Journal
from tests.log.support import PLAIN, manual_clock, numbers, open_owner, put


def test_ids_are_known_after_opening_again(tmp_path: Path) -> None:
    for number in range(3):
        log = open_owner(tmp_path / "log")
        log.create_topic(replace(PLAIN, partitions=2))
        appended = put(log, "plain", N=[number, number], id_=["same", f"own {number}"])
        assert appended.duplicates == ((0,) if number else ())
        log.close()


@pytest.mark.parametrize(
    "harm", ["none", "lost", "older", "rubbish", "half", "flipped", "counted", "plain", "of before"]
)
def test_the_index_is_caught_up_from_the_log(tmp_path: Path, harm: str) -> None:
    """As after a crash: the index misses what was committed last, or is gone, or is damaged."""
    folder = tmp_path / "log"
    log = open_owner(folder)
    topic = log.create_topic(replace(PLAIN, partitions=2))
    index = folder / "ids" / str(topic.id)
    put(log, "plain", N=list(range(100)), id_=[f"id {n}" for n in range(100)])
    log.close()
    shutil.copytree(index, tmp_path / "older")
    log = open_owner(folder)
    put(log, "plain", N=list(range(100, 200)), id_=[f"id {n}" for n in range(100, 200)])
    log.close()
    match harm:
        case "lost":
            shutil.rmtree(index)
        case "older":
            shutil.rmtree(index)
            shutil.copytree(tmp_path / "older", index)
        case "rubbish":
            (index / MANIFEST).write_bytes(b"not a manifest" * 1000)
        case "half":
            run = next(index.glob("*.run"))
            run.write_bytes(run.read_bytes()[:-30])
        case "flipped":
            run = next(index.glob("*.run"))
            content = bytearray(run.read_bytes())
            content[100] ^= 4
            run.write_bytes(content)
        case "counted":
            # It claims to know more of a partition than it does.
            shutil.rmtree(index)
            shutil.copytree(tmp_path / "older", index)
            before = (index / MANIFEST).read_bytes()
            (index / MANIFEST).write_bytes(before.replace(b'"watermarks":{"0":50', b'"watermarks":{"0":90'))
            assert (index / MANIFEST).read_bytes() != before
        case "plain":
            # As it was before there were checksums.
            line, _, _ = (index / MANIFEST).read_bytes().split(b"\n")
            (index / MANIFEST).write_bytes(re.sub(rb',"crc":\d+', b"", line))
        case "of before":
            shutil.rmtree(index)
            index.with_name(f"{index.name}.sqlite").write_bytes(b"SQLite format 3")
    log = open_owner(folder)
    assert put(log, "plain", N=[0] * 250, id_=[f"id {n}" for n in range(250)]).duplicates == tuple(range(200))
    log.close()


def test_an_index_that_is_ahead_of_the_log_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_owner(folder)
    topic = log.create_topic(PLAIN)
    log.close()
    index = IdIndex(folder / "ids" / str(topic.id))
    index.remember({b"x" * 16: id_runs.pack(0, 5)}, {0: 6})
    index.close()
    log = open_owner(folder)
    assert put(log, "plain", N=[1], id_=["a"]).positions == ((0, 0, 0),)
    log.close()


def test_memory_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "MOST_RECENT", 50)
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    owned = log._owned("plain")
    assert owned.ids is not None
    for first in range(0, 400, 20):
        put(log, "plain", N=list(range(first, first + 20)), id_=[f"{n}" for n in range(first, first + 20)])
        assert len(owned.ids._recent) < 50
    assert put(log, "plain", N=[0, 1], id_=["0", "399"]).duplicates == (0, 1)
    log.close()


def test_a_failed_group_uses_up_no_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    put(log, "plain", N=[1], id_=["a"])
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(LogError):
            put(log, "plain", N=[2], id_=["b"])
    assert put(log, "plain", N=[3, 4], id_=["a", "b"]).duplicates == (0,)
    assert numbers(log) == [1, 4]
    log.close()


def test_ids_of_records_that_are_gone_may_be_used_again(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock, segment_seconds=10)
    log.create_topic(replace(PLAIN, config=TopicConfig(retention_ms=60_000)))
    put(log, "plain", N=[1], id_=["a"])
    clock.advance(30_000)
    log.maintain()
    assert put(log, "plain", N=[2], id_=["a"]).duplicates == (0,)
    clock.advance(300_000)
    log.maintain()
    assert log.snapshot().ends["plain"][0].start == 1
    assert put(log, "plain", N=[3], id_=["a"]).positions == ((0, 1, 1),)
    assert put(log, "plain", N=[4], id_=["a"]).duplicates == (0,)
    log.close()


def digest(number: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(8, "big"), digest_size=16).digest()


def fill(index: IdIndex, first: int, last: int, flush: bool = True) -> None:
    index.remember({digest(n): id_runs.pack(n % 3, n) for n in range(first, last)}, dict.fromkeys(range(3), last))
    if flush:
        index.flush_if_due()


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=200))
def test_a_filter_lets_everything_pass_that_is_there_and_little_else(there: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_runs, "SLICE", 30)
        known = id_runs.filter_of(np.array(sorted(there), np.uint64))
    assert id_runs.passes(known, np.array(there, np.uint64)).all()
    chance = np.random.default_rng(7).integers(0, 2**64, 10_000, np.uint64)
    assert id_runs.passes(known, chance).mean() < 0.12
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_runs, "LARGEST_FILTER", 7)
        small = id_runs.filter_of(np.array(sorted(there), np.uint64))
    assert len(small[0]) <= 16
    assert id_runs.passes(small, np.array(there, np.uint64)).all()


@pytest.mark.parametrize("asked", [1, 5000])
def test_runs_are_merged_and_know_what_they_knew(tmp_path: Path, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_runs, "SLICE", 300)
    index = IdIndex(tmp_path / "ids")
    for part in range(70):
        fill(index, part * 100, part * 100 + 100)
    assert len(list((tmp_path / "ids").glob("*.run"))) == len(index._runs) < 16
    digests = [digest(n) for n in range(9000)]
    for first in range(0, 9000, asked if asked > 1 else 450):
        found = index.places(digests[first : first + asked])
        assert found == {digest(n): (n % 3, n) for n in range(first, min(first + asked, 7000))}
    index.close()
    again = IdIndex(tmp_path / "ids")
    assert again.watermarks() == dict.fromkeys(range(3), 7000)
    assert again.known(digests) == set(digests[:7000])


def test_ids_below_the_start_are_let_go(tmp_path: Path) -> None:
    index = IdIndex(tmp_path / "ids")
    fill(index, 0, 1000)
    fill(index, 1000, 2000)
    for partition in range(3):
        index.started(partition, 1800)
    assert index.known([digest(n) for n in range(2000)]) == {digest(n) for n in range(1800, 2000)}
    index.purge(lambda: False)
    assert [run.info.count for run in index._runs] == [200]
    assert index.known([digest(n) for n in range(2000)]) == {digest(n) for n in range(1800, 2000)}


def test_an_id_is_known_for_its_window_and_not_much_longer(tmp_path: Path) -> None:
    clock = manual_clock()
    index = IdIndex(tmp_path / "ids", clock)
    index.window_ms = 60_000
    for second in range(200):
        fill(index, second * 10, second * 10 + 10)
        clock.advance(1000)
    known = {n for n in range(2000) if index.known([digest(n)])}
    assert set(range(1400, 2000)) <= known <= set(range(1400 - 160, 2000))
    assert len(index._runs) < 40


def test_a_topic_declares_its_window(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock)
    log.create_topic(replace(PLAIN, config=TopicConfig(id_window_ms=600_000)))
    put(log, "plain", N=[1], id_=["a"])
    log.maintain()
    clock.advance(500_000)
    log.maintain()
    assert put(log, "plain", N=[2], id_=["a"]).duplicates == (0,)
    clock.advance(300_000)
    log.maintain()
    assert put(log, "plain", N=[3], id_=["a"]).duplicates == ()
    assert numbers(log) == [1, 3]
    log.close()
