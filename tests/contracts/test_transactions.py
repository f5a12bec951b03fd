"""A producer's transactions: several topics and a group's offsets, all or nothing."""

from __future__ import annotations

from contextlib import suppress

import pytest

from headrace.errors import Fenced, HeadraceError, UsageError
from headrace.log.base import Log, Producer, TopicPartition
from tests.contracts.logs import Place
from tests.contracts.test_consumers import take
from tests.log.support import PLAIN, VIEWS, batch, numbers, put

IN = TopicPartition("plain", 0)


def test_a_transaction_appears_as_a_whole(log: Log) -> None:
    log.create_topic(PLAIN)
    log.create_topic(VIEWS)
    with log.producer("worker") as producer:
        producer.begin()
        first = producer.send("plain", batch(N=[1, 2]))
        second = producer.send("pageviews", batch(USERID=["a"], N=[3]), 1)
        assert not first.done()
        assert numbers(log) == []
        producer.commit()
        assert (first.result(0).positions, second.result(0).positions) == (((0, 0, 1),), ((1, 0, 0),))
    assert (numbers(log), numbers(log, "pageviews", 1)) == ([1, 2], [3])


def test_an_aborted_transaction_is_never_read(log: Log) -> None:
    log.create_topic(PLAIN)
    with log.producer("worker") as producer:
        producer.begin()
        lost = producer.send("plain", batch(N=[1]))
        producer.abort()
        with pytest.raises(HeadraceError, match="abort"):
            lost.result(0)
        producer.begin()
        producer.send("plain", batch(N=[2]))
        producer.commit()
    assert numbers(log) == [2]


def test_what_is_counted_is_records_or_called_offsets_and_lag_ends(log: Log) -> None:
    log.create_topic(PLAIN)
    with log.producer("worker") as producer:
        for number in range(3):
            producer.begin()
            producer.send("plain", batch(N=[-number] * 2))
            producer.abort()
            producer.begin()
            producer.send("plain", batch(N=[number]))
            producer.commit()
    stats = log.stats("plain")
    [ends] = stats.partitions
    assert stats.records == (3 if "counted" in log.capabilities else ends.end - ends.start)
    log.reset_group("readers", {IN: 0})
    assert log.group("readers").lag == 3
    with log.consumer("plain", group="readers") as consumer:
        assert take(consumer, 3) == [0, 1, 2]
        # As those do who commit what they were given: behind it is the mark of the last transaction.
        last = [offset for records in log.read("plain", 0, 0) for offset in records.each_offset()][-1]
        consumer.commit({IN: last + 1})
    assert log.group("readers").lag == 0


def write_and_commit(producer: Producer) -> None:
    for _ in range(100):
        producer.send("plain", batch(N=[2] * 50))
    producer.commit()


def test_who_is_fenced_in_the_middle_of_writing_is_told_so(log: Log) -> None:
    log.create_topic(PLAIN)
    for _ in range(3):
        first = log.producer("worker")
        first.begin()
        first.send("plain", batch(N=[1]))
        with log.producer("worker"), pytest.raises(Fenced):
            write_and_commit(first)
        with suppress(Fenced):
            first.close()
    assert numbers(log) == []


def test_large_transactions_and_plain_sends_take_turns(log: Log) -> None:
    rows = 20_000 if "arrival" in log.capabilities else 1_000
    log.create_topic(PLAIN)
    with log.producer("worker") as producer:
        for turn in range(3):
            producer.send("plain", batch(N=[-turn]))
            producer.begin()
            for part in range(20):
                producer.send("plain", batch(N=[turn * 1000 + part] * rows))
            producer.commit()
    found = numbers(log)
    assert len(found) == 3 * (1 + 20 * rows)
    assert found == [
        n for turn in range(3) for n in [-turn, *(turn * 1000 + i for i in range(20) for _ in range(rows))]
    ]


def test_offsets_are_committed_with_the_transaction(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2, 3])
    with log.producer("worker") as producer:
        producer.begin()
        producer.send_offsets("readers", {IN: 2})
        producer.abort()
        assert "readers" not in log.groups() or log.group("readers").offsets == ()
        producer.begin()
        producer.send_offsets("readers", {IN: 2})
        producer.commit()
    [offset] = log.group("readers").offsets
    assert (offset.at, offset.committed, offset.lag) == (IN, 2, 1)


def test_until_then_the_offsets_from_before_hold(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2])
    log.reset_group("readers", {IN: 1})
    with log.producer("worker") as producer:
        producer.begin()
        producer.send("plain", batch(N=[3]))
        producer.send_offsets("readers", {IN: 2})
        assert [offset.committed for offset in log.group("readers").offsets] == [1]
        producer.commit()
    assert [offset.committed for offset in log.group("readers").offsets] == [2]


