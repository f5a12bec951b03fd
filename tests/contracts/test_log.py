"""What every log promises (`log/base.py`), for every log there is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import BatchConflict, Conflict, LogError, NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import Append, BatchIdentity, Committed, Log, PartitionEnds, Route, TopicConfig, TopicSpec
from headrace.log.local import LocalClient
from headrace.types import BIGINT, BYTES, VARCHAR, Column
from tests.log.support import DERIVED, PLAIN, VIEWS, batch, numbers, open_owner, put, rows


@pytest.fixture(params=["local-owner", "local-client"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    owner = open_owner(tmp_path / "log", serve=True)
    made: Log = owner if request.param == "local-owner" else LocalClient(tmp_path / "log")
    yield made
    made.close()
    owner.close()


def identity(number: int, checkpoint: str = "c1", offsets: str = "{}") -> BatchIdentity:
    return BatchIdentity("CTAS_COUNTS_1", 1, checkpoint, number, offsets)


def stage(log: Log, transaction: str, task: int, **columns: list[object]) -> int:
    return log.stage(transaction, task, 0, [Route("counts", {"K": "K", "N": "N"})], iter([batch(**columns)]))


# Topics


def test_a_topic_is_found_by_its_name(log: Log) -> None:
    made = log.create_topic(VIEWS)
    assert (log.topic("pageviews"), made.spec, made.schemas[0].version) == (made, VIEWS, 1)


def test_topics_are_listed_by_name_internal_ones_too(log: Log) -> None:
    for spec in (VIEWS, replace(PLAIN, name="_catalog"), PLAIN):
        log.create_topic(spec)
    assert [(topic.name, topic.internal) for topic in log.topics()] == [
        ("_catalog", True),
        ("pageviews", False),
        ("plain", False),
    ]


def test_making_the_same_topic_again_changes_nothing(log: Log) -> None:
    assert log.create_topic(VIEWS) == log.create_topic(VIEWS)


def test_a_name_that_is_taken_is_a_conflict(log: Log) -> None:
    log.create_topic(VIEWS)
    with pytest.raises(Conflict, match="pageviews"):
        log.create_topic(replace(VIEWS, partitions=3))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250])
def test_what_is_no_topic_name_is_refused(log: Log, name: str) -> None:
    with pytest.raises(UsageError):
        log.create_topic(replace(VIEWS, name=name))


def test_columns_of_a_topic_do_not_begin_with_a_dollar(log: Log) -> None:
    with pytest.raises(UsageError, match="\\$x"):
        log.create_topic(TopicSpec("t", value=(Column("$x", BIGINT),)))


@pytest.mark.parametrize("name", ["../plain", "", ".", "x" * 300, "a\0b"])
def test_what_is_no_topic_name_is_never_found(log: Log, name: str) -> None:
    log.create_topic(PLAIN)
    with pytest.raises(NotFound):
        log.topic(name)


def test_a_missing_topic_is_named_with_the_nearest(log: Log) -> None:
    log.create_topic(VIEWS)
    with pytest.raises(NotFound, match="did you mean `pageviews`"):
        log.topic("pageview")


def test_added_columns_are_null_in_older_records(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    altered = log.alter_topic(replace(PLAIN, value=(*PLAIN.value, Column("S", VARCHAR)), config=TopicConfig(5, 6)))
    put(log, "plain", N=[2], S=["two"])
    assert [(row["N"], row["S"]) for row in rows(log, "plain")] == [(1, None), (2, "two")]
    assert ([version.version for version in altered.schemas], log.topic("plain")) == ([1, 2], altered)


def test_columns_are_neither_removed_nor_retyped(log: Log) -> None:
    log.create_topic(PLAIN)
    for value in ((), (Column("N", VARCHAR),)):
        with pytest.raises(UsageError):
            log.alter_topic(replace(PLAIN, value=value))


def test_a_deleted_topic_is_gone_and_may_be_made_again(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2, 3])
    log.delete_topic("plain")
    assert (log.topics(), log.snapshot().ends) == ([], {})
    with pytest.raises(NotFound):
        put(log, "plain", N=[4])
    log.create_topic(PLAIN)
    put(log, "plain", N=[5])
    assert (numbers(log), log.snapshot().arrival) == ([5], 4)


def test_a_raw_topic_holds_bytes(log: Log) -> None:
    made = log.create_topic(TopicSpec("raw", kind="raw"))
    put(log, "raw", KEY=[b"k", None], VALUE=[b"\x00\xff", None], headers_=[[("h", b"1")], None])
    assert made.spec.value == (Column("VALUE", BYTES),)
    assert [(row["KEY"], row["VALUE"], row["$headers"]) for row in rows(log, "raw")] == [
        (b"k", b"\x00\xff", {"h": b"1"}),
        (None, None, None),
    ]


# Writing and reading


def test_what_was_appended_is_read_in_order(log: Log) -> None:
    log.create_topic(PLAIN)
    assert put(log, "plain", N=[1, 2]).positions == ((0, 0, 1),)
    assert put(log, "plain", N=[3]).positions == ((0, 2, 2),)
    assert numbers(log) == [1, 2, 3]


def test_system_columns_are_filled_in(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1], time_=[70], tombstone_=[True], id_=["e1"], rest_=['{"x":1}'], headers_=[[("a", b"b")]])
    assert rows(log, "plain") == [
        {
            "partition": 0,
            "offset": 0,
            "$arrival": 0,
            "$stream_time": -1,
            "$time": 70,
            "$tombstone": True,
            "$id": "e1",
            "$headers": {"a": b"b"},
            "$rest": '{"x":1}',
            "N": 1,
        }
    ]


def test_a_key_always_goes_to_the_same_partition(log: Log) -> None:
    log.create_topic(VIEWS)
    for _ in range(3):
        put(log, "pageviews", USERID=[f"u{n}" for n in range(20)])
    places: dict[str, set[int]] = {}
    for row in rows(log, "pageviews"):
        places.setdefault(row["USERID"], set()).add(row["partition"])
    assert len(places) == 20
    assert all(len(place) == 1 for place in places.values())
    assert {number for place in places.values() for number in place} == {0, 1}


def test_rows_without_a_key_go_in_turn(log: Log) -> None:
    log.create_topic(replace(PLAIN, partitions=3))
    put(log, "plain", N=list(range(9)))
    assert [len(numbers(log, partition=number)) for number in range(3)] == [3, 3, 3]


def test_a_partition_can_be_chosen(log: Log) -> None:
    log.create_topic(VIEWS)
    assert put(log, "pageviews", 1, USERID=["a", "b"]).positions == ((1, 0, 1),)
    with pytest.raises(UsageError):
        put(log, "pageviews", 2, USERID=["a"])


def test_several_batches_are_one_atomic_write(log: Log) -> None:
    log.create_topic(PLAIN)
    log.create_topic(VIEWS)
    first, second = log.append([Append("plain", batch(N=[1])), Append("pageviews", batch(USERID=["a"]), 0)]).result(30)
    assert (first.positions, second.positions, log.snapshot().arrival) == (((0, 0, 0),), ((0, 0, 0),), 2)
    with pytest.raises(UsageError):
        log.append([Append("plain", batch(N=[2])), Append("pageviews", batch(NOPE=["a"]))]).result(30)
    assert numbers(log) == [1]


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"X": [1]}, "X"),
        ({"N": ["text"]}, "N"),
        ({"arrival_": [1]}, "arrival"),
        ({"N": [1], "time_": [-1]}, "time"),
    ],
)
def test_columns_that_do_not_fit_are_refused(log: Log, columns: dict[str, list[object]], what: str) -> None:
    log.create_topic(PLAIN)
    with pytest.raises(UsageError, match=what):
        put(log, "plain", None, **columns)
    assert log.snapshot().arrival == 0


def test_taken_is_answered_before_it_is_durable(log: Log) -> None:
    log.create_topic(PLAIN)
    [appended] = log.append([Append("plain", batch(N=[1]))], acks="1").result(30)
    assert appended.positions == ()
    assert log.wait(0, 30).arrival == 1
    assert numbers(log) == [1]


def test_other_acks_are_refused(log: Log) -> None:
    log.create_topic(PLAIN)
    with pytest.raises(UsageError, match="acks"):
        log.append([Append("plain", batch(N=[1]))], acks="2").result(30)  # type: ignore[arg-type]


def test_an_empty_batch_is_nothing(log: Log) -> None:
    log.create_topic(PLAIN)
    assert put(log, "plain", N=[]).positions == ()
    assert log.snapshot().arrival == 0


def test_event_ids_are_stored_once(log: Log) -> None:
    log.create_topic(PLAIN)
    assert put(log, "plain", N=[1, 2, 3], id_=["a", "b", "a"]).duplicates == (2,)
    assert put(log, "plain", N=[4, 5, 6], id_=["b", None, "c"]).duplicates == (0,)
    assert put(log, "plain", N=[7], id_=["c"]).positions == ()
    assert numbers(log) == [1, 2, 5, 6]


def test_reading_a_range_of_some_columns(log: Log) -> None:
    log.create_topic(VIEWS)
    for first in range(0, 20, 4):
        put(log, "pageviews", 0, USERID=["u"] * 4, N=list(range(first, first + 4)))
    found = [row for records in log.read("pageviews", 0, 3, 9, ["N", "$offset"]) for row in records.batch.to_pylist()]
    assert found == [{"N": n, "$offset": n} for n in range(3, 9)]
    with pytest.raises(UsageError, match="NOPE"):
        log.read("pageviews", 0, 0, columns=["NOPE"])


def test_offsets_outside_the_log_are_refused(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    assert numbers(log, start=1) == []
    for start in (-1, 2):
        with pytest.raises(OffsetOutOfRange) as raised:
            numbers(log, start=start)
        assert (raised.value.data["start"], raised.value.data["end"]) == (0, 1)
    with pytest.raises(NotFound):
        numbers(log, partition=1)


def test_a_snapshot_is_a_moment(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2], time_=[50, 40])
    before = log.snapshot()
    put(log, "plain", N=[3])
    assert (before.arrival, before.ends["plain"], before.stream_times["plain"]) == (2, (PartitionEnds(0, 2),), 50)
    assert numbers(log, end=before.ends["plain"][0].end) == [1, 2]


def test_waiting_ends_with_the_next_record(log: Log) -> None:
    log.create_topic(PLAIN)
    assert log.wait(0, 0.01).arrival == 0
    writer = threading.Timer(0.02, put, (log, "plain"), {"N": [1]})
    writer.start()
    assert log.wait(0, 30).arrival == 1
    writer.join()


def test_stream_time_is_what_arrived_before(log: Log) -> None:
    log.create_topic(VIEWS)
    put(log, "pageviews", USERID=["a", "b", "c", "d"], time_=[10, 5, 30, 20])
    put(log, "pageviews", USERID=["e"], time_=[1])
    stamped = sorted((row["$arrival"], row["$time"], row["$stream_time"]) for row in rows(log, "pageviews"))
    assert stamped == [(0, 10, -1), (1, 5, 10), (2, 30, 10), (3, 20, 30), (4, 1, 30)]


def test_offsets_by_time_and_by_arrival(log: Log) -> None:
    log.create_topic(PLAIN)
    log.create_topic(VIEWS)
    put(log, "plain", N=[1, 2, 3], time_=[100, 300, 200])
    put(log, "pageviews", 0, USERID=["a"])
    put(log, "plain", N=[4], time_=[400])
    assert [log.offset_at_time("plain", 0, time_ms) for time_ms in (0, 100, 150, 300, 301, 500)] == [0, 0, 1, 1, 3, 4]
    assert [log.offset_at_arrival("plain", 0, arrival) for arrival in range(6)] == [0, 1, 2, 3, 3, 4]
    assert log.offset_at_time("pageviews", 1, 0) == log.offset_at_arrival("pageviews", 1, 0) == 0


def test_stats_count_records_and_bytes(log: Log) -> None:
    log.create_topic(VIEWS)
    put(log, "pageviews", USERID=["a", "b", "c", "d"], time_=[1, 2, 3, 4])
    stats = log.stats("pageviews")
    assert (stats.records, stats.stream_time, len(stats.partitions)) == (4, 4, 2)
    assert stats.bytes > 0
    assert stats.segments >= 1


def test_the_owner_is_there(log: Log) -> None:
    assert log.owner_alive()


# Transactions


def test_staged_rows_appear_with_the_commit_and_not_before(log: Log) -> None:
    log.create_topic(DERIVED)
    assert stage(log, "t", 0, K=["a", "b"], N=[1, 2]) == 2
    assert stage(log, "t", 1, K=["c"], N=[3]) == 1
    assert log.snapshot().arrival == 0
    assert log.commit("t", [(0, 0), (1, 0)], identity(0)) == Committed(3, duplicate=False)
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
    assert (committed, len(rows(log, "counts"))) == (Committed(1, duplicate=True), 1)


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


# Damage


def test_nothing_is_set_aside_that_is_not_damaged(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    with pytest.raises(UsageError):
        log.quarantine("plain", 0, 0)
