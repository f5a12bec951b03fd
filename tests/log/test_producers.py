"""The owner's side of producers: numbers, epochs, answers that survive, memory that does not grow."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import ManualClock
from headrace.errors import Fenced, LogError, NotRunning, OutOfSequence, Overloaded, OwnerLost, UsageError
from headrace.log.base import Appended
from headrace.log.local import LocalClient, LocalLog
from headrace.log.local.desk import OwnerDesk
from headrace.log.local.gather import Run
from headrace.log.local.producer import LocalProducer
from headrace.log.local.producers import FORGET_NAMED_S, FORGET_UNNAMED_S, MOST_UNNAMED, Stamp
from headrace.log.local.walk import PartitionFiles
from tests.log.support import PLAIN, batch, manual_clock, numbers, open_owner
from tests.support import wait_for


def run(*values: int) -> list[Run]:
    return [Run("plain", None, batch(N=list(values)), (len(values),))]


def write(log: LocalLog, stamp: Stamp, *values: int) -> list[Appended]:
    return log.desk.append(run(*values), "all", stamp).result(60)


def test_a_repeat_gets_the_same_answer_also_after_a_restart(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    number, epoch = log.desk.open(None)
    stamps = [Stamp(number, epoch, sequence) for sequence in range(7)]
    answers = [write(log, stamp, sequence, sequence) for sequence, stamp in enumerate(stamps)]
    assert [write(log, stamp, 99) for stamp in stamps[2:]] == answers[2:]
    log.close()
    log = open_owner(tmp_path / "log")
    assert [write(log, stamp, 99) for stamp in stamps[2:]] == answers[2:]
    # What is older than a producer may have in flight is known to be there, not where.
    assert write(log, stamps[0], 99) == []
    assert numbers(log) == [n for n in range(7) for _ in range(2)]
    log.close()


def test_a_repeat_is_recognised_in_the_same_group_too(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log", linger_ms=50)
    log.create_topic(PLAIN)
    number, epoch = log.desk.open(None)
    futures = [log.desk.append(run(1), "all", Stamp(number, epoch, 0)) for _ in range(5)]
    assert {future.result(60)[0].positions for future in futures} == {((0, 0, 0),)}
    assert numbers(log) == [1]
    log.close()


def test_a_gap_is_refused_and_what_was_refused_can_be_sent_again(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    number, epoch = log.desk.open(None)
    write(log, Stamp(number, epoch, 0), 0)
    with pytest.raises(OutOfSequence) as raised:
        write(log, Stamp(number, epoch, 2), 2)
    assert raised.value.data["expected"] == 1
    with pytest.raises(UsageError):
        write(log, Stamp(number, epoch, 1), "no number")  # type: ignore[arg-type]
    write(log, Stamp(number, epoch, 1), 1)
    write(log, Stamp(number, epoch, 2), 2)
    assert numbers(log) == [0, 1, 2]
    log.close()


def test_a_name_keeps_its_epoch_over_restarts_and_shortened_journals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.log.local.journal.MOST_BYTES", 200)
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    number, epoch = log.desk.open("worker")
    answer = write(log, Stamp(number, epoch, 0), 1)
    log.close()
    log = open_owner(tmp_path / "log")
    assert write(log, Stamp(number, epoch, 0), 1) == answer
    assert log.desk.open("worker") == (number, epoch + 1)
    with pytest.raises(Fenced, match="worker"):
        write(log, Stamp(number, epoch, 1), 2)
    assert log.desk.open("another") == (number + 1, 0)
    log.close()


def test_frames_carry_the_write_they_are_of(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    number, epoch = log.desk.open("worker")
    write(log, Stamp(number, epoch, 0), 1, 2)
    log.append([]).result(60)
    write(log, Stamp(number, epoch, 1), 3)
    log.desk.append(run(4), "all", None).result(60)
    places = PartitionFiles(tmp_path / "log" / "topics" / "plain" / "0").frames(0, 4)
    headers = [place.header for place in places]
    assert [(header.producer, header.epoch, header.sequence) for header in headers] == [(1, 0, 0), (1, 0, 1), (0, 0, 0)]
    log.close()


def test_producers_nobody_uses_are_forgotten(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock)
    log.create_topic(PLAIN)
    (nameless, _), (named, _) = log.desk.open(None), log.desk.open("worker")
    write(log, Stamp(nameless, 0, 0), 1)
    clock.advance(int(FORGET_UNNAMED_S * 1000) - 1)
    log.maintain()
    write(log, Stamp(nameless, 0, 1), 2)
    clock.advance(int(FORGET_UNNAMED_S * 1000))
    log.maintain()
    with pytest.raises(Fenced, match="forgotten"):
        write(log, Stamp(nameless, 0, 2), 3)
    write(log, Stamp(named, 0, 0), 4)
    clock.advance(int(FORGET_NAMED_S * 1000))
    log.maintain()
    with pytest.raises(Fenced, match="forgotten"):
        write(log, Stamp(named, 0, 1), 5)
    log.close()
    log = open_owner(tmp_path / "log", clock)
    # Numbers are never given twice, or an old producer could pass for a new one.
    assert log.desk.open("worker") == (named + 1, 0)
    log.close()


def test_a_crowd_of_nameless_producers_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_UNNAMED >= 1000
    monkeypatch.setattr("headrace.log.local.producers.MOST_UNNAMED", 3)
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock)
    log.create_topic(PLAIN)
    log.desk.open("worker")
    for _ in range(5):
        log.desk.open(None)
        clock.advance(1)
    log.maintain()
    write(log, Stamp(1, 0, 0), 1)
    for forgotten in (2, 3):
        with pytest.raises(Fenced):
            write(log, Stamp(forgotten, 0, 0), 2)
    for kept in (4, 5, 6):
        write(log, Stamp(kept, 0, 0), 3)
    log.close()


class TroubledDesk:
    """The owner's desk, with a line to it that has trouble first: each of `troubles` happens to one call, before or
    after the owner takes it."""

    def __init__(self, desk: OwnerDesk, troubles: list[tuple[str, Exception]]) -> None:
        self._desk, self._troubles, self._lock = desk, troubles, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._desk, name)

    def append(self, *given: Any) -> Future[list[Appended]]:
        return self._with_trouble(self._desk.append, *given)

    def commit(self, *given: Any) -> Future[list[Appended]]:
        return self._with_trouble(self._desk.commit, *given)

    def _with_trouble(self, call: Any, *given: Any) -> Future[list[Appended]]:
        with self._lock:
            when, error = self._troubles.pop(0) if self._troubles else ("never", LogError("no trouble"))
        if when == "before":
            raise error
        done: Future[list[Appended]] = call(*given)
        if when == "after":
            done.result(60)
            failed: Future[list[Appended]] = Future()
            failed.set_exception(error)
            return failed
        return done


def trouble() -> list[tuple[str, Exception]]:
    lost, busy, away = OwnerLost("lost"), Overloaded("busy", retry_after=0.01), NotRunning("away")
    return [("after", lost), ("before", busy), ("never", lost), ("after", lost), ("before", away), ("before", busy)] * 5


def test_whatever_the_trouble_each_send_lands_once_in_order(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    troubles = trouble()
    producer = LocalProducer(TroubledDesk(log.desk, troubles), linger_ms=0)
    sent = []
    for number in range(300):
        sent.append(producer.send("plain", batch(N=[number])))
        if number % 10 == 9:
            producer.flush(120)
    producer.close()
    assert [future.result(0).positions for future in sent] == [((0, n, n),) for n in range(300)]
    assert (numbers(log), troubles) == (list(range(300)), [])
    log.close()


def test_whatever_the_trouble_each_transaction_commits_once(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    troubles = trouble()
    with LocalProducer(TroubledDesk(log.desk, troubles), "worker") as producer:
        for number in range(40):
            producer.begin()
            sent = producer.send("plain", batch(N=[number]))
            producer.commit()
            assert sent.result(0).positions == ((0, number, number),)
    assert (numbers(log), troubles) == (list(range(40)), [])
    log.close()


def test_an_idle_producer_that_was_forgotten_goes_on(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock)
    log.create_topic(PLAIN)
    with log.producer(linger_ms=0) as producer:
        producer.send("plain", batch(N=[1])).result(60)
        clock.advance(int(FORGET_UNNAMED_S * 1000))
        log.maintain()
        producer.send("plain", batch(N=[2])).result(60)
    assert numbers(log) == [1, 2]
    log.close()


def test_a_transaction_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    clock = manual_clock()
    log = open_owner(tmp_path / "log", clock)
    log.create_topic(PLAIN)
    with log.producer("worker", transaction_timeout_s=5) as producer:
        for cleaned in (False, True):
            producer.begin()
            for _ in range(3):
                producer.send("plain", batch(N=[1] * 200_000))
            clock.advance(5_001)
            if cleaned:
                log.maintain()
            with pytest.raises(LogError, match=r"too long|completely"):
                producer.commit()
            producer.abort()
        producer.begin()
        producer.send("plain", batch(N=[2]))
        producer.commit()
    assert numbers(log) == [2]
    log.close()


def test_an_owner_that_went_away_breaks_an_open_transaction(tmp_path: Path) -> None:
    owner = open_owner(tmp_path / "log", serve=True)
    client = LocalClient(tmp_path / "log")
    client.create_topic(PLAIN)
    producer = client.producer("worker")
    producer.begin()
    producer.send("plain", batch(N=[1] * 200_000))
    owner.close()
    owner = open_owner(tmp_path / "log", serve=True)
    producer.send("plain", batch(N=[2]))
    with pytest.raises(LogError):
        producer.commit()
    producer.abort()
    producer.begin()
    producer.send("plain", batch(N=[3]))
    producer.commit()
    producer.close()
    assert numbers(client) == [3]
    client.close()
    owner.close()


def test_flush_says_when_it_could_not(tmp_path: Path) -> None:
    owner = open_owner(tmp_path / "log", serve=True)
    client = LocalClient(tmp_path / "log")
    client.create_topic(PLAIN)
    producer = client.producer(linger_ms=0)
    producer.send("plain", batch(N=[1])).result(60)
    owner.close()
    sent = producer.send("plain", batch(N=[2]))
    with pytest.raises(Exception, match="not everything was acknowledged"):
        producer.flush(0.2)
    owner = open_owner(tmp_path / "log", serve=True)
    producer.flush(120)
    assert sent.result(0).positions == ((0, 1, 1),)
    producer.close()
    client.close()
    owner.close()


def test_memory_of_a_producer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too much unanswered, `send` waits until there is room."""
    monkeypatch.setattr("headrace.log.local.sender.BUFFER_BYTES", 1000)
    owner = open_owner(tmp_path / "log", serve=True)
    client = LocalClient(tmp_path / "log")
    client.create_topic(PLAIN)
    producer = client.producer(linger_ms=0)
    producer.send("plain", batch(N=[0])).result(60)
    owner.close()
    sent: list[int] = []

    def send_all() -> None:
        for number in range(1, 20):
            producer.send("plain", batch(N=[number] * 100))
            sent.append(number)

    sender = threading.Thread(target=send_all)
    sender.start()
    wait_for(lambda: len(sent) >= 1, 10, "the first send")
    sender.join(0.3)
    assert len(sent) < 4
    owner = open_owner(tmp_path / "log", serve=True)
    sender.join(120)
    producer.close()
    assert numbers(client) == [0, *(number for number in range(1, 20) for _ in range(100))]
    client.close()
    owner.close()


def test_a_clock_is_not_needed_to_write(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log", ManualClock(0))
    log.create_topic(PLAIN)
    with log.producer() as producer:
        producer.send("plain", batch(N=[1]))
    assert numbers(log) == [1]
    log.close()