@pytest.mark.needs("unheld")
def test_an_open_transaction_holds_nobody_up(log: Log) -> None:
    log.create_topic(PLAIN)
    with log.producer("worker") as producer:
        producer.begin()
        producer.send("plain", batch(N=[1]))
        put(log, "plain", N=[2])
        assert numbers(log) == [2]
        producer.commit()
    assert numbers(log) == [2, 1]


def test_a_former_producers_transaction_is_over(log: Log) -> None:
    log.create_topic(PLAIN)
    first = log.producer("worker")
    first.begin()
    first.send("plain", batch(N=[1]))
    with log.producer("worker") as second:
        with pytest.raises(Fenced):
            first.commit()
        second.begin()
        second.send("plain", batch(N=[2]))
        second.commit()
    assert numbers(log) == [2]


def test_transactions_need_a_name_and_an_order(log: Log) -> None:
    log.create_topic(PLAIN)
    with log.producer() as nameless, pytest.raises(UsageError, match="name"):
        nameless.begin()
    with log.producer("worker") as producer:
        for wrong in (producer.commit, producer.abort, lambda: producer.send_offsets("g", {IN: 1})):
            with pytest.raises(UsageError):
                wrong()
        producer.begin()
        with pytest.raises(UsageError):
            producer.begin()
        producer.commit()


def test_closing_aborts(log: Log) -> None:
    log.create_topic(PLAIN)
    with log.producer("worker") as producer:
        producer.begin()
        producer.send("plain", batch(N=[1]))
    assert numbers(log) == []


def test_what_does_not_fit_breaks_the_transaction_and_nothing_else(log: Log) -> None:
    log.create_topic(PLAIN)
    with log.producer("worker") as producer:
        producer.begin()
        producer.send("plain", batch(N=[1]))
        producer.send("plain", batch(X=["wrong"]))
        with pytest.raises(HeadraceError):
            producer.commit()
        producer.abort()
        producer.begin()
        producer.send("plain", batch(N=[2]))
        producer.commit()
    assert numbers(log) == [2]


def test_read_process_write_exactly_once(place: Place) -> None:
    """Killed after any step and started again, each number is doubled once."""
    log = place.log
    log.create_topic(PLAIN)
    log.create_topic(VIEWS)
    put(log, "plain", N=list(range(100)))
    for attempt in range(30):
        consumer = log.consumer("plain", group="doubling")
        producer = log.producer("doubling")
        crash = attempt % 3
        # Whoever finds nothing is done, once all is there: before, the group may take its time.
        while records := consumer.poll(60 if len(numbers(log, "pageviews", 0)) < 100 else 0.3, max_records=7):
            producer.begin()
            for one in records:
                read = one.batch.column("N").to_pylist()
                producer.send("pageviews", batch(USERID=[str(n) for n in read], N=[2 * n for n in read]), 0)
            producer.send_offsets("doubling", {IN: records[-1].next_offset}, consumer)
            if crash == 0 and records[0].first_offset % 2:
                break  # before the commit
            producer.commit()
            if crash == 1:
                break  # after it
        consumer.close()
        producer.close()
        if not records:
            break
    assert numbers(log, "pageviews", 0) == [2 * n for n in range(100)]
    assert log.group("doubling").lag == 0


@pytest.mark.needs("evict")
def test_a_member_that_lost_its_partition_cannot_commit_it(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2, 3])
    consumer = log.consumer("plain", group="readers")
    [records] = consumer.poll(60)
    log.reset_group("readers", {IN: 0}, force=True)
    with log.producer("worker") as producer:
        producer.begin()
        producer.send("plain", batch(N=[4]))
        producer.send_offsets("readers", {IN: records.next_offset}, consumer)
        with pytest.raises(Fenced):
            producer.commit()
    assert numbers(log) == [1, 2, 3]
    consumer.close()


@pytest.mark.needs("event-ids")
def test_a_transaction_leaves_out_ids_that_are_known(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1], id_=["a"])
    with log.producer("worker") as producer:
        producer.begin()
        producer.send("plain", batch(N=[2], id_=["b"]))
        producer.abort()
        producer.begin()
        sent = [
            producer.send("plain", batch(N=[3, 4], id_=["a", "b"])),
            producer.send("plain", batch(N=[5], id_=["b"])),
        ]
        producer.commit()
        assert [one.result(30).duplicates for one in sent] == [(0,), (0,)]
        assert producer.send("plain", batch(N=[6], id_=["b"])).result(30).duplicates == (0,)
    assert put(log, "plain", N=[7, 8], id_=["b", "c"]).duplicates == (0,)
    assert numbers(log) == [1, 4, 8]
