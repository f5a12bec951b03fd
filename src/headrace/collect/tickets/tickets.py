"""Half-asynchronous: a request is taken durably and answered with a ticket; what became of it is told later.

A ticket that was given out is a promise. The request is in the log before the ticket is given; events get ids from it,
so that doing it again after a crash doubles nothing; the result is in the log before anybody is told.

Where several servers share a log, each works off what it took, and any can be asked: what the others write about their
tickets is read when it is needed. What one has left undone for long, the others do. The first result counts.

What cannot be done now is tried again, and those of the same sender for the same topic wait behind it (`lanes`). What
fails in a way that nobody thought of has failed: it holds up nothing.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

import msgspec

from headrace.clock import Clock
from headrace.collect.base import Outcome
from headrace.collect.tickets.callbacks import Callbacks, Delivery, check_callback
from headrace.collect.tickets.lanes import PAUSE_S, Lane, Lanes
from headrace.collect.tickets.ledger import Known, Ledger
from headrace.collect.tickets.outcomes import PASSING, Again, Started, result_of
from headrace.collect.tickets.records import (
    Callback,
    Result,
    State,
    Wanted,
    finished,
    lane_of,
    read_result,
    read_wanted,
    spec,
    taken,
)
from headrace.config import CollectSettings
from headrace.errors import Conflict, HeadraceError, Overloaded, Refused
from headrace.log.base import Appended, Log

logger = logging.getLogger("headrace.tickets")

AT_ONCE = 64
"""Requests that are worked on together: they share a sync, and so do their results."""
MOST_BYTES = 64 * 1024 * 1024
"""About how many bytes of bodies are worked on together."""
LOOK_S = 0.5
"""How often somebody who waits for another server's ticket has it looked for."""
ADOPT_S = 60.0
"""After so long, what another server has not done is done here; so often it is looked for."""

Work = Callable[[Wanted, bytes], Future[Outcome]]
"""Collects a request: the very thing that a synchronous one goes through."""


