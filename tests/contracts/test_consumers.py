"""Consumers: where they begin, what they give, when they wait."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import replace

import pytest

from headrace.errors import NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import Consumer, Log, Records, TopicPartition
from tests.log.support import PLAIN, VIEWS, put
from tests.support import wait_for

P0 = TopicPartition("plain", 0)


def values(polled: Iterable[Records]) -> list[int]:
    return [n for records in polled for n in records.batch.column("N").to_pylist()]


def take(consumer: Consumer, count: int) -> list[int]:
    """Poll until there are so many."""
    found: list[int] = []

    def enough() -> bool:
        found.extend(values(consumer.poll(0.2)))
        return len(found) >= count

    wait_for(enough, 30, f"{count} records")
    return found


def test_it_reads_from_the_beginning_and_on(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2])
    with log.consumer("plain") as consumer:
        assert take(consumer, 2) == [1, 2]
        put(log, "plain", N=[3])
        assert (take(consumer, 1), consumer.position(P0)) == ([3], 3)
        assert consumer.poll(0) == []


def test_it_reads_what_is_new(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    with log.consumer("plain", start="latest") as consumer:
        consumer.poll(0)
        put(log, "plain", N=[2])
        assert take(consumer, 1) == [2]


def test_a_long_poll_ends_with_the_first_record(log: Log) -> None:
    log.create_topic(PLAIN)
    with log.consumer("plain") as consumer:
        consumer.poll(0)
        writer = threading.Timer(0.05, put, (log, "plain"), {"N": [1]})
        writer.start()
        assert values(consumer.poll(30)) == [1]
        writer.join()


def test_a_poll_gives_no_more_than_asked_for(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=list(range(100)))
    with log.consumer("plain") as consumer:
        polled: list[int] = []
        while len(polled) < 100:
            found = values(consumer.poll(60, max_records=7))
            assert 1 <= len(found) <= 7
            polled += found
    assert polled == list(range(100))


def test_every_partition_gets_its_turn(log: Log) -> None:
    log.create_topic(VIEWS)
    for number in range(2):
        put(log, "pageviews", number, USERID=["u"] * 1000, N=[number] * 1000)
    seen: set[int] = set()
    with log.consumer("pageviews") as consumer:
        polls = 0
        while len(seen) < 2 and polls < 20:
            seen.update(values(consumer.poll(60, max_records=10)))
            polls += 1
    assert seen == {0, 1}


def test_seek_and_position(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=list(range(10)), time_=[100 * n for n in range(10)])
    with log.consumer("plain") as consumer:
        assert len(take(consumer, 10)) == 10
        consumer.seek(P0, 8)
        assert take(consumer, 2) == [8, 9]
        consumer.seek(P0, "earliest")
        assert consumer.position(P0) == 0
        consumer.seek(P0, "latest")
        assert consumer.position(P0) == 10
        consumer.seek_to_time(701)
        assert take(consumer, 2) == [8, 9]
        with pytest.raises(UsageError, match="not assigned"):
            consumer.seek(TopicPartition("plain", 7), 0)


def test_what_is_paused_waits(log: Log) -> None:
    log.create_topic(VIEWS)
    places = [TopicPartition("pageviews", number) for number in range(2)]
    with log.consumer("pageviews") as consumer:
        consumer.poll(0.3)
        consumer.pause(places[:1])
        for number in range(2):
            put(log, "pageviews", number, USERID=["u"], N=[number])
        assert take(consumer, 1) == [1]
        assert consumer.poll(0.2) == []
        consumer.resume(places[:1])
        assert take(consumer, 1) == [0]


def test_some_columns(log: Log) -> None:
    log.create_topic(VIEWS)
    put(log, "pageviews", 1, USERID=["u"], N=[5], time_=[77])
    with log.consumer("pageviews", columns=["$time", "N"]) as consumer:
        [records] = consumer.poll(60)
    assert (records.batch.to_pylist(), records.partition) == ([{"$time": 77, "N": 5}], 1)


@pytest.mark.parametrize(
    "pattern", ["orders.*", re.compile(r"orders\..+"), ["other", "orders.*"]], ids=["wildcard", "regex", "mixed"]
)
def test_patterns_take_in_topics_made_later(log: Log, pattern: str) -> None:
    for name in ("orders.eu", "other", "orders", "_orders.own"):
        log.create_topic(replace(PLAIN, name=name))
        put(log, name, N=[1])
    with log.consumer(pattern, start="latest") as consumer:
        consumer.poll(0.2)
        log.create_topic(replace(PLAIN, name="orders.us"))
        put(log, "orders.us", N=[2])
        assert take(consumer, 1) == [2]
        put(log, "orders.eu", N=[3])
        assert take(consumer, 1) == [3]
        assert {at.topic for at in consumer.assignment()} - {"other"} == {"orders.eu", "orders.us"}


def test_a_deleted_topic_is_left_and_made_again_is_another(log: Log) -> None:
    log.create_topic(PLAIN)
    log.create_topic(VIEWS)
    put(log, "plain", N=[1, 2, 3])
    with log.consumer(["plain", "pageviews"]) as consumer:
        assert take(consumer, 3) == [1, 2, 3]
        log.delete_topic("plain")
        put(log, "pageviews", 0, USERID=["u"], N=[4])
        assert take(consumer, 1) == [4]
        log.create_topic(PLAIN)
        put(log, "plain", N=[5])
        assert take(consumer, 1) == [5]


def test_a_topic_has_to_be_there_if_it_is_named(log: Log) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        log.consumer("nowhere")
    for wrong in (["a b"], [], ["plain", "a/b"]):
        with pytest.raises(UsageError):
            log.consumer(wrong)


def test_deleted_records_are_out_of_range(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=list(range(10)))
    with log.consumer("plain") as consumer:
        consumer.poll(5, max_records=2)
        assert log.delete_records("plain", 0, 6) == 6
        # What was fetched ahead may still be given; this is where it is now.
        consumer.seek(P0, 2)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange):
                wait_for(lambda: consumer.poll(0.2) is None, 30, "an error")
        consumer.seek(P0, "earliest")
        assert take(consumer, 4) == [6, 7, 8, 9]


@pytest.mark.parametrize(("choice", "expected"), [("earliest", [6, 7, 8, 9, 10]), ("latest", [10])])
def test_a_consumer_that_was_overtaken_goes_on_where_it_was_told(log: Log, choice: str, expected: list[int]) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=list(range(10)))
    with log.consumer("plain", out_of_range=choice) as consumer:  # type: ignore[arg-type]
        consumer.poll(5, max_records=2)
        log.delete_records("plain", 0, 6)
        consumer.seek(P0, 2)
        found: list[int] = []

        def at_the_end() -> bool:
            found.extend(values(consumer.poll(0.2)))
            return consumer.position(P0) == 10

        # Not before it has learnt where to go on: for `latest` that would be behind it.
        wait_for(at_the_end, 30, "the end")
        put(log, "plain", N=[10])
        assert found + take(consumer, 1) == expected


def test_without_a_group_there_is_nothing_to_commit_to(log: Log) -> None:
    log.create_topic(PLAIN)
    with log.consumer("plain") as consumer, pytest.raises(UsageError, match="group"):
        consumer.commit({P0: 1})
