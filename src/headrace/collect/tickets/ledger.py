"""What is known of tickets: a place in the log for each, in the order they were given, and who waits for one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import NamedTuple

from headrace.clock import Clock
from headrace.collect.tickets.records import State, read_entries
from headrace.config import CollectSettings
from headrace.errors import NotFound
from headrace.log.base import Log


class Known(NamedTuple):
    state: State
    offset: int
    """Of the record that says so."""
    taken_ms: int
    calls: bool = False
    """Whether its result is to be posted, as the log says."""


class Ledger:
    """Safe to use from several threads. On a log of several servers it has their tickets too, as far as was read."""

    def __init__(self, log: Log, clock: Clock, settings: CollectSettings) -> None:
        self._log, self._clock, self._settings = log, clock, settings
        self._shared = "servers" in log.capabilities
        self.known: OrderedDict[str, Known] = OrderedDict()
        self._watching: dict[str, list[Future[None]]] = {}
        self._lock = threading.RLock()
        self._learning = threading.Lock()
        self._read_to: int | None = None
        """How much of the topic was read."""

    # Writing down

    def add(self, ticket: str) -> None:
        """One that is being given."""
        with self._lock:
            self.known[ticket] = Known("waiting", -1, self._clock.now_ms())

    def stored(self, ticket: str, offset: int) -> None:
        with self._lock:
            self.known[ticket] = self.known[ticket]._replace(offset=offset)

    def drop(self, ticket: str) -> None:
        with self._lock:
            self.known.pop(ticket, None)

    def note(self, ticket: str, state: State, offset: int, calls: bool = False) -> None:
        """What became of it. Done twice, by two servers, the first result counts."""
        with self._lock:
            known = self.known.get(ticket)
            if known is not None and (known.state == "waiting" or state in ("delivered", "undelivered")):
                self.known[ticket] = known._replace(state=state, offset=offset, calls=calls)
            watching = self._watching.pop(ticket, [])
        for future in watching:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def learn(self) -> None:
        """Read what was written about tickets since the last time; alone on the log, only the first time."""
        with self._learning:
            if self._read_to is not None and not self._shared:
                return
            entries, self._read_to = read_entries(self._log, self._read_to or 0)
            for entry in entries:
                if entry.state != "waiting":
                    self.note(entry.ticket, entry.state, entry.offset, entry.callback)
                elif entry.ticket not in self.known:
                    with self._lock:
                        self.known[entry.ticket] = Known("waiting", entry.offset, entry.time_ms)

    def forget(self) -> None:
        """The oldest first, which is the order they are in."""
        before = self._clock.now_ms() - self._settings.ticket_hours * 3_600_000
        with self._lock:
            while self.known:
                ticket, known = next(iter(self.known.items()))
                kept = known.taken_ms >= before and len(self.known) <= self._settings.tickets
                if kept or known.state == "waiting":
                    return
                del self.known[ticket]

    # Asking

    def state(self, ticket: str) -> Known:
        """Looks into the log if another server may have given it."""
        self.forget()
        if ticket not in self.known:
            self.learn()
        known = self.known.get(ticket)
        if known is None:
            raise NotFound(
                f"there is no ticket `{ticket[:40]}`",
                hint=f"tickets are kept for {self._settings.ticket_hours:g} hours: [collect] ticket_hours",
            )
        return known

    def waiting(self, before_ms: int) -> list[str]:
        """Taken by then, and without a result."""
        with self._lock:
            return [
                ticket
                for ticket, known in self.known.items()
                if known.state == "waiting" and known.offset >= 0 and known.taken_ms <= before_ms
            ]

    def untold(self) -> list[str]:
        """Results that are to be posted still."""
        with self._lock:
            return [ticket for ticket, known in self.known.items() if known.calls and known.state in ("done", "failed")]

    def watch(self, ticket: str) -> Future[None]:
        """Done when there is a result."""
        future: Future[None] = Future()
        known = self.state(ticket)
        with self._lock:
            if self.known.get(ticket, known).state != "waiting":
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

    def watched(self) -> set[str]:
        with self._lock:
            return set(self._watching)
