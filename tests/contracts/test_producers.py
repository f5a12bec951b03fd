"""Producers: batches that land once, in order, whatever happens on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import Fenced, HeadraceError, NotFound, UsageError
from headrace.log.base import Log
from tests.contracts.logs import Place
from tests.log.support import PLAIN, VIEWS, batch, numbers, rows


def test_what_was_sent_is_there_after_a_flush(log: Log) -> None:
    log.create_topic(PLAIN)
    with log.producer() as producer:
        sent = [producer.send("plain", batch(N=[number])) for number in range(100)]
        producer.flush()
        assert [one.result(0).positions for one in sent] == [((0, number, number),) for number in range(100)]
    assert numbers(log) == list(range(100))


def test_closing_flushes(log: Log) -> None:
    log.create_topic(PLAIN)
    with log.producer(linger_ms=10_000) as producer:
        producer.send("plain", batch(N=[1, 2, 3]))
    assert numbers(log) == [1, 2, 3]


def test_each_send_gets_the_places_of_its_rows(log: Log) -> None:
    log.create_topic(VIEWS)
    with log.producer() as producer:
        sent = [producer.send("pageviews", batch(USERID=[f"u{n}", f"v{n}"], N=[n, n])) for n in range(50)]
        producer.flush()
    found = {(row["partition"], row["offset"]): row for row in rows(log, "pageviews")}
    for n, future in enumerate(sent):
        places = [(p, offset) for p, first, last in future.result(0).positions for offset in range(first, last + 1)]
        assert sorted(found[place]["USERID"] for place in places) == [f"u{n}", f"v{n}"]


def test_partitions_chosen_by_key_and_by_hand_keep_the_order_of_the_calls(log: Log) -> None:
    log.create_topic(replace(VIEWS, partitions=3))
    with log.producer(linger_ms=50) as producer:
        for n in range(60):
            producer.send("pageviews", batch(USERID=["one key"], N=[n]), [None, 0, 1, 2][n % 4])
    for number in range(3):
        found = numbers(log, "pageviews", number)
        assert found == sorted(found)
    assert sorted(n for number in range(3) for n in numbers(log, "pageviews", number)) == list(range(60))


def test_one_batch_that_does_not_fit_fails_nobody_elses(log: Log) -> None:
    log.create_topic(PLAIN)
    producer = log.producer(linger_ms=50)
    good, wrong, missing, last = (
        producer.send("plain", batch(N=[1])),
        producer.send("plain", batch(N=["text"])),
        producer.send("nowhere", batch(N=[2])),
        producer.send("plain", batch(N=[3])),
    )
    with pytest.raises(HeadraceError):
        producer.flush()
    with pytest.raises(UsageError, match="N"):
        wrong.result(0)
    with pytest.raises(NotFound, match="nowhere"):
        missing.result(0)
    assert (good.result(0).positions, last.result(0).positions) == (((0, 0, 0),), ((0, 1, 1),))
    producer.close()
    assert numbers(log) == [1, 3]


@pytest.mark.parametrize("acks", ["0", "1"])
def test_with_less_acks_it_is_written_all_the_same(log: Log, acks: str) -> None:
    log.create_topic(PLAIN)
    with log.producer(acks=acks) as producer:  # type: ignore[arg-type]
        sent = [producer.send("plain", batch(N=[number])) for number in range(20)]
    assert [one.result(0).positions for one in sent] == [()] * 20
    end = log.snapshot()
    while end.ends["plain"][0].end < 20:
        end = log.wait(end.arrival, 10)
    assert numbers(log) == list(range(20))


def test_other_acks_of_a_producer_are_refused(log: Log) -> None:
    with pytest.raises(UsageError, match="acks"):
        log.producer(acks="2")  # type: ignore[arg-type]


def test_a_name_belongs_to_the_newest(log: Log) -> None:
    log.create_topic(PLAIN)
    first = log.producer("worker")
    first.send("plain", batch(N=[1])).result(60)
    second = log.producer("worker")
    second.send("plain", batch(N=[2])).result(60)
    with pytest.raises(Fenced, match="worker"):
        first.send("plain", batch(N=[3])).result(60)
    with pytest.raises(Fenced):
        first.send("plain", batch(N=[4])).result(60)
    second.send("plain", batch(N=[5])).result(60)
    second.close()
    assert numbers(log) == [1, 2, 5]


def test_a_producer_goes_on_after_a_restart_of_the_log(place: Place) -> None:
    place.log.create_topic(PLAIN)
    producer = place.log.producer("worker")
    producer.send("plain", batch(N=[1])).result(60)
    place.reopen()
    if place.owner_is_log:
        producer = place.log.producer("worker")
    producer.send("plain", batch(N=[2])).result(60)
    producer.close()
    assert numbers(place.log) == [1, 2]


@pytest.mark.needs("event-ids")
def test_duplicates_are_told_to_the_send_they_are_of(log: Log) -> None:
    log.create_topic(PLAIN)
    with log.producer(linger_ms=50) as producer:
        sent = [
            producer.send("plain", batch(N=[1, 2, 3], id_=["a", "b", "a"])),
            producer.send("plain", batch(N=[4, 5], id_=["b", "c"])),
            producer.send("plain", batch(N=[6], id_=["a"])),
            producer.send("plain", batch(N=[7], id_=[None])),
        ]
        producer.flush()
    answers = [one.result(30) for one in sent]
    stored = [sum(last - first + 1 for _, first, last in answer.positions) for answer in answers]
    assert list(zip(stored, [answer.duplicates for answer in answers], strict=True)) == [
        (2, (2,)),
        (1, (0,)),
        (0, (0,)),
        (1, ()),
    ]
    assert numbers(log) == [1, 2, 5, 7]
