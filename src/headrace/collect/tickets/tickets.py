"""Half-asynchronous: a request is taken durably and answered with a ticket; what became of it is told later.

A ticket that was given out is a promise. The request is in the log before the ticket is given; events get ids from it,
so that doing it again after a crash doubles nothing; the result is in the log before anybody is told.

Where several servers share a log, each works off what it took, and any can be asked: what the others write about their
tickets is read when it is needed. What one has left undone for long, the others do. The first result counts.
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
from headrace.collect.tickets.ledger import Known, Ledger
from headrace.collect.tickets.records import (
    Callback,
    Rejected,
    Result,
    State,
    Wanted,
    finished,
    read_result,
    read_wanted,
    spec,
    taken,
)
from headrace.config import CollectSettings
from headrace.errors import (
    Conflict,
    DiskFull,
    HeadraceError,
    LogError,
    NotRunning,
    Overloaded,
    Refused,
)
from headrace.log.base import Appended, Log

logger = logging.getLogger("headrace.tickets")

AT_ONCE = 64
"""Requests that are worked on together: they share a sync, and so do their results."""
MOST_BYTES = 64 * 1024 * 1024
"""About how many bytes of bodies are worked on together."""
PAUSE_S = 0.5
TOLD = 1000
"""How many rejections a result lists; it counts them all, and each is a dead letter."""
LOOK_S = 0.5
"""How often somebody who waits for another server's ticket has it looked for."""
ADOPT_S = 60.0
"""After so long, what another server has not done is done here; so often it is looked for."""
PASSING = (Overloaded, DiskFull, NotRunning, LogError)
"""What may be better the next time: the request waits, and so do those behind it."""

Work = Callable[[Wanted, bytes], Future[Outcome]]
"""Collects a request: the very thing that a synchronous one goes through."""


class Tickets:
    """Takes requests, works them off in order in a thread of its own, and knows what became of each."""

    def __init__(self, log: Log, work: Work, clock: Clock, settings: CollectSettings, secret: bytes | None) -> None:
        self._log, self._work, self._clock, self._settings = log, work, clock, settings
        self.ledger = Ledger(log, clock, settings)
        self._queue: deque[str] = deque()
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
        if len(self._queue) >= self._settings.tickets:
            raise Overloaded(f"{len(self._queue)} tickets are waiting already", retry_after=1.0)

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
        return len(self._queue)

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
        while True:
            batch = self._next()
            if batch is None:
                return
            if self._shared:
                self._look_around()
            try:
                left = self._do(self._not_done(batch))
            except Exception:
                logger.exception("cannot work on tickets now; trying again")
                left = batch
            with self._lock:
                for ticket in left:
                    self._repeated.add(ticket)
                self._queue.extendleft(reversed(left))
                if self._stopping:
                    return
            if left:
                pause.wait(PAUSE_S)

    def _next(self) -> list[str] | None:
        """Requests that are durable, in the order they came. None where others work too, and it is time to look."""
        with self._lock:
            while not self._stopping:
                batch: list[str] = []
                while self._queue and len(batch) < AT_ONCE:
                    known = self.ledger.known.get(self._queue[0])
                    if known is not None and known.offset < 0:
                        break  # its record is being written
                    batch.append(self._queue.popleft())
                if batch:
                    return batch
                if not self._lock.wait(LOOK_S if self._shared else None):
                    return []
        return None

    def _not_done(self, batch: list[str]) -> list[str]:
        """Those of a batch that nobody else has done meanwhile, and nobody has forgotten."""
        waiting = [ticket for ticket in batch if (known := self.ledger.known.get(ticket)) and known.state == "waiting"]
        with self._lock:
            self._mine.difference_update(set(batch) - set(waiting))
            self._repeated.difference_update(set(batch) - set(waiting))
        return waiting

    def _do(self, batch: list[str]) -> list[str]:
        """Those that have to be done again."""
        started: list[tuple[str, Wanted | None, Future[Outcome] | HeadraceError]] = []
        size = 0
        requests = read_wanted(self._log, [self.ledger.known[ticket].offset for ticket in batch])
        for ticket, request in zip(batch, requests, strict=True):
            if isinstance(request, HeadraceError):
                started.append((ticket, None, request))
                continue
            started.append((ticket, request[0], self._start(*request)))
            size += len(request[1])
            if size > MOST_BYTES:
                break
        results: list[tuple[str, State, Result]] = []
        again: list[str] = []
        for ticket, wanted, outcome in started:
            done = self._finish(ticket, wanted, outcome)
            if done is None:
                again.append(ticket)
            else:
                results.append((ticket, *done))
        if results:
            self._write(results)
        return again + batch[len(started) :]

    def _start(self, wanted: Wanted, body: bytes) -> Future[Outcome] | HeadraceError:
        try:
            return self._work(wanted, body)
        except HeadraceError as error:
            return error

    def _finish(
        self, ticket: str, wanted: Wanted | None, outcome: Future[Outcome] | HeadraceError
    ) -> tuple[State, Result] | None:
        callback = None if wanted is None or wanted.callback is None else Callback(wanted.callback)
        try:
            if isinstance(outcome, HeadraceError):
                raise outcome
            found = outcome.result()
        except PASSING as error:
            logger.warning("ticket `%s` waits: %s", ticket, error)
            return None
        except HeadraceError as error:
            return "failed", Result(error=error.to_json(), callback=callback)
        return "done", Result(
            accepted=found.accepted,
            duplicates=found.duplicates,
            rejected=[Rejected(one.index, one.reason, one.dead_letter) for one in found.rejected[:TOLD]],
            rejections=len(found.rejected),
            positions=list(found.positions),
            repeated=ticket in self._repeated,
            callback=callback,
        )

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
