"""The thread behind a producer: gathers, writes, and writes again what was not answered."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from headrace.errors import (
    DeadlineExceeded,
    Fenced,
    HeadraceError,
    LogError,
    NotRunning,
    OutOfSequence,
    Overloaded,
    OwnerLost,
)
from headrace.log.base import Acks, Appended
from headrace.log.local.gather import Gathering, Send, Sends
from headrace.log.local.producers import IN_FLIGHT, Stamp
from headrace.log.local.services import Desk

logger = logging.getLogger(__name__)

BUFFER_BYTES = 64 * 1024 * 1024
"""With this much unanswered, `send` waits."""
DELIVERY_S = 120.0
"""How long a write is tried again."""
RETRIED = (Overloaded, OwnerLost, NotRunning)

_LONGEST_PAUSE_S, _AWAY_PAUSE_S = 1.0, 0.1


def backoff_s(tries: int, error: BaseException | None) -> float:
    """Doubling from 10 ms, with jitter, so that many producers do not come back together."""
    # Asking whether the owner is back costs next to nothing; being late for it costs everybody.
    longest = _LONGEST_PAUSE_S if isinstance(error, Overloaded) else _AWAY_PAUSE_S
    most: float = min(longest, 0.01 * 2 ** min(tries, 10))
    if isinstance(error, Overloaded):
        most = min(most, max(0.01, error.retry_after))
    return most * (0.5 + random.random() / 2)


def backoff(tries: int, error: BaseException | None) -> None:
    time.sleep(backoff_s(tries, error))


@dataclass(slots=True, eq=False)
class _Write:
    """One write and what became of it."""

    sends: Sends
    deadline: float
    sequence: int = -1
    answer: Future[list[Appended]] | None = None
    tries: int = 0
    lost: bool = False
    """It was sent and not answered: it may be there."""

    def error(self) -> BaseException | None:
        assert self.answer is not None
        return self.answer.exception()


class Sender:
    """`send`, `flush` and `close` are for the producer's thread; everything else happens in this one's."""

    def __init__(
        self, desk: Desk, name: str | None, acks: Acks, linger_s: float, delivery_s: float = DELIVERY_S
    ) -> None:
        self._desk, self._name, self._acks, self._linger_s = desk, name, acks, linger_s
        self._delivery_s = delivery_s
        self._stamped = acks == "all"
        # Without numbers only one write at a time keeps its order.
        self._most = IN_FLIGHT if self._stamped else 1
        self._id, self._epoch = desk.open(name) if self._stamped else (0, 0)
        self._next_sequence = 0
        self._stale = False
        """The id is not to be used any more."""
        self._changed = threading.Condition()
        self._gathering = Gathering()
        self._gathered_since = 0.0
        self._waiting: deque[_Write] = deque()
        self._flying = 0
        """The first so many of `waiting` are sent."""
        self._bytes = 0
        self._resume_at = 0.0
        self._hurry = False
        self._closing = False
        self._dead: HeadraceError | None = None
        self._failure: BaseException | None = None
        """The first since the last flush."""
        self._thread: threading.Thread | None = None

    # For the producer's thread

    def check(self) -> None:
        if self._dead is not None:
            raise self._dead
        if self._closing:
            raise LogError("the producer is closed")

    def stamp(self) -> Stamp:
        """Of the next write; nothing must be waiting."""
        return Stamp(self._id, self._epoch, self._next_sequence)

    def took(self) -> None:
        """The write with `stamp()` is in the log."""
        self._next_sequence += 1

    def die(self, error: HeadraceError) -> None:
        with self._changed:
            self._dead = error

    def send(self, send: Send, wait: bool = True) -> None:
        """Without `wait`, `Overloaded` if there is no room."""
        with self._changed:
            self.check()
            patience = self._delivery_s if wait else 0.0
            if self._bytes > BUFFER_BYTES and not self._changed.wait_for(self._has_room, patience):
                raise Overloaded("too much is waiting to be written", retry_after=1.0, hint="send again later")
            self.check()
            if not self._gathering:
                self._gathered_since = time.monotonic()
            before = self._gathering.bytes
            self._gathering.add(send)
            self._bytes += self._gathering.bytes - before
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log-producer", daemon=True)
                self._thread.start()
            if before == 0 or self._gathering.is_full():
                self._changed.notify_all()
        if self._acks == "0":
            send.future.set_result(Appended(()))

    def _has_room(self) -> bool:
        return self._bytes <= BUFFER_BYTES or self._dead is not None

    def flush(self, timeout: float) -> None:
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            done = self._changed.wait_for(self._is_idle, timeout)
            self._hurry = False
            failure, self._failure = self._failure, None
        if not done:
            raise DeadlineExceeded(
                f"not everything was acknowledged within {timeout:.0f} s", hint="it is still being tried; flush again"
            )
        if failure is not None or self._dead is not None:
            raise failure or self._dead or LogError("the producer failed")

    def _is_idle(self) -> bool:
        return not self._gathering and not self._waiting

    def close(self) -> None:
        """Everything that was sent is acknowledged or has failed; an error is raised once all has stopped."""
        if self._closing:
            return
        try:
            if self._dead is None:
                self.flush(self._delivery_s)
        finally:
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            if self._thread is not None:
                self._thread.join()
            self._fail_all(LogError("the producer is closed"))

    # The sender's thread

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closing and not self._has_work():
                    self._changed.wait(self._pause_s())
                if self._closing:
                    return
            self._settle()
            self._fill()

    def _has_work(self) -> bool:
        if self._flying and (answer := self._waiting[0].answer) is not None and answer.done():
            return True
        if self._flying >= self._most or time.monotonic() < self._resume_at:
            return False
        return len(self._waiting) > self._flying or self._is_due()

    def _is_due(self) -> bool:
        gathering = self._gathering
        if not gathering:
            return False
        return self._hurry or gathering.is_full() or time.monotonic() - self._gathered_since >= self._linger_s

    def _pause_s(self) -> float | None:
        """Until something becomes due by itself; answers and sends wake us."""
        now = time.monotonic()
        if now < self._resume_at:
            return self._resume_at - now
        if self._gathering and self._flying < self._most:
            return max(0.0, self._gathered_since + self._linger_s - now)
        return None

    def _settle(self) -> None:
        """Answered writes, the oldest first."""
        while self._flying and (head := self._waiting[0]).answer is not None and head.answer.done():
            error = head.error()
            if error is None:
                head.sends.settle(head.answer.result())
                self._drop(head)
                self._flying -= 1
                continue
            self._refused(head, error)

    def _refused(self, head: _Write, error: BaseException) -> None:
        """Nothing after a refused write was taken either: all of it comes back, in order."""
        flying = [self._waiting[number] for number in range(self._flying)]
        for write in flying:
            failure = _wait_for(write)
            write.lost = write.lost or isinstance(failure, OwnerLost)
            write.answer, write.tries = None, write.tries + 1
        self._flying = 0
        if isinstance(error, Fenced):
            self._fenced(error)
        elif isinstance(error, OutOfSequence) or (isinstance(error, RETRIED) and self._may_repeat(head)):
            self._resume_at = time.monotonic() + backoff_s(head.tries, error)
            self._give_up_late(error)
        else:
            self._reject(head, error)

    def _may_repeat(self, head: _Write) -> bool:
        return self._stamped or not head.lost

    def _reject(self, head: _Write, error: BaseException) -> None:
        """The head is not wanted as it is. If it holds several sends, each is tried alone, so that one which does not
        fit fails nobody else's."""
        first = head.sequence
        with self._changed:
            self._waiting.popleft()
            singles = head.sends.singly() if len(head.sends.sends) > 1 else []
            for sends in reversed(singles):
                self._waiting.appendleft(_Write(sends, head.deadline))
        if not singles:
            self._failed(head, error)
        self._renumber(first)

    def _fenced(self, error: Fenced) -> None:
        if self._name is None and error.data.get("forgotten"):
            self._begin_anew(error)
        else:
            self.die(error)
            self._fail_all(error)

    def _begin_anew(self, error: BaseException) -> None:
        """Under a new id nothing unanswered can be recognised, so what may be there already has failed."""
        self._stale = True
        for write in [write for write in self._waiting if write.lost]:
            self._failed(write, error)
        self._renumber(0)

    def _give_up_late(self, error: BaseException) -> None:
        now = time.monotonic()
        if not any(write.deadline < now for write in self._waiting):
            return
        if any(write.lost for write in self._waiting):
            if self._name is not None:
                # Opening the name again might fence a producer that has rightly taken over.
                self.die(Fenced(f"producer `{self._name}` cannot go on", detail=str(error), hint="open it again"))
                self._fail_all(_as_error(error))
                return
            self._begin_anew(error)
        first = self._waiting[0].sequence if self._waiting else self._next_sequence
        for write in [write for write in self._waiting if write.deadline < now]:
            self._failed(write, error)
        self._renumber(first)

    def _renumber(self, first: int) -> None:
        for number, write in enumerate(self._waiting):
            write.sequence = first + number
        self._next_sequence = first + len(self._waiting)

    def _failed(self, write: _Write, error: BaseException) -> None:
        if self._acks == "0":
            logger.warning("records were not stored: %s", error)
        write.sends.fail(error)
        with self._changed:
            self._failure = self._failure or error
            if write in self._waiting:
                self._waiting.remove(write)
            self._bytes -= write.sends.bytes
            self._changed.notify_all()

    def _drop(self, write: _Write) -> None:
        with self._changed:
            self._waiting.popleft()
            self._bytes -= write.sends.bytes
            self._changed.notify_all()

    def _open(self) -> bool:
        """Whether the producer has an id to write under."""
        if not self._stale:
            return True
        try:
            self._id, self._epoch = self._desk.open(self._name)
        except HeadraceError as error:
            self._resume_at = time.monotonic() + _LONGEST_PAUSE_S
            self._give_up_late(error)
            return False
        self._stale = False
        return True

    def _fill(self) -> None:
        if not self._open():
            return
        while self._flying < self._most and time.monotonic() >= self._resume_at:
            if self._flying == len(self._waiting):
                with self._changed:
                    if not self._is_due():
                        return
                    write = _Write(self._gathering.take(), time.monotonic() + self._delivery_s, self._next_sequence)
                    self._next_sequence += 1
                    self._waiting.append(write)
            write = self._waiting[self._flying]
            self._flying += 1
            write.answer = self._write(write)
            write.answer.add_done_callback(self._wake)

    def _write(self, write: _Write) -> Future[list[Appended]]:
        stamp = Stamp(self._id, self._epoch, write.sequence) if self._stamped else None
        try:
            return self._desk.append(write.sends.runs, self._acks, stamp)
        except HeadraceError as error:
            failed: Future[list[Appended]] = Future()
            failed.set_exception(error)
            return failed

    def _wake(self, answer: Future[list[Appended]]) -> None:
        with self._changed:
            self._changed.notify_all()

    def _fail_all(self, error: HeadraceError) -> None:
        with self._changed:
            waiting, self._waiting, self._flying = list(self._waiting), deque(), 0
            if self._gathering:
                waiting.append(_Write(self._gathering.take_all(), 0.0))
            self._bytes = 0
            self._failure = self._failure or (error if waiting else None)
            self._changed.notify_all()
        for write in waiting:
            write.sends.fail(error)


def _wait_for(write: _Write) -> BaseException | None:
    assert write.answer is not None
    return write.answer.exception()


def _as_error(error: BaseException) -> HeadraceError:
    return error if isinstance(error, HeadraceError) else HeadraceError(str(error))
