"""Event ids are used once: across restarts, crashes and lost indexes, in bounded memory."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import LogError
from headrace.log.base import TopicConfig
from headrace.log.local import ids
from headrace.log.local.ids import IdIndex
from headrace.log.local.journal import Journal
from tests.log.support import PLAIN, manual_clock, numbers, open_owner, put


def test_ids_are_known_after_opening_again(tmp_path: Path) -> None:
    for number in range(3):
        log = open_owner(tmp_path / "log")
        log.create_topic(replace(PLAIN, partitions=2))
        appended = put(log, "plain", N=[number, number], id_=["same", f"own {number}"])
        assert appended.duplicates == ((0,) if number else ())
        log.close()


@pytest.mark.parametrize("harm", ["none", "lost", "older", "rubbish"])
def test_the_index_is_caught_up_from_the_log(tmp_path: Path, harm: str) -> None:
    """As after a crash: the index misses what was committed last, or is gone, or is damaged."""
    folder = tmp_path / "log"
    log = open_owner(folder)
    topic = log.create_topic(replace(PLAIN, partitions=2))
    file = folder / "ids" / f"{topic.id}.sqlite"
    put(log, "plain", N=list(range(100)), id_=[f"id {n}" for n in range(100)])
    log.close()
    shutil.copy(file, tmp_path / "older")
    log = open_owner(folder)
    put(log, "plain", N=list(range(100, 200)), id_=[f"id {n}" for n in range(100, 200)])
    log.close()
    match harm:
        case "lost":
            file.unlink()
        case "older":
            shutil.copy(tmp_path / "older", file)
        case "rubbish":
            file.write_bytes(b"not a database" * 1000)
    log = open_owner(folder)
    assert put(log, "plain", N=[0] * 250, id_=[f"id {n}" for n in range(250)]).duplicates == tuple(range(200))
    log.close()


def test_an_index_that_is_ahead_of_the_log_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_owner(folder)
    topic = log.create_topic(PLAIN)
    log.close()
    index = IdIndex(folder / "ids" / f"{topic.id}.sqlite")
    index.remember({b"x" * 16: (0, 5)}, {0: 6})
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