class Tickets:
    """Takes requests, works them off in order in a thread of its own, and knows what became of each."""

    def __init__(self, log: Log, work: Work, clock: Clock, settings: CollectSettings, secret: bytes | None) -> None:
        self._log, self._work, self._clock, self._settings = log, work, clock, settings
        self.ledger = Ledger(log, clock, settings)
        self._queue: deque[str] = deque()
        self._lanes = Lanes()
        self._lanes_turn = False
        self._mine: set[str] = set()
        """What waits here, or is being worked on."""
        self._repeated: set[str] = set()
        self._shared = "servers" in log.capabilities
        self._looked = clock.monotonic()
        self._lock = threading.Condition()
        self._stopping = False
        self._made = False
        self._callbacks = None if secret is None else Callbacks(secret, settings.callback_seconds, clock, self._called)
        self._recover()
        self._thread = threading.Thread(target=self._run, name="headrace-tickets", daemon=True)
        self._thread.start()

    # Taking

    def take(self, wanted: Wanted, body: bytes) -> Future[str]:
        """The ticket, once the request is durable."""
        self.ledger.forget()
        self._check(wanted)
        self._make_topic()
        ticket = secrets.token_urlsafe(18)
        given: Future[str] = Future()
        with self._lock:
            # Appended and queued in one order, so that events of one client keep theirs.
            appended = self._log.append([taken(ticket, wanted, body)])
            self.ledger.add(ticket)
            self._queue.append(ticket)
            self._mine.add(ticket)

        def stored(done: Future[list[Appended]]) -> None:
            error = done.exception()
            with self._lock:
                if error is None:
                    [(_, offset, _)] = done.result()[0].positions
                    self.ledger.stored(ticket, offset)
                else:
                    self.ledger.drop(ticket)
                    self._mine.discard(ticket)
                self._lock.notify_all()
            if error is None:
                given.set_result(ticket)
            else:
                given.set_exception(error)

        appended.add_done_callback(stored)
        return given

    @property
    def possible(self) -> bool:
        return "event-ids" in self._log.capabilities

    def _check(self, wanted: Wanted) -> None:
        if not self.possible:
            raise Refused(
                "tickets need a log that knows event ids: work that is done again after a crash would double",
                hint="send without `wait=ticket`",
            )
        if wanted.callback is not None:
            check_callback(wanted.callback, self._settings.callback_hosts)
        if wanted.callback is not None and self._callbacks is None:
            raise Refused(
                "callbacks need a secret to sign with",
                hint=f"set the environment variable {self._settings.callback_secret_env}",
            )
        with self._lock:
            waiting, of_sender = self.waiting(), self._lanes.waiting(lane_of(wanted))
        # One sender that is held up leaves room for the others.
        if waiting >= self._settings.tickets or of_sender * 2 >= self._settings.tickets:
            raise Overloaded(f"{waiting} tickets are waiting already", retry_after=1.0)

    def _make_topic(self) -> None:
        if not self._made:
            wanted = spec(self._settings.ticket_hours)
            try:
                self._log.create_topic(wanted)
            except Conflict:
                self._log.alter_topic(wanted)
            self._made = True

    # Knowing

    def waiting(self) -> int:
        """Requests that are yet to be worked on."""
        return len(self._queue) + len(self._lanes)

    def calling(self) -> int:
        """Results that are yet to be taken by their callers."""
        return 0 if self._callbacks is None else self._callbacks.waiting()

    def result(self, ticket: str) -> tuple[Known, Result | None]:
        """Reads the log once there is one."""
        known = self.ledger.state(ticket)
        return known, None if known.state == "waiting" else read_result(self._log, known.offset)

    # Working

    def _run(self) -> None:
        pause = threading.Event()
        while (work := self._next()) is not None:
            lane, batch = work
            if self._shared:
                self._look_around()
            waiting = self._not_done(batch)
            try:
                self._do(waiting, lane)
            except Exception:
                logger.exception("cannot work on tickets now; trying again")
                with self._lock:
                    self._repeated.update(waiting)
                    self._put_back(waiting, lane)
                pause.wait(PAUSE_S)

    def _next(self) -> tuple[Lane | None, list[str]] | None:
        """Requests that are durable, in the order they came: of a lane that was held up, or of all. None of them where
        others work too, and it is time to look."""
        with self._lock:
            while not self._stopping:
                self._lanes_turn = not self._lanes_turn
                first, second = self._next_new, self._next_held
                if self._lanes_turn:
                    first, second = second, first
                if found := first() or second():
                    return found
                pauses = [self._lanes.pause(self._clock.monotonic()), LOOK_S if self._shared else None]
                seconds = min((pause for pause in pauses if pause is not None), default=None)
                if not self._lock.wait(seconds) and self._shared:
                    return None, []
        return None

    def _next_held(self) -> tuple[Lane | None, list[str]] | None:
        return self._lanes.next(self._clock.monotonic(), AT_ONCE)

    def _next_new(self) -> tuple[Lane | None, list[str]] | None:
        batch: list[str] = []
        while self._queue and len(batch) < AT_ONCE:
            known = self.ledger.known.get(self._queue[0])
            if known is not None and known.offset < 0:
                break  # its record is being written
            batch.append(self._queue.popleft())
        return (None, batch) if batch else None

    def _put_back(self, tickets: list[str], lane: Lane | None) -> None:
        if lane is None:
            self._queue.extendleft(reversed(tickets))
        else:
            self._lanes.go_on(lane, tickets, self._clock.monotonic())

    def _not_done(self, batch: list[str]) -> list[str]:
        """Those of a batch that nobody else has done meanwhile, and nobody has forgotten."""
        waiting = [ticket for ticket in batch if (known := self.ledger.known.get(ticket)) and known.state == "waiting"]
        with self._lock:
            self._mine.difference_update(set(batch) - set(waiting))
            self._repeated.difference_update(set(batch) - set(waiting))
        return waiting

    def _do(self, batch: list[str], lane: Lane | None) -> None:
        """Nothing is moved before the results are written: if that fails, all of it is done again."""
        started, skipped = self._start_all(batch, lane)
        results: list[tuple[str, State, Result]] = []
        undone = dict(skipped)
        waits: dict[Lane, float] = {}
        for one in started:
            done = result_of(one, one.ticket in self._repeated)
            if not isinstance(done, Again):
                results.append((one.ticket, *done))
            elif one.wanted is not None:
                undone[one.ticket] = of = lane_of(one.wanted)
                waits[of] = max(waits.get(of, 0.0), done.at_least)
        if results:
            self._write(results)
        with self._lock:
            self._repeated.update(undone.keys() - skipped.keys())
            tried = len(started) + len(skipped)
            self._hold([(ticket, undone[ticket]) for ticket in batch if ticket in undone], waits, batch[tried:], lane)

    def _start_all(self, batch: list[str], lane: Lane | None) -> tuple[list[Started], dict[str, Lane]]:
        """Those that were started, and those that were not because others of their lane wait. As many of them as fit
        into memory."""
        started: list[Started] = []
        skipped: dict[str, Lane] = {}
        held: set[Lane] = set()
        size = 0
        requests = read_wanted(self._log, [self.ledger.known[ticket].offset for ticket in batch])
        for ticket, request in zip(batch, requests, strict=True):
            if isinstance(request, HeadraceError):
                started.append(Started(ticket, None, request))
                continue
            of = lane_of(request[0])
            if of in held or (of != lane and of in self._lanes):
                skipped[ticket] = of
                continue
            started.append(Started(ticket, request[0], self._start(*request)))
            if isinstance(started[-1].outcome, PASSING):
                held.add(of)
            size += len(request[1])
            if size > MOST_BYTES:
                break
        return started, skipped

    def _hold(
        self, undone: list[tuple[str, Lane]], waits: dict[Lane, float], rest: list[str], lane: Lane | None
    ) -> None:
        by_lane: dict[Lane, list[str]] = {}
        for ticket, of in undone:
            by_lane.setdefault(of, []).append(ticket)
        now, mine = self._clock.monotonic(), [] if lane is None else by_lane.pop(lane, [])
        for of, tickets in by_lane.items():
            if of not in self._lanes:
                self._lanes.hold(of, tickets, now, waits[of])
                continue
            for ticket in tickets:
                self._lanes.follow(of, ticket)
        if lane is not None and lane in waits:
            self._lanes.hold(lane, mine + rest, now, waits[lane])
        else:
            self._put_back(mine + rest, lane)

    def _start(self, wanted: Wanted, body: bytes) -> Future[Outcome] | Exception:
        try:
            return self._work(wanted, body)
        except Exception as error:
            return error

    def _write(self, results: list[tuple[str, State, Result]]) -> None:
        [appended] = self._log.append([finished(results)]).result()
        [(_, first, last)] = appended.positions
        if last - first + 1 > len(results):
            self.ledger.learn()  # another server's records lie between ours
        for offset, (ticket, state, result) in enumerate(results, first):
            self._mine.discard(ticket)
            self._repeated.discard(ticket)
            self.ledger.note(ticket, state, offset)
            if result.callback is not None:
                self._call(ticket, state, result)

    # Telling

    def _call(self, ticket: str, state: State, result: Result) -> None:
        known = self.ledger.known.get(ticket)
        if known is None or self._callbacks is None or result.callback is None:
            return
        # Every count, the zeros too: what is kept leaves them out, who is called counts on them.
        told = msgspec.structs.asdict(result)
        del told["callback"]
        body = msgspec.json.encode({"ticket": ticket, "state": state} | told)
        expires = known.taken_ms + int(self._settings.ticket_hours * 3_600_000)
        self._callbacks.post(Delivery(self._clock.monotonic(), ticket, result.callback.url, body, expires))

    def _called(self, delivery: Delivery, was_taken: bool) -> None:
        _, result = self.result(delivery.name)
        assert result is not None
        told = Callback(delivery.url, delivery.attempts, delivery.error)
        state: State = "delivered" if was_taken else "undelivered"
        record = finished([(delivery.name, state, msgspec.structs.replace(result, callback=told))])
        [appended] = self._log.append([record]).result()
        self.ledger.note(delivery.name, state, appended.positions[0][1])

    # What other servers do

    def _look_around(self) -> None:
        """For results that somebody here waits for, and for what nobody does."""
        now = self._clock.monotonic()
        due = now - self._looked > ADOPT_S
        if not due and not self._repeated and self.ledger.watched() <= self._mine:
            return
        try:
            self.ledger.learn()
        except HeadraceError as error:
            logger.warning("cannot look at other servers' tickets now: %s", error)
            return
        if due:
            self._looked = now
            self._adopt(self._clock.now_ms() - int(ADOPT_S * 1000))

    def _adopt(self, before_ms: int) -> None:
        with self._lock:
            left = [ticket for ticket in self.ledger.waiting(before_ms) if ticket not in self._mine]
            self._queue.extend(left)
            self._mine.update(left)
            self._repeated.update(left)

    # Starting and stopping

    def _recover(self) -> None:
        self.ledger.learn()
        self._adopt(self._clock.now_ms())
        for ticket in self.ledger.untold():
            known, result = self.result(ticket)
            if result is not None:
                self._call(ticket, known.state, result)

    def close(self) -> None:
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
        self._thread.join()
        if self._callbacks is not None:
            self._callbacks.close()
