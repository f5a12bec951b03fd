"""Writing: what an append promises, for every log there is."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.errors import UsageError
from headrace.log.base import Append, Log
from headrace.log.writing.partitioning import partition_of
from tests.contracts.logs import Place
from tests.log.support import PLAIN, VIEWS, batch, numbers, put, rows


def test_what_was_appended_is_read_in_order(log: Log) -> None:
    log.create_topic(PLAIN)
    assert put(log, "plain", N=[1, 2]).positions == ((0, 0, 1),)
    assert put(log, "plain", N=[3]).positions == ((0, 2, 2),)
    assert numbers(log) == [1, 2, 3]


@pytest.mark.needs("arrival")
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


def test_a_keys_partition_is_kafkas(log: Log) -> None:
    """The same on every log: murmur2 over the key's bytes. (`abc` and the others are in Kafka's own tests.)"""
    log.create_topic(replace(VIEWS, partitions=7))
    keys = ["21", "foobar", "abc", "a-little-bit-long-string", "grüße", ""]
    put(log, "pageviews", USERID=list(keys))
    found = {row["USERID"]: row["partition"] for row in rows(log, "pageviews")}
    known = {"21": -973932308, "foobar": -790332482, "abc": 479470107, "a-little-bit-long-string": -985981536}
    assert {key: found[key] for key in known} == {key: (number & 0x7FFFFFFF) % 7 for key, number in known.items()}
    assert found == {key: partition_of(key.encode(), 7) for key in keys}


def test_rows_whose_key_is_null_go_in_turn(log: Log) -> None:
    log.create_topic(replace(VIEWS, partitions=3))
    put(log, "pageviews", USERID=pa.array([None] * 9, pa.utf8()), N=list(range(9)))
    assert [len(numbers(log, "pageviews", number)) for number in range(3)] == [3, 3, 3]


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
    assert (first.positions, second.positions) == (((0, 0, 0),), ((0, 0, 0),))
    if "arrival" in log.capabilities:
        assert log.snapshot().arrival == 2
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


@pytest.mark.needs("event-ids")
def test_event_ids_are_stored_once(log: Log) -> None:
    log.create_topic(PLAIN)
    assert put(log, "plain", N=[1, 2, 3], id_=["a", "b", "a"]).duplicates == (2,)
    assert put(log, "plain", N=[4, 5, 6], id_=["b", None, "c"]).duplicates == (0,)
    assert put(log, "plain", N=[7], id_=["c"]).positions == ()
    assert numbers(log) == [1, 2, 5, 6]


@pytest.mark.needs("event-ids")
def test_event_ids_are_known_after_a_restart(place: Place) -> None:
    place.log.create_topic(replace(PLAIN, partitions=3))
    put(place.log, "plain", N=[1, 2], id_=["a", "b"])
    place.reopen()
    assert put(place.log, "plain", N=[3, 4], id_=["b", "c"]).duplicates == (0,)
    assert sorted(n for part in range(3) for n in numbers(place.log, "plain", part)) == [1, 2, 4]


@pytest.mark.needs("event-ids")
def test_ids_are_known_between_appends_without(log: Log) -> None:
    log.create_topic(PLAIN)
    for round_ in range(3):
        put(log, "plain", N=[10 * round_])
        answers = log.append([Append("plain", batch(N=[1, 2], id_=["a", f"{round_}"]))], acks="1")
        answers.result(30)
        assert put(log, "plain", N=[9], id_=[f"{round_}"]).duplicates == (0,)
    assert numbers(log) == [0, 1, 2, 10, 2, 20, 2]


@pytest.mark.needs("event-ids")
def test_an_id_belongs_to_its_topic_as_it_is_now(log: Log) -> None:
    other = replace(PLAIN, name="other")
    log.create_topic(PLAIN)
    log.create_topic(other)
    both = [Append("plain", batch(N=[1], id_=["a"])), Append("other", batch(N=[2], id_=["a"]))]
    assert [len(one.duplicates) for one in log.append(both).result(30)] == [0, 0]
    assert [len(one.duplicates) for one in log.append(both).result(30)] == [1, 1]
    log.delete_topic("plain")
    log.create_topic(PLAIN)
    assert put(log, "plain", N=[3], id_=["a"]).duplicates == ()
    assert numbers(log) == [3]


@pytest.mark.needs("event-ids")
def test_a_place_is_known_by_the_id(log: Log) -> None:
    log.create_topic(PLAIN)
    first = put(log, "plain", N=[1, 2, 3], id_=["a", "b", None]).positions[0][1]
    later = put(log, "plain", N=[4], id_=["c"]).positions[0][1]
    assert log.places("plain", ["c", "x", "b", "a"]) == [(0, later), None, (0, first + 1), (0, first)]
