"""Transactions beyond the contract: spilling, restarts, leftovers."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import BatchConflict, LogError, NotFound, UsageError
from headrace.log.base import BatchIdentity, Committed, Log, Route
from headrace.log.local import LocalClient
from headrace.log.writing.transactions import FORGET_AFTER_S
from tests.log.support import DERIVED, PLAIN, batch, manual_clock, numbers, open_owner, put, rows

WIDE = replace(DERIVED, partitions=3)
ROUTE = [Route("counts", {"K": "K", "N": "N"})]


def identity(number: int, checkpoint: str = "c") -> BatchIdentity:
    return BatchIdentity("q", 1, checkpoint, number, f"offsets {number}")


def stage(log: Log, transaction: str, first: int, count: int, task: int = 0) -> None:
    parts = (
        batch(K=[f"k{n}" for n in range(start, start + 10)], N=list(range(start, start + 10)))
        for start in range(first, first + count, 10)
    )
    assert log.stage(transaction, task, 0, ROUTE, parts) == count


@pytest.mark.parametrize("memory", [10_000_000, 3_000, 0], ids=["in memory", "partly spilled", "all spilled"])
def test_rows_beyond_the_bound_wait_in_a_file(tmp_path: Path, memory: int) -> None:
    log = open_owner(tmp_path / "log", max_pending_bytes=memory)
    log.create_topic(WIDE)
    stage(log, "t", 0, 500, task=1)
    stage(log, "t", 500, 500, task=0)
    assert log.commit("t", [(0, 0), (1, 0)], identity(0)).arrival == 1000
    found = rows(log, "counts")
    by_arrival = [row["N"] for row in sorted(found, key=lambda row: row["$arrival"])]
    assert by_arrival == [*range(500, 1000), *range(500)]
    log.close()
    assert not [name for name in os.listdir(tmp_path / "log") if name.startswith("tmp")]


@pytest.mark.parametrize("memory", [10_000_000, 3_000, 0], ids=["in memory", "partly spilled", "all spilled"])
@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(1, 9), min_size=1, max_size=9))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_of_several_tasks_are_put_in_order(
    tmp_path: Path, memory: int, owners: list[int], sizes: list[int]
) -> None:
    """`owners`: which task has the n-th row; `sizes`: of the batches it hands over."""
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        log = open_owner(Path(folder), max_pending_bytes=memory)
        log.create_topic(WIDE)
        for task in range(4):
            mine, parts = [number for number, owner in enumerate(owners) if owner == task], []
            for size in itertools.cycle(sizes):
                if not mine:
                    break
                parts.append(batch(K=[f"k{n}" for n in mine[:size]], N=mine[:size]))
                del mine[:size]
            log.stage("t", task, 0, [replace(ROUTE[0], order="N")], iter(parts))
        log.commit("t", [(task, 0) for task in range(4)], identity(0))
        by_arrival = sorted(rows(log, "counts"), key=lambda row: row["$arrival"])
        assert [(row["N"], row["K"]) for row in by_arrival] == [(n, f"k{n}") for n in range(len(owners))]
        log.close()


def test_a_task_that_breaks_its_order_loses_nothing_and_a_wrong_column_is_named(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(WIDE)
    route = [replace(ROUTE[0], order="N")]
    log.stage("t", 0, 0, route, iter([batch(K=["a", "b", "c"], N=[5, 1, 6])]))
    log.stage("t", 1, 0, route, iter([batch(K=["d", "e"], N=[4, 5])]))
    log.commit("t", [(0, 0), (1, 0)])
    found = sorted(rows(log, "counts"), key=lambda row: row["$arrival"])
    assert [row["K"] for row in found] == ["d", "a", "b", "e", "c"]
    with pytest.raises(UsageError, match="no column `M` of whole numbers"):
        log.stage("t", 0, 0, [replace(ROUTE[0], order="M")], iter([batch(K=["a"], N=[5])]))
    log.close()


def test_what_was_committed_survives_what_was_staged_does_not(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(WIDE)
    stage(log, "t0", 0, 50)
    log.commit("t0", [(0, 0)], identity(0))
    stage(log, "t1", 50, 50)
    log.close()
    log = open_owner(tmp_path / "log")
    assert log.last_identity("q", 1) == identity(0)
    with pytest.raises(LogError, match="run the batch again"):
        log.commit("t1", [(0, 0)], identity(1))
    stage(log, "t0 again", 0, 50)
    assert log.commit("t0 again", [(0, 0)], identity(0)) == Committed(50, duplicate=True)
    with pytest.raises(BatchConflict):
        log.commit("t1", [], identity(1, "another checkpoint"))
    stage(log, "t1", 50, 50)
    assert log.commit("t1", [(0, 0)], identity(1)) == Committed(100, duplicate=False)
    assert sorted(row["N"] for row in rows(log, "counts")) == list(range(100))
    log.close()


def test_a_commit_to_a_deleted_topic_changes_nothing(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(WIDE)
    log.create_topic(PLAIN)
    parts = iter([batch(K=["a"], N=[1])])
    log.stage("t", 0, 0, [Route("plain", {"N": "N"})], iter([batch(N=[1])]))
    log.stage("t", 1, 0, ROUTE, parts)
    log.delete_topic("counts")
    with pytest.raises(NotFound):
        log.commit("t", [(0, 0), (1, 0)], identity(0))
    assert numbers(log) == []
    assert log.last_identity("q", 1) is None
    log.close()


def test_appends_and_commits_share_groups_and_keep_their_order(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(WIDE)
    log.create_topic(PLAIN)
    for number in range(20):
        stage(log, f"t{number}", 10 * number, 10)
        put(log, "plain", N=[number])
        log.commit(f"t{number}", [(0, 0)], identity(number))
    assert numbers(log) == list(range(20))
    arrivals = sorted(row["$arrival"] for topic in ("plain", "counts") for row in rows(log, topic))
    assert arrivals == list(range(220))
    log.close()


def test_a_transaction_nobody_touches_is_given_up(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock)
    log.create_topic(WIDE)
    stage(log, "old", 0, 10)
    clock.advance(FORGET_AFTER_S * 1000 // 2)
    stage(log, "young", 0, 10)
    clock.advance(FORGET_AFTER_S * 1000 // 2 + 1000)
    log.maintain()
    with pytest.raises(LogError):
        log.commit("old", [(0, 0)])
    log.commit("young", [(0, 0)])
    assert len(rows(log, "counts")) == 10
    log.close()


def test_an_attempt_that_hung_up_is_forgotten(tmp_path: Path) -> None:
    """The sender dies between two batches, which Arrow would take for the end of the stream."""

    class Killed(Exception):
        pass

    def parts() -> Iterator[pa.RecordBatch]:
        yield batch(K=["a"], N=[1])
        raise Killed

    owner = open_owner(tmp_path / "log", serve=True)
    owner.create_topic(WIDE)
    client = LocalClient(tmp_path / "log")
    with pytest.raises(Killed):
        client.stage("t", 0, 0, ROUTE, parts())
    with pytest.raises(LogError, match="not been handed over completely"):
        client.commit("t", [(0, 0)])
    client.close()
    owner.close()
