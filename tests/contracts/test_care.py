"""Caring for a log: damage, deletion of records, partitions that are split and merged."""

from __future__ import annotations

import pytest

from headrace.errors import NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import Log, PartitionEnds
from tests.contracts.logs import Place
from tests.log.support import PLAIN, VIEWS, numbers, put
from tests.support import wait_for


@pytest.mark.needs("quarantine")
def test_nothing_is_set_aside_that_is_not_damaged(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    with pytest.raises(UsageError):
        log.quarantine("plain", 0, 0)


def test_deleted_records_are_gone_and_offsets_go_on(place: Place) -> None:
    log = place.log
    log.create_topic(PLAIN)
    put(log, "plain", N=list(range(10)))
    assert log.delete_records("plain", 0, 4) == 4
    assert (log.snapshot().ends["plain"][0], numbers(log, start=4)) == (PartitionEnds(4, 10), list(range(4, 10)))
    with pytest.raises(OffsetOutOfRange) as raised:
        numbers(log, start=3)
    assert (raised.value.data["start"], raised.value.data["end"]) == (4, 10)
    assert log.delete_records("plain", 0, 2) == 4
    place.reopen()
    assert place.log.delete_records("plain", 0, 10) == 10
    assert put(place.log, "plain", N=[10]).positions == ((0, 10, 10),)
    assert numbers(place.log, start=10) == [10]


def test_only_what_is_there_can_be_deleted(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    with pytest.raises(OffsetOutOfRange):
        log.delete_records("plain", 0, 2)
    with pytest.raises(NotFound):
        log.delete_records("plain", 1, 0)
    with pytest.raises(NotFound):
        log.delete_records("nowhere", 0, 0)
    assert numbers(log) == [1]


@pytest.mark.needs("split")
def test_a_split_partition_stays_readable_and_its_keys_go_on_in_order(log: Log) -> None:
    log.create_topic(VIEWS)
    users = [f"user {n}" for n in range(20)]
    put(log, "pageviews", USERID=users, N=[0] * 20)
    closed = log.snapshot().ends["pageviews"][0]
    children = log.split_partition("pageviews", 0)
    put(log, "pageviews", USERID=users, N=[1] * 20)
    joined = log.merge_partitions("pageviews", *children)
    put(log, "pageviews", USERID=users, N=[2] * 20)
    assert (children, joined) == ((2, 3), 4)
    assert log.snapshot().ends["pageviews"][0] == closed
    with log.consumer("pageviews") as consumer:
        seen: dict[str, list[int]] = {}
        for _ in range(50):
            for records in consumer.poll(0.2, max_records=5):
                columns = records.batch.to_pydict()
                for user, n in zip(columns["USERID"], columns["N"], strict=True):
                    seen.setdefault(user, []).append(n)
            if sum(map(len, seen.values())) == 60:
                break
    assert seen == {user: [0, 1, 2] for user in users}


@pytest.mark.needs("split")
def test_keys_go_on_in_order_through_partitions_that_were_closed_empty(log: Log) -> None:
    log.create_topic(VIEWS)
    users = [f"user {n}" for n in range(20)]
    put(log, "pageviews", USERID=users, N=[0] * 20)
    for number in (0, 1):
        # Nothing is written to the halves before they are one again.
        log.merge_partitions("pageviews", *log.split_partition("pageviews", number))
    put(log, "pageviews", USERID=users, N=[1] * 20)
    seen: dict[str, list[int]] = {}
    with log.consumer("pageviews", "readers", "earliest") as consumer:

        def read() -> bool:
            for records in consumer.poll(0.2, max_records=3):
                columns = records.batch.to_pydict()
                for user, n in zip(columns["USERID"], columns["N"], strict=True):
                    seen.setdefault(user, []).append(n)
            return sum(map(len, seen.values())) >= 40

        wait_for(read, 30, "all records")
    assert seen == {user: [0, 1] for user in users}


@pytest.mark.needs("split")
def test_a_closed_partition_takes_nothing(log: Log) -> None:
    log.create_topic(VIEWS)
    log.split_partition("pageviews", 1)
    with pytest.raises(UsageError, match="closed"):
        put(log, "pageviews", 1, USERID=["a"], N=[1])
    with pytest.raises(UsageError, match="not neighbours"):
        log.merge_partitions("pageviews", 0, 3)
