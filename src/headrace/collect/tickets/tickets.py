"""Half-asynchronous: a request is taken durably and answered with a ticket; what became of it is told later.

A ticket that was given out is a promise. The request is in the log before the ticket is given; events get ids from it,
so that doing it again after a crash doubles nothing; the result is in the log before anybody is told.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import msgspec

from headrace.clock import Clock
from headrace.collect.base import Outcome
from headrace.collect.tickets.callbacks import Callbacks, Delivery, check_callback
from headrace.collect.tickets.records import (
    Callback,
    Rejected,
    Result,
    State,
    Wanted,
    finished,
    read_entries,
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
    NotFound,
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
PASSING = (Overloaded, DiskFull, NotRunning, LogError)
"""What may be better the next time: the request waits, and so do those behind it."""

Work = Callable[[Wanted, bytes], Future[Outcome]]
"""Collects a request: the very thing that a synchronous one goes through."""


class Known(NamedTuple):
    state: State
    offset: int
    """Of the record that says so."""
    taken_ms: int


class Tickets:
    """Takes requests, works them off in order in a thread of its own, and knows what became of each."""

    def __init__(self, log: Log, work: Work, clock: Clock, settings: CollectSettings, secret: bytes | None) -> None:
        self._log, self._work, self._clock, self._settings = log, work, clock, settings
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._queue: deque[str] = deque()
        self._repeated: set[str] = set()
        self._watching: dict[str, list[Future[None]]] = {}
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
        self._forget()
        self._check(wanted)
        self._make_topic()
        ticket = secrets.token_urlsafe(18)
        given: Future[str] = Future()
        with self._lock:
            # Appended and queued in one order, so that events of one client keep theirs.
            appended = self._log.append([taken(ticket, wanted, body)])
            self._known[ticket] = Known("waiting", -1, self._clock.now_ms())
            self._queue.append(ticket)

        def stored(done: Future[list[Appended]]) -> None:
            error = done.exception()
            with self._lock:
                if error is None:
                    [(_, offset, _)] = done.result()[0].positions
                    self._known[ticket] = self._known[ticket]._replace(offset=offset)
                else:
                    self._known.pop(ticket, None)
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
                "tickets need a log that knows event ids: on Kafka, work that is done again after a crash would double",
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

    def state(self, ticket: str) -> Known:
        self._forget()
        known = self._known.get(ticket)
        if known is None:
            raise NotFound(
                f"there is no ticket `{ticket[:40]}`",
                hint=f"tickets are kept for {self._settings.ticket_hours:g} hours: [collect] ticket_hours",
            )
        return known

    def result(self, ticket: str) -> tuple[Known, Result | None]:
        """Reads the log once there is one."""
        known = self.state(ticket)
        return known, None if known.state == "waiting" else read_result(self._log, known.offset)

    def watch(self, ticket: str) -> Future[None]:
        """Done when there is a result."""
        future: Future[None] = Future()
        with self._lock:
            if self.state(ticket).state != "waiting":
                future.set_result(None)
            else:
                self._watching.setdefault(ticket, []).append(future)
        return future

    def unwatch(self, ticket: str, future: Future[None]) -> None:
        with self._lock:
            watching = self._watching.get(ticket, [])
            if future in watching:
                watching.remove(future)
            if not watching:
                self._watching.pop(ticket, None)

    def _forget(self) -> None:
        """The oldest first, which is the order they are in."""
        before = self._clock.now_ms() - self._settings.ticket_hours * 3_600_000
        with self._lock:
            while self._known:
                ticket, known = next(iter(self._known.items()))
                kept = known.taken_ms >= before and len(self._known) <= self._settings.tickets
                if kept or known.state == "waiting":
                    return
                del self._known[ticket]

    # Working

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            batch = self._next()
            if batch is None:
                return
            try:
                left = self._do(batch)
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
        """Requests that are durable, in the order they came."""
        with self._lock:
            while not self._stopping:
                batch: list[str] = []
                while self._queue and len(batch) < AT_ONCE:
                    known = self._known.get(self._queue[0])
                    if known is not None and known.offset < 0:
                        break  # its record is being written
                    ticket = self._queue.popleft()
                    if known is not None:
                        batch.append(ticket)
                if batch:
                    return batch
                self._lock.wait()
        return None

    def _do(self, batch: list[str]) -> list[str]:
        """Those that have to be done again."""
        started: list[tuple[str, Wanted | None, Future[Outcome] | HeadraceError]] = []
        size = 0
        for ticket in batch:
            if size > MOST_BYTES:
                break
            wanted, size_of, outcome = self._start(ticket)
            started.append((ticket, wanted, outcome))
            size += size_of
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

    def _start(self, ticket: str) -> tuple[Wanted | None, int, Future[Outcome] | HeadraceError]:
        """The request, how large it is, and what will become of it."""
        try:
            wanted, body = read_wanted(self._log, self._known[ticket].offset)
        except HeadraceError as error:
            return None, 0, error
        try:
            return wanted, len(body), self._work(wanted, body)
        except HeadraceError as error:
            return wanted, len(body), error

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
        [(_, first, _)] = appended.positions
        for offset, (ticket, state, result) in enumerate(results, first):
            self._repeated.discard(ticket)
            self._note(ticket, state, offset)
            if result.callback is not None:
                self._call(ticket, state, result)

    def _note(self, ticket: str, state: State, offset: int) -> None:
        with self._lock:
            if ticket in self._known:
                self._known[ticket] = self._known[ticket]._replace(state=state, offset=offset)
            watching = self._watching.pop(ticket, [])
        for future in watching:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    # Telling

    def _call(self, ticket: str, state: State, result: Result) -> None:
        known = self._known.get(ticket)
        if known is None or self._callbacks is None or result.callback is None:
            return
        body = msgspec.json.encode(
            {"ticket": ticket, "state": state} | msgspec.to_builtins(msgspec.structs.replace(result, callback=None))
        )
        expires = known.taken_ms + int(self._settings.ticket_hours * 3_600_000)
        self._callbacks.post(Delivery(self._clock.monotonic(), ticket, result.callback.url, body, expires))

    def _called(self, delivery: Delivery, was_taken: bool) -> None:
        _, result = self.result(delivery.ticket)
        assert result is not None
        told = Callback(delivery.url, delivery.attempts, delivery.error)
        state: State = "delivered" if was_taken else "undelivered"
        record = finished([(delivery.ticket, state, msgspec.structs.replace(result, callback=told))])
        [appended] = self._log.append([record]).result()
        self._note(delivery.ticket, state, appended.positions[0][1])

    # Starting and stopping

    def _recover(self) -> None:
        to_tell: dict[str, None] = {}
        for entry in read_entries(self._log):
            if entry.state == "waiting":
                self._known[entry.ticket] = Known("waiting", entry.offset, entry.time_ms)
            elif entry.ticket in self._known:
                self._known[entry.ticket] = self._known[entry.ticket]._replace(state=entry.state, offset=entry.offset)
                if entry.callback and entry.state in ("done", "failed"):
                    to_tell[entry.ticket] = None
                else:
                    to_tell.pop(entry.ticket, None)
        self._queue.extend(ticket for ticket, known in self._known.items() if known.state == "waiting")
        self._repeated.update(self._queue)
        for ticket in to_tell:
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
