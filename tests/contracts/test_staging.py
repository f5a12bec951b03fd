"""A query's batch: staged by tasks, committed once, with an identity (contract 7)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.errors import BatchConflict, LogError
from headrace.log.base import BatchIdentity, Committed, Log, Route
from tests.log.support import DERIVED, batch, rows

pytestmark = pytest.mark.needs("stage")


def identity(number: int, checkpoint: str = "c1", offsets: str = "{}") -> BatchIdentity:
    return BatchIdentity("CTAS_COUNTS_1", 1, checkpoint, number, offsets)


def stage(log: Log, transaction: str, task: int, **columns: list[object]) -> int:
    return log.stage(transaction, task, 0, [Route("counts", {"K": "K", "N": "N"})], iter([batch(**columns)]))


def test_staged_rows_appear_with_the_commit_and_not_before(log: Log) -> None:
    log.create_topic(DERIVED)
    assert stage(log, "t", 0, K=["a", "b"], N=[1, 2]) == 2
    assert stage(log, "t", 1, K=["c"], N=[3]) == 1
    assert log.snapshot().arrival == 0
    committed = log.commit("t", [(0, 0), (1, 0)], identity(0))
    assert committed == Committed(log.snapshot().arrival, duplicate=False)
    assert [(row["K"], row["N"]) for row in rows(log, "counts")] == [("a", 1), ("b", 2), ("c", 3)]
    assert log.last_identity("CTAS_COUNTS_1", 1) == identity(0)
    assert log.last_identity("CTAS_COUNTS_1", 2) is None


def test_one_stream_goes_to_several_topics(log: Log) -> None:
    log.create_topic(DERIVED)
    log.create_topic(replace(DERIVED, name="late"))
    routes = [Route("counts", {"K": "k", "N": "n"}), Route("late", {"K": "k", "$time": "t"})]
    stream = pa.RecordBatch.from_pydict({"k": ["a", "b", "c"], "n": [1, 2, 3], "t": [7, 8, 9], "$route": [0, 1, None]})
    stream = stream.set_column(3, "$route", stream.column(3).cast(pa.int32()))
    log.stage("t", 0, 0, routes, iter([stream]))
    log.commit("t", [(0, 0)])
    assert [(row["K"], row["N"]) for row in rows(log, "counts")] == [("a", 1), ("c", 3)]
    assert [(row["K"], row["$time"]) for row in rows(log, "late")] == [("b", 8)]


def test_rows_with_an_order_are_in_it_whichever_task_had_them(log: Log) -> None:
    log.create_topic(replace(DERIVED, partitions=1))
    log.create_topic(replace(DERIVED, name="late"))
    routes = [Route("counts", {"K": "k", "N": "n"}, "n"), Route("late", {"K": "k"})]
    tasks = [[[1, 4], [6, 7, 7]], [[2, 3, 5, 8]], [[0], [9, 12]], [[10, 11]]]
    for task, batches in enumerate(tasks):
        stream = [
            pa.RecordBatch.from_pydict(
                {"k": [f"t{task}"] * len(n), "n": n, "$route": pa.array([int(one == 11) for one in n], pa.int32())}
            )
            for n in batches
        ]
        log.stage("t", task, 0, routes, iter(stream))
    log.commit("t", [(task, 0) for task in range(len(tasks))], identity(0))
    found = [(row["N"], row["K"]) for row in rows(log, "counts")]
    assert found == [
        (n, f"t{task}") for n, task in zip([0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 12], "2011010001232", strict=True)
    ]
    assert [row["K"] for row in rows(log, "late")] == ["t3"]


def test_only_the_named_attempts_count(log: Log) -> None:
    log.create_topic(DERIVED)
    route = [Route("counts", {"K": "K", "N": "N"})]
    for attempt in (0, 1):
        log.stage("t", 0, attempt, route, iter([batch(K=["a"], N=[attempt])]))
    log.commit("t", [(0, 1)])
    assert [row["N"] for row in rows(log, "counts")] == [1]


def test_an_aborted_transaction_leaves_nothing(log: Log) -> None:
    log.create_topic(DERIVED)
    stage(log, "t", 0, K=["a"], N=[1])
    log.abort("t")
    log.abort("never heard of")
    with pytest.raises(LogError):
        log.commit("t", [(0, 0)])
    assert log.snapshot().arrival == 0


def test_the_same_batch_again_changes_nothing(log: Log) -> None:
    log.create_topic(DERIVED)
    for _ in range(2):
        stage(log, "t", 0, K=["a"], N=[1])
        committed = log.commit("t", [(0, 0)], identity(0))
    assert (committed, len(rows(log, "counts"))) == (Committed(log.snapshot().arrival, duplicate=True), 1)


def test_an_empty_batch_is_remembered_too(log: Log) -> None:
    assert log.commit("t", [], identity(0)) == Committed(0, duplicate=False)
    assert log.commit("t", [], identity(1)) == Committed(0, duplicate=False)
    assert log.commit("t", [], identity(1)) == Committed(0, duplicate=True)


@pytest.mark.parametrize(
    "wrong",
    [identity(1, offsets="{other}"), identity(1, checkpoint="c2"), identity(0), identity(3), identity(2, "c2")],
    ids=["other offsets", "other checkpoint", "rolled back", "skipped", "replaced"],
)
def test_a_batch_that_does_not_follow_is_refused(log: Log, wrong: BatchIdentity) -> None:
    log.create_topic(DERIVED)
    for number in range(2):
        log.commit(f"t{number}", [], identity(number))
    stage(log, "t", 0, K=["a"], N=[1])
    with pytest.raises(BatchConflict):
        log.commit("t", [(0, 0)], wrong)
    assert rows(log, "counts") == []


def test_the_first_batch_of_a_query_is_number_zero(log: Log) -> None:
    with pytest.raises(BatchConflict):
        log.commit("t", [], identity(4))
