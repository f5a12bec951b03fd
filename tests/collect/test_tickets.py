"""Tickets: requests worked off later, told about over crashes, posted to the caller until it takes them."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import SystemClock
from headrace.collect.base import Outcome, RawEvents
from headrace.collect.decode import EventCollector
from headrace.collect.gate import Arrival
from headrace.collect.tickets import tickets
from headrace.collect.tickets.callbacks import check_callback
from headrace.collect.tickets.lanes import Lane, Lanes
from headrace.collect.tickets.records import TICKETS_TOPIC, Wanted, taken
from headrace.collect.tickets.tickets import Tickets
from headrace.config import CollectSettings
from headrace.errors import DiskFull, HeadraceError, NotFound, Overloaded, Refused, UsageError
from headrace.log.base import Log
from headrace.log.dead_letters import create_dead_letters
from headrace.log.kafka import KafkaLog
from tests.collect.receiver import Receiver, signature_is_right
from tests.kafka import kafka_settings
from tests.log.support import PLAIN, numbers, open_owner, rows
from tests.support import wait_for

SECRET = b"quite secret"


def events(body: str, callback: str | None = None, key: str | None = None) -> tuple[Wanted, bytes]:
    raw = RawEvents("plain", source="test", idempotency_key=key)
    return Wanted(raw, Arrival(address="127.0.0.1"), "", callback), body.encode()


class Desk:
    """A log, and tickets over it that can be let fall as by kill -9."""

    def __init__(self, log: Path | Log, **settings: Any) -> None:
        self.settings = CollectSettings(**settings)
        self.log: Log = open_owner(log) if isinstance(log, Path) else log
        self.log.create_topic(PLAIN)
        create_dead_letters(self.log)
        self.collector = EventCollector(self.log, SystemClock(), self.settings)
        self.before: list[HeadraceError] = []
        self.tickets = self.open()

    def open(self) -> Tickets:
        return Tickets(self.log, self.work, SystemClock(), self.settings, SECRET)

    def work(self, wanted: Wanted, body: bytes) -> Future[Outcome]:
        if self.before:
            raise self.before.pop()
        return self.collector.collect(wanted.read(body, 1_000_000))

    def take(self, *request: Any) -> str:
        return self.tickets.take(*events(*request)).result(120)

    def finished(self, ticket: str) -> Any:
        self.tickets.ledger.watch(ticket).result(60)
        known, result = self.tickets.result(ticket)
        assert result is not None
        return known.state, result

    def close(self) -> None:
        self.tickets.close()
        self.log.close()


def on_kafka(bootstrap: str, folder: Path, prefix: str) -> Log:
    return KafkaLog(kafka_settings(bootstrap, prefix), SystemClock(), ids=folder)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "log", callback_hosts=["127.0.0.1"])
    yield desk
    desk.close()


@pytest.fixture(params=["local", pytest.param("kafka", marks=pytest.mark.slow)])
def any_desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """On either log."""
    if request.param == "local":
        yield request.getfixturevalue("desk")
        return
    log = on_kafka(request.getfixturevalue("kafka"), tmp_path, f"t{uuid.uuid4().hex[:8]}.")
    desk = Desk(log, callback_hosts=["127.0.0.1"])
    yield desk
    desk.close()


def test_a_ticket_says_what_became_of_each_event(any_desk: Desk) -> None:
    desk = any_desk
    state, result = desk.finished(desk.take('[{"N": 1}, {"N": "no number"}, {"N": 2}]'))
    assert (state, result.accepted, result.rejections, result.rejected[0].index) == ("done", 2, 1, 1)
    assert result.positions == [(0, 0, 1)]
    assert numbers(desk.log, "plain", 0) == [1, 2]


def test_sent_again_under_its_key_it_is_taken_once(desk: Desk) -> None:
    first, second = desk.take('{"N": 1}', None, "k"), desk.take('{"N": 1}', None, "k")
    assert (desk.finished(first)[1].accepted, desk.finished(second)[1].duplicates) == (1, 1)


def test_requests_are_worked_off_in_the_order_they_came(desk: Desk) -> None:
    tickets = [desk.tickets.take(*events(f'{{"N": {number}}}')) for number in range(300)]
    for ticket in tickets:
        desk.tickets.ledger.watch(ticket.result(120)).result(60)
    assert numbers(desk.log, "plain", 0) == list(range(300))


def test_what_cannot_be_taken_at_all_has_failed_and_says_why(desk: Desk) -> None:
    wanted, body = events('{"N": 1}')
    gone = Wanted(RawEvents("nowhere"), wanted.arrived)
    state, result = desk.finished(desk.tickets.take(gone, body).result(120))
    assert (state, result.error["code"]) == ("failed", "not_found")
    assert desk.finished(desk.take(""))[1].error["message"] == "the body is empty"


def test_what_fails_for_now_is_tried_until_it_works(desk: Desk) -> None:
    desk.before = [DiskFull("full"), Overloaded("busy")]
    state, result = desk.finished(desk.take('{"N": 7}'))
    assert (state, result.accepted) == ("done", 1)


def sent_by(sender: str, topic: str, number: int) -> tuple[Wanted, bytes]:
    return Wanted(RawEvents(topic, source="test"), Arrival(address=sender), ""), f'{{"N": {number}}}'.encode()


class Broken(Desk):
    """Fails for one topic as nobody thought of: at once, and when it is written."""

    def work(self, wanted: Wanted, body: bytes) -> Future[Outcome]:
        if wanted.events.topic == "at once":
            raise TypeError("a mistake of ours")
        if wanted.events.topic == "later":
            failing: Future[Outcome] = Future()
            failing.set_exception(KeyError("another"))
            return failing
        return super().work(wanted, body)


def test_what_fails_as_nobody_thought_of_has_failed_and_holds_up_nothing(tmp_path: Path) -> None:
    desk = Broken(tmp_path / "log")
    try:
        given = [
            desk.tickets.take(*sent_by("a", topic, 1)).result(120) for topic in ("at once", "plain", "later", "plain")
        ]
        found = [desk.finished(ticket) for ticket in given]
        assert [state for state, _ in found] == ["failed", "done", "failed", "done"]
        assert found[0][1].error["code"] == found[2][1].error["code"] == "internal"
        desk.tickets.close()
        desk.tickets = desk.open()
        assert desk.tickets.waiting() == 0
        assert [desk.finished(ticket) for ticket in given] == found
    finally:
        desk.close()


def test_a_request_that_cannot_be_read_any_more_has_failed_and_holds_up_nothing(desk: Desk) -> None:
    before = desk.take('{"N": 1}')
    desk.finished(before)
    desk.tickets.close()
    damaged, good = taken("damaged", *events('{"N": 2}')), taken("good", *events('{"N": 3}'))
    column = damaged.batch.schema.get_field_index("REQUEST")
    unreadable = damaged.batch.set_column(column, "REQUEST", pa.array(["{"]))
    desk.log.append([replace(damaged, batch=unreadable), good]).result(120)
    desk.tickets = desk.open()
    assert (desk.finished("damaged")[0], desk.finished("good")[0]) == ("failed", "done")


class Limited(Desk):
    """A sender over its quota."""

    over = frozenset({"loud"})

    def work(self, wanted: Wanted, body: bytes) -> Future[Outcome]:
        if wanted.arrived.address in self.over:
            raise Overloaded("over the quota", retry_after=0.01)
        return super().work(wanted, body)


def test_a_sender_over_its_quota_holds_up_nobody_else_and_keeps_its_order(tmp_path: Path) -> None:
    """More of its requests wait than are worked on together, and more come while they do."""
    desk = Limited(tmp_path / "log")
    try:
        loud = [desk.tickets.take(*sent_by("loud", "plain", number)).result(120) for number in range(150)]
        quiet = [desk.tickets.take(*sent_by("quiet", "plain", 1000 + number)).result(120) for number in range(5)]
        assert [desk.finished(ticket)[0] for ticket in quiet] == ["done"] * 5
        wait_for(lambda: desk.tickets.waiting() == 150, 20, "all of the loud one's to wait")
        desk.over = frozenset()
        loud += [desk.tickets.take(*sent_by("loud", "plain", number)).result(120) for number in range(150, 160)]
        assert [desk.finished(ticket)[0] for ticket in loud] == ["done"] * 160
        assert [number for number in numbers(desk.log, "plain", 0) if number < 1000] == list(range(160))
        assert desk.tickets.waiting() == 0
    finally:
        desk.close()


def test_a_sender_over_its_quota_leaves_tickets_for_the_others(tmp_path: Path) -> None:
    desk = Limited(tmp_path / "log", tickets=10)
    try:
        for number in range(5):
            desk.tickets.take(*sent_by("loud", "plain", number)).result(120)
        wait_for(lambda: len(desk.tickets._lanes) == 5, 20, "them to wait")
        with pytest.raises(Overloaded, match="5 tickets are waiting"):
            desk.tickets.take(*sent_by("loud", "plain", 6))
        assert desk.finished(desk.tickets.take(*sent_by("quiet", "plain", 7)).result(120))[0] == "done"
    finally:
        desk.close()


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60), st.integers(1, 3))
def test_a_lane_keeps_its_order_however_often_it_is_held_up(steps: list[tuple[int, bool]], most: int) -> None:
    lanes, now, came, went = Lanes(), 0.0, dict[Lane, list[str]](), dict[Lane, list[str]]()
    for number, (name, works) in enumerate(steps):
        lane, ticket = ("topic", str(name)), str(number)
        came.setdefault(lane, []).append(ticket)
        if lane in lanes:
            lanes.follow(lane, ticket)
        else:
            lanes.hold(lane, [ticket], now, 0.0)
        now += 1.0
        if (tried := lanes.next(now, most)) is not None:
            done = len(tried[1]) if works else len(tried[1]) // 2
            went.setdefault(tried[0], []).extend(tried[1][:done])
            (lanes.go_on(tried[0], [], now) if works else lanes.hold(tried[0], tried[1][done:], now, 0.0))
    while (pause := lanes.pause(now)) is not None:
        now += pause
        lane, tickets = lanes.next(now, most) or (("", ""), [])
        went.setdefault(lane, []).extend(tickets)
        lanes.go_on(lane, [], now)
    assert (went, len(lanes)) == (came, 0)


def test_after_a_crash_what_was_taken_is_done_once(any_desk: Desk) -> None:
    """Crashed before the events were written, and between them and the result."""
    desk = any_desk
    desk.tickets.close()
    stuck, held = threading.Event(), threading.Event()

    def dies(wanted: Wanted, body: bytes) -> Future[Outcome]:
        if b"written" in body:
            desk.work(wanted, body).result(120)
        stuck.set()
        held.wait(600)
        raise Overloaded("the process is gone")

    dying = Tickets(desk.log, dies, SystemClock(), desk.settings, SECRET)
    written = dying.take(*events('{"N": 1, "rest": "written"}')).result(120)
    waiting = dying.take(*events('{"N": 2}')).result(120)
    assert stuck.wait(120)
    desk.tickets = desk.open()
    assert [desk.finished(ticket)[0] for ticket in (written, waiting)] == ["done", "done"]
    first = desk.finished(written)[1]
    assert (first.accepted + first.duplicates, first.repeated) == (1, True)
    assert numbers(desk.log, "plain", 0) == [1, 2]
    held.set()
    dying.close()
    assert numbers(desk.log, "plain", 0) == [1, 2]


@pytest.mark.slow
def test_any_server_knows_a_ticket_and_does_what_another_left_undone(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = f"t{uuid.uuid4().hex[:8]}."
    one, two = (Desk(on_kafka(kafka, tmp_path / name, prefix)) for name in ("one", "two"))
    try:
        ticket = one.take('{"N": 1}')
        assert two.finished(ticket)[1].accepted == 1
        one.before = [DiskFull("full")] * 1000
        left = one.take('{"N": 2}')
        monkeypatch.setattr(tickets, "ADOPT_S", 0.5)
        done = two.finished(left)[1]
        assert done.accepted + done.duplicates == 1
        one.before = []
        assert one.finished(left)[1] == done, "the first result counts"
        assert numbers(one.log, "plain", 0) == [1, 2]
    finally:
        one.close()
        two.close()


def test_tickets_are_bounded_and_expire(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "log", tickets=3)
    try:
        tickets = []
        for number in range(5):
            tickets.append(desk.take(f'{{"N": {number}}}'))
            desk.finished(tickets[-1])
        desk.take('{"N": 6}')
        with pytest.raises(NotFound):
            desk.tickets.ledger.state(tickets[0])
        with pytest.raises(NotFound):
            desk.tickets.ledger.state("none")
    finally:
        desk.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver(500, 302)
    yield receiver
    receiver.close()


def test_a_result_is_posted_until_the_caller_takes_it(desk: Desk, receiver: Receiver) -> None:
    """It fails, then sends us elsewhere, which is not followed, then takes it."""
    ticket = desk.take('{"N": 1}', receiver.url)
    wait_for(lambda: desk.tickets.ledger.state(ticket).state == "delivered", 20, "the callback")
    assert len(receiver.got) == 3
    assert all(signature_is_right(SECRET, *got) for got in receiver.got)
    told = json.loads(receiver.got[-1][0])
    assert (told["ticket"], told["state"], told["accepted"]) == (ticket, "done", 1)
    assert (told["duplicates"], told["rejections"], told["rejected"], told["error"]) == (0, 0, [], None)
    _, result = desk.tickets.result(ticket)
    assert result is not None
    assert (result.callback.attempts, result.callback.error) == (3, None)  # type: ignore[union-attr]


def test_a_callback_that_was_not_over_is_made_after_a_restart(any_desk: Desk, receiver: Receiver) -> None:
    desk = any_desk
    receiver.answers = [503] * 1000
    ticket = desk.take('{"N": 1}', receiver.url)
    wait_for(lambda: bool(receiver.got), 20, "the first attempt")
    desk.tickets.close()
    receiver.answers = []
    desk.tickets = desk.open()
    wait_for(lambda: desk.tickets.ledger.state(ticket).state == "delivered", 20, "the callback")
    desk.tickets.close()
    known = len(receiver.got)
    desk.tickets = desk.open()
    assert desk.tickets.ledger.state(ticket).state == "delivered"
    assert len(receiver.got) == known


def test_a_callback_nobody_takes_is_given_up_with_the_ticket(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [503] * 1000
    desk = Desk(tmp_path / "log", callback_hosts=["127.0.0.1"], ticket_hours=0.5 / 3600)
    try:
        ticket = desk.take('{"N": 1}', receiver.url)
        wait_for(lambda: "undelivered" in states(desk, ticket), 20, "giving up")
        assert "delivered" not in states(desk, ticket)
        assert receiver.got, "it was tried"
    finally:
        desk.close()


def states(desk: Desk, ticket: str) -> list[str]:
    return [row["STATE"] for row in rows(desk.log, TICKETS_TOPIC) if row["TICKET"] == ticket]


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://127.0.0.1:9000/x", None),
        ("https://hooks.example.com/x?y=z", None),
        ("http://hooks.example.com:8080/x", Refused),
        ("http://127.0.0.2/x", Refused),
        ("http://2130706433/x", Refused),
        ("http://[::1]/x", Refused),
        ("http://127.0.0.1@evil.example/x", UsageError),
        ("http://hooks.example.com.evil.example/", Refused),
        ("http://evil.example#@127.0.0.1:9000/", Refused),
        ("http://evil.example\\@127.0.0.1:9000/", (Refused, UsageError)),
        ("file:///etc/passwd", UsageError),
        ("gopher://127.0.0.1:9000/", UsageError),
        ("//127.0.0.1:9000/", UsageError),
        ("http:///x", UsageError),
        ("http://127.0.0.1:9000/\r\nHost: x", UsageError),
        ("x" * 100_000, UsageError),
    ],
)
def test_results_go_only_where_the_project_says(url: str, error: Any) -> None:
    hosts = ["127.0.0.1:9000", "hooks.example.com:443"]
    if error is None:
        assert check_callback(url, hosts) == url
    else:
        with pytest.raises(error):
            check_callback(url, hosts)


def test_without_hosts_there_are_no_callbacks(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "log")
    try:
        with pytest.raises(Refused, match="not allowed"):
            desk.take('{"N": 1}', "http://127.0.0.1/")
        assert desk.tickets.waiting() == 0
    finally:
        desk.close()
