"""What every queue promises (`log/queues/base.py`), on every log there is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.clock import ManualClock
from headrace.errors import Conflict, DiskFull, Fenced, Gone, NotFound, Refused, UsageError
from headrace.log.base import Append, Log, TopicSpec
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC, bury_spent, create_dead_letters
from headrace.log.queues import Message, Queue, QueueDefinition, Queues
from headrace.log.queues.state import CHUNK, read_state
from headrace.types import BIGINT, VARCHAR, Column
from tests.log.support import open_owner

JOBS = TopicSpec("jobs", (Column("K", VARCHAR),), (Column("N", BIGINT),))


@pytest.fixture(autouse=True)
def topics(request: pytest.FixtureRequest) -> None:
    if "log" in request.fixturenames:
        log: Log = request.getfixturevalue("log")
        create_dead_letters(log)
        log.create_topic(JOBS)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


def send(log: Log, *numbers: int, key: str | None = None, partition: int = 0) -> None:
    batch = pa.record_batch({"K": pa.array([key] * len(numbers), pa.string()), "N": pa.array(numbers, pa.int64())})
    log.append([Append("jobs", batch, partition)]).result()


def open_queue(log: Log, clock: ManualClock, **options: Any) -> Queue:
    queues = Queues(log, clock, bury_spent)
    return queues.create(QueueDefinition("work", "jobs", **options))


def numbers(messages: list[Message]) -> list[int]:
    return [message.event["value"]["n"] for message in messages]


def receipts(messages: list[Message]) -> list[str]:
    return [message.receipt for message in messages]


def letters(log: Log) -> list[dict[str, Any]]:
    return [row for records in log.read(DEAD_LETTERS_TOPIC, 0, 0) for row in records.batch.to_pylist()]


def test_every_message_goes_to_one_receiver_and_is_gone_when_acknowledged(log: Log, clock: ManualClock) -> None:
    send(log, 1, 2, 3)
    queue = open_queue(log, clock)
    first, second = queue.receive(2), queue.receive(2)
    assert (numbers(first), numbers(second), queue.receive(2)) == ([1, 2], [3], [])
    assert [message.deliveries for message in first] == [1, 1]
    assert queue.ack(receipts(first)).done == 2
    clock.advance(31_000)
    again = queue.receive(10)
    assert [(message.event["value"]["n"], message.deliveries) for message in again] == [(3, 2)]


def test_acknowledging_twice_is_fine_and_too_late_is_said(log: Log, clock: ManualClock) -> None:
    send(log, 1, 2)
    queue = open_queue(log, clock)
    [one, two] = queue.receive(2)
    assert (queue.ack([one.receipt]), queue.ack([one.receipt])) == (queue.ack([one.receipt]),) * 2
    clock.advance(31_000)
    [two_again] = queue.receive(2)
    for late in (queue.ack, queue.nack, queue.extend):
        assert late([two.receipt]).lost == (two.receipt,)
    assert queue.ack([two_again.receipt]).done == 1


def test_a_lease_that_ended_still_counts_while_nobody_else_has_the_message(log: Log, clock: ManualClock) -> None:
    send(log, 1)
    queue = open_queue(log, clock)
    [message] = queue.receive()
    clock.advance(60_000)
    assert queue.ack([message.receipt]).done == 1
    assert queue.receive() == []


def test_a_lease_is_extended(log: Log, clock: ManualClock) -> None:
    send(log, 1)
    queue = open_queue(log, clock, lease_s=10)
    [message] = queue.receive(lease_s=5)
    clock.advance(4_000)
    assert queue.extend([message.receipt]).done == 1
    clock.advance(9_000)
    assert queue.receive() == []
    clock.advance(1_000)
    assert numbers(queue.receive()) == [1]


def test_a_refused_message_comes_again_after_its_delay(log: Log, clock: ManualClock) -> None:
    send(log, 1, 2)
    queue = open_queue(log, clock)
    [one, two] = queue.receive(2)
    queue.nack([one.receipt], delay_s=5)
    queue.nack([two.receipt])
    assert numbers(queue.receive(5)) == [2]
    stats = queue.stats()
    assert (stats.ready, stats.leased, stats.delayed, stats.next_due_s) == (0, 1, 1, 5.0)
    clock.advance(5_000)
    assert [(message.event["value"]["n"], message.deliveries) for message in queue.receive(5)] == [(1, 2)]


def test_what_was_delivered_too_often_is_a_dead_letter_with_its_bytes(log: Log, clock: ManualClock) -> None:
    send(log, 7, key="a")
    queue = open_queue(log, clock, max_deliveries=2)
    [message] = queue.receive()
    queue.nack([message.receipt], reason="no such customer")
    [message] = queue.receive()
    assert message.deliveries == 2
    queue.nack([message.receipt], reason="still none")
    assert queue.receive() == []
    [letter] = letters(log)
    assert letter["REASON"] == "delivered 2 times by queue `work` without being acknowledged: still none"
    assert (letter["TOPIC"], letter["SOURCE"], letter["ATTEMPTS"]) == ("jobs", "queue work 0:0", 2)
    assert letter["PAYLOAD"].startswith(b'{"k":"a","n":7,"$time":')
    assert (queue.stats().dead, queue.stats().ready) == (1, 0)


def test_a_lease_that_ends_too_often_is_a_dead_letter_even_if_nobody_receives(log: Log, clock: ManualClock) -> None:
    send(log, 7)
    queue = open_queue(log, clock, max_deliveries=1)
    queue.receive()
    clock.advance(31_000)
    queue.sweep()
    assert "the last time until its lease ended" in letters(log)[0]["REASON"]


def test_a_dead_letter_that_cannot_be_written_is_none_yet(log: Log, clock: ManualClock) -> None:
    full = True

    def bury(spent: Any) -> Append:
        if full:
            raise DiskFull("the disk is full")
        return bury_spent(spent)

    send(log, 7, key="a")
    send(log, 8, key="a")
    queue = Queues(log, clock, bury).create(QueueDefinition("work", "jobs", max_deliveries=1, order="key"))
    queue.receive()
    clock.advance(31_000)
    with pytest.raises(DiskFull):
        queue.receive()
    assert queue.receive() == []
    full = False
    clock.advance(2_000)
    assert numbers(queue.receive(5)) == [8]
    assert len(letters(log)) == 1


def test_everything_is_remembered_over_a_kill(log: Log, clock: ManualClock) -> None:
    """Nothing is written when a process ends, so opening the queues again is what happens after a kill -9."""
    send(log, *range(6))
    queue = open_queue(log, clock, lease_s=20, max_deliveries=2)
    zero, one, two, three, *_ = queue.receive(5)
    queue.ack([zero.receipt, two.receipt])
    queue.nack([one.receipt], delay_s=40)
    clock.advance(15_000)
    queue.extend([three.receipt])
    again = open_queue(log, ManualClock(clock.now_ms()), lease_s=20, max_deliveries=2)
    assert numbers(again.receive(9)) == [5]
    assert again.ack([three.receipt]).done == 1
    later = ManualClock(clock.now_ms() + 6_000)
    again = open_queue(log, later, lease_s=20, max_deliveries=2)
    assert [(message.event["value"]["n"], message.deliveries) for message in again.receive(9)] == [(4, 2)]
    later.advance(100_000)
    assert numbers(again.receive(9)) == [1, 5]
    assert [letter["SOURCE"] for letter in letters(log)] == ["queue work 0:4"]


def test_a_clock_that_was_set_back_hides_nothing_for_ever(log: Log, clock: ManualClock) -> None:
    send(log, 1)
    open_queue(log, clock).receive()
    before = ManualClock(0)
    queue = open_queue(log, before)
    before.advance(13 * 3600 * 1000)
    assert numbers(queue.receive()) == [1]


def test_what_was_given_up_after_a_kill_does_not_come_again(log: Log, clock: ManualClock) -> None:
    send(log, 1)
    open_queue(log, clock).receive()
    queue = open_queue(log, clock)
    clock.advance(31_000)
    [message] = queue.receive()
    queue.ack([message.receipt])
    assert queue.receive() == []


def test_keys_keep_their_order_if_asked(log: Log, clock: ManualClock) -> None:
    send(log, 1, 2, key="a")
    send(log, 3, key="b")
    send(log, 4)
    send(log, 5, key="a")
    queue = open_queue(log, clock, order="key")
    one, three, four = queue.receive(9)
    assert numbers([one, three, four]) == [1, 3, 4]
    queue.nack([one.receipt], delay_s=1)
    assert queue.receive(9) == []
    clock.advance(1_000)
    # Over a kill, too.
    queue = open_queue(log, clock, order="key")
    [one] = queue.receive(9)
    assert numbers([one]) == [1]
    queue.ack([one.receipt])
    [two] = queue.receive(9)
    assert numbers([two]) == [2]
    queue.ack([two.receipt])
    assert numbers(queue.receive(9)) == [5]


def test_state_and_memory_stay_small_however_long_the_topic(log: Log, clock: ManualClock) -> None:
    send(log, *range(3000))
    queue = open_queue(log, clock, max_unsettled=500)
    [stuck, *others] = queue.receive(500)
    assert (len(others), queue.receive(10)) == (499, [])
    queue.ack(receipts(others))
    while messages := queue.receive(100):
        queue.ack(receipts(messages))
    assert (queue.stats().leased, queue.stats().ready) == (1, 0)
    queue.ack([stuck.receipt])
    state = read_state(log)
    assert len([key for key in state if key[0] == "c"]) <= 1
    assert state["f", "work", 0] == str(3000).encode() or int(state["f", "work", 0]) // CHUNK == 3000 // CHUNK
    again = open_queue(log, clock, max_unsettled=500)
    assert again.receive(10) == []


def test_answers_are_bounded_in_bytes(log: Log, clock: ManualClock) -> None:
    send(log, *range(10))
    queue = open_queue(log, clock)
    size = queue.receive()[0].size
    assert numbers(queue.receive(9, max_bytes=int(size * 2.5))) == [1, 2]
    assert numbers(queue.receive(9, max_bytes=1)) == [3]
    assert numbers(queue.receive(9)) == [4, 5, 6, 7, 8, 9]


def test_receivers_compete_and_each_message_is_had_once(log: Log, clock: ManualClock) -> None:
    send(log, *range(400))
    queue = open_queue(log, clock)
    had: list[int] = []
    lock = threading.Lock()

    def work(_: int) -> None:
        while messages := queue.receive(7):
            with lock:
                had.extend(numbers(messages))
            assert queue.ack(receipts(messages)).lost == ()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert sorted(had) == list(range(400))


def test_a_queue_begins_at_the_end_if_asked(log: Log, clock: ManualClock) -> None:
    send(log, 1)
    queue = open_queue(log, clock, start="latest")
    send(log, 2)
    assert numbers(queue.receive(9)) == [2]


def test_queues_are_made_once_listed_and_deleted(log: Log, clock: ManualClock) -> None:
    queues = Queues(log, clock, bury_spent)
    made = queues.create(QueueDefinition("work", "jobs"))
    assert queues.create(QueueDefinition("work", "jobs")) is made
    with pytest.raises(Conflict, match="differs"):
        queues.create(QueueDefinition("work", "jobs", lease_s=5))
    send(log, 1)
    [message] = made.receive()
    queues.delete("work")
    assert (list(queues), list(Queues(log, clock, bury_spent)), read_state(log)) == ([], [], {})
    with pytest.raises(NotFound):
        queues.queue("work")
    other = queues.create(QueueDefinition("work", "jobs"))
    assert other.ack([message.receipt]).lost == (message.receipt,)
    assert queues.over_topic("jobs") == ["work"]


def test_a_topic_that_was_made_again_is_not_the_queue_s(log: Log, clock: ManualClock) -> None:
    queue = open_queue(log, clock)
    log.delete_topic("jobs")
    log.create_topic(JOBS)
    with pytest.raises(Gone, match="was deleted"):
        queue.receive()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: QueueDefinition("no/name", "jobs"), UsageError),
        (lambda: QueueDefinition("w", "jobs", lease_s=0), UsageError),
        (lambda: QueueDefinition("w", "jobs", max_deliveries=-1), UsageError),
        (lambda: QueueDefinition("w", "nothing"), NotFound),
        (lambda: QueueDefinition("w", "_dead_letters"), Refused),
    ],
)
def test_what_cannot_be_a_queue(
    log: Log, clock: ManualClock, make: Callable[[], QueueDefinition], error: type[Exception]
) -> None:
    with pytest.raises(error):
        Queues(log, clock, bury_spent).create(make())


def test_a_message_that_was_given_up_is_not_acknowledged(log: Log, clock: ManualClock) -> None:
    send(log, 1)
    queue = open_queue(log, clock, max_deliveries=1)
    [message] = queue.receive()
    clock.advance(31_000)
    queue.sweep()
    assert queue.ack([message.receipt]).lost == (message.receipt,)


def test_what_is_no_receipt(log: Log, clock: ManualClock) -> None:
    queue = open_queue(log, clock)
    for receipt in ("", "a.b.c.d", "x" * 1000, "1.2.3"):
        with pytest.raises(UsageError, match="not a receipt"):
            queue.ack([receipt])
    assert queue.ack(["abcd.9.9.9"]).lost == ("abcd.9.9.9",)


Step = tuple[str, int]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(["receive", "ack", "nack", "send", "wait", "kill"]), st.integers(0, 5)), max_size=40
    ),
    st.sampled_from(["none", "key"]),
)
def test_whatever_happens_every_message_is_acknowledged_or_dead_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], order: Any
) -> None:
    log = open_owner(tmp_path_factory.mktemp("log"))
    create_dead_letters(log)
    log.create_topic(JOBS)
    clock = ManualClock(1_000_000)
    queue = open_queue(log, clock, max_deliveries=3, order=order, max_unsettled=8)
    sent = 0
    held: list[Message] = []
    acked: list[int] = []
    counts: dict[int, int] = {}

    def receive(limit: int) -> None:
        for message in queue.receive(limit):
            [number] = numbers([message])
            assert number not in acked
            assert message.deliveries == counts.get(number, 0) + 1
            counts[number] = message.deliveries
            held.append(message)

    def ack(message: Message) -> None:
        [number] = numbers([message])
        lost = queue.ack([message.receipt]).lost
        if not lost and number not in acked and number not in dead():
            acked.append(number)

    def dead() -> list[int]:
        return [int(letter["SOURCE"].rpartition(":")[2]) for letter in letters(log)]

    for step, number in steps:
        match step:
            case "send":
                send(log, *range(sent, sent + number), key="ab"[number % 2])
                sent += number
            case "receive":
                receive(number)
            case "ack" if held:
                ack(held.pop(number % len(held)))
            case "nack" if held:
                queue.nack([held.pop(number % len(held)).receipt], delay_s=number)
            case "wait":
                clock.advance(number * 7_000)
            case "kill":
                queue = open_queue(log, clock, max_deliveries=3, order=order, max_unsettled=8)
    for _ in range(4 * sent + 4):
        clock.advance(60_000)
        receive(10)
    buried = dead()
    log.close()
    assert sorted([*buried, *acked]) == list(range(sent))
    assert max(counts.values(), default=0) <= 3


@pytest.mark.needs("servers")
def test_of_two_servers_on_one_log_only_the_last_delivers(log: Log, clock: ManualClock) -> None:
    """The earlier one is told."""
    send(log, 1, 2)
    first = Queues(log, clock, bury_spent)
    first.create(QueueDefinition("work", "jobs"))
    assert numbers(first.queue("work").receive(1)) == [1]
    second = Queues(log, clock, bury_spent)
    clock.advance(31_000)
    with pytest.raises(Fenced, match="another server"):
        first.queue("work")
    with pytest.raises(Fenced):
        first.sweep()
    assert numbers(second.queue("work").receive(5)) == [1, 2]
