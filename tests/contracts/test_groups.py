"""Groups: partitions shared out, offsets remembered, members that come and go."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from headrace.errors import Conflict, Fenced, NotFound, OffsetOutOfRange
from headrace.log.base import Consumer, Log, Records, TopicPartition
from tests.contracts.logs import Place
from tests.contracts.test_consumers import take, values
from tests.log.support import PLAIN, put
from tests.support import wait_for

P0 = TopicPartition("plain", 0)
SIX = replace(PLAIN, partitions=6)


def settle(*consumers: Consumer, counts: list[int]) -> list[frozenset[TopicPartition]]:
    """Poll everyone until each has as many partitions as it should."""

    def settled() -> bool:
        for consumer in consumers:
            consumer.poll(0.05)
        return sorted(len(consumer.assignment()) for consumer in consumers) == sorted(counts)

    wait_for(settled, 30, f"assignments of {counts}")
    return [consumer.assignment() for consumer in consumers]


def test_a_group_goes_on_where_it_committed(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2, 3])
    with log.consumer("plain", group="readers") as first:
        assert take(first, 3) == [1, 2, 3]
        first.commit({P0: 2})
    with log.consumer("plain", group="readers") as second:
        assert take(second, 1) == [3]
        second.commit()
    with log.consumer("plain", group="readers") as third:
        found: list[Records] = []

        def taken_in() -> bool:
            found.extend(third.poll(0.3))
            return bool(third.assignment())

        wait_for(taken_in, 30, "its partition")
        assert (found, third.position(P0)) == ([], 3)


@pytest.mark.slow
def test_a_member_that_nobody_closed_leaves_when_it_is_forgotten(log: Log) -> None:
    log.create_topic(PLAIN)
    settle(log.consumer("plain", group="readers"), counts=[PLAIN.partitions])
    gc.collect()
    with log.consumer("plain", group="readers") as next_one:
        [taken] = settle(next_one, counts=[PLAIN.partitions])
        assert taken == {P0}


def test_what_was_not_committed_comes_again(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2])
    for _ in range(2):
        with log.consumer("plain", group="readers") as consumer:
            assert take(consumer, 2) == [1, 2]


def test_partitions_are_shared_out_and_few_move(log: Log) -> None:
    log.create_topic(SIX)
    first = log.consumer("plain", group="readers")
    [alone] = settle(first, counts=[6])
    second = log.consumer("plain", group="readers")
    one, two = settle(first, second, counts=[3, 3])
    assert one | two == alone
    third = log.consumer("plain", group="readers")
    after = settle(first, second, third, counts=[2, 2, 2])
    assert frozenset.union(*after) == alone
    assert (after[0] <= one, after[1] <= two) == (True, True)
    third.close()
    assert settle(first, second, counts=[3, 3])[0] >= after[0]
    for consumer in (first, second):
        consumer.close()


def test_a_member_that_is_silent_loses_its_partitions(place: Place) -> None:
    log, timeout = place.log, place.shortest_session_s
    log.create_topic(SIX)
    put(log, "plain", 0, N=[1])
    silent = log.consumer("plain", group="readers", session_timeout_s=timeout)
    settle(silent, counts=[6])
    with log.consumer("plain", group="readers", session_timeout_s=timeout) as other:
        settle(other, counts=[6])
        with pytest.raises(Fenced):
            silent.commit({P0: 1})
        settle(silent, other, counts=[3, 3])
    silent.close()


def test_a_heartbeat_keeps_a_slow_member(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    slow = log.consumer("plain", group="readers", session_timeout_s=60.0)
    take(slow, 1)
    for _ in range(3):
        slow.heartbeat()
    slow.commit()
    assert [member.partitions for member in log.group("readers").members] == [(P0,)]
    slow.close()


def test_a_group_is_described_with_its_lag(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2, 3])
    with log.consumer("plain", group="readers", client="me") as consumer:
        assert take(consumer, 3) == [1, 2, 3]
        consumer.commit({P0: 1})
        group = log.group("readers")
        assert (group.name, group.state, group.lag) == ("readers", "stable", 2)
        assert [(member.client, member.partitions) for member in group.members] == [("me", (P0,))]
        [offset] = group.offsets
        assert (offset.at, offset.committed, offset.end, offset.member) == (P0, 1, 3, group.members[0].id)
    wait_for(lambda: log.group("readers").state == "empty", 30, "everyone to leave")
    assert (log.group("readers").members, log.groups()) == ((), ["readers"])
    with pytest.raises(NotFound, match="strangers"):
        log.group("strangers")


def test_an_active_group_is_not_reset(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2, 3])
    log.reset_group("readers", {P0: 2})
    with log.consumer("plain", group="readers") as consumer:
        assert take(consumer, 1) == [3]
        with pytest.raises(Conflict, match="readers"):
            log.reset_group("readers", {P0: 0})
    with pytest.raises(OffsetOutOfRange):
        log.reset_group("readers", {P0: 9}, force=True)
    with pytest.raises(NotFound):
        log.reset_group("readers", {TopicPartition("nowhere", 0): 0}, force=True)


@pytest.mark.needs("evict")
def test_resetting_an_active_group_with_force(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2, 3])
    with log.consumer("plain", group="readers") as consumer:
        assert take(consumer, 3) == [1, 2, 3]
        log.reset_group("readers", {P0: 1}, force=True)
        with pytest.raises(Fenced):
            consumer.commit({P0: 3})
        assert take(consumer, 2) == [2, 3]


def test_a_deleted_group_is_forgotten(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2])
    with log.consumer("plain", group="readers") as consumer:
        take(consumer, 2)
        consumer.commit()
        with pytest.raises(Conflict):
            log.delete_group("readers")
    wait_for(lambda: log.group("readers").state == "empty", 30, "everyone to leave")
    log.delete_group("readers")
    assert log.groups() == []
    with pytest.raises(NotFound):
        log.delete_group("readers")
    with log.consumer("plain", group="readers") as consumer:
        assert take(consumer, 2) == [1, 2]


def test_groups_do_not_disturb_each_other(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2])
    with log.consumer("plain", group="one") as one, log.consumer("plain", group="two") as two:
        assert (take(one, 2), take(two, 2)) == ([1, 2], [1, 2])
        one.commit()
        two.commit({P0: 1})
    assert [log.group(name).lag for name in ("one", "two")] == [0, 1]


def test_a_topic_made_again_does_not_inherit_offsets(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2])
    with log.consumer("plain", group="readers") as consumer:
        take(consumer, 2)
        consumer.commit()
    log.delete_topic("plain")
    log.create_topic(PLAIN)
    put(log, "plain", N=[3])
    with log.consumer("plain", group="readers") as consumer:
        assert take(consumer, 1) == [3]


def test_a_pattern_in_a_group_takes_in_new_topics(log: Log) -> None:
    log.create_topic(replace(PLAIN, name="orders.eu"))
    with log.consumer("orders.*", group="readers", start="latest") as consumer:
        settle(consumer, counts=[1])
        log.create_topic(replace(PLAIN, name="orders.us"))
        put(log, "orders.us", N=[1])
        assert take(consumer, 1) == [1]


def test_committed_offsets_survive_a_restart(place: Place) -> None:
    place.log.create_topic(PLAIN)
    put(place.log, "plain", N=[1, 2, 3])
    with place.log.consumer("plain", group="readers") as consumer:
        take(consumer, 3)
        consumer.commit({P0: 2})
    place.reopen()
    assert [(offset.committed, offset.lag) for offset in place.log.group("readers").offsets] == [(2, 1)]
    with place.log.consumer("plain", group="readers") as consumer:
        assert values(consumer.poll(60)) == [3]


def test_all_partitions_are_read_once_between_two_members(log: Log) -> None:
    log.create_topic(SIX)
    for number in range(6):
        put(log, "plain", number, N=[number * 10, number * 10 + 1])
    first, second = (log.consumer("plain", group="readers") for _ in range(2))
    found: list[int] = []

    def all_read() -> bool:
        for consumer in (first, second):
            found.extend(values(consumer.poll(0.05, max_records=1)))
            consumer.commit()
        return len(found) >= 12

    wait_for(all_read, 60, "twelve records")
    assert sorted(found) == sorted(number * 10 + one for number in range(6) for one in (0, 1))
    for consumer in (first, second):
        consumer.close()
