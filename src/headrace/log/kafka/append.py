"""Appending: what is for one partition goes straight out, everything else in transactions, several appends to each.
What has event ids goes in transactions too, but for what the topic has already (`identified`).

One thread takes appends in the order they came, so that order within a partition is the order of the calls whichever
way they go: a transaction begins when all that went before it has arrived, and nothing overtakes it.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue

from confluent_kafka import Producer

from headrace.errors import HeadraceError, LogError, Overloaded, OwnerLost
from headrace.log.base import Acks, Appended
from headrace.log.kafka.client import Connection
from headrace.log.kafka.delivery import Delivery, Poller, Sender
from headrace.log.kafka.encode import Outgoing
from headrace.log.kafka.errors import translate
from headrace.log.kafka.identified import IdentifiedWriter
from headrace.log.kafka.offsets import Offsets
from headrace.log.kafka.producer import plain_conf
from headrace.log.kafka.transaction import Transactor

_TRANSACTION_S = 15.0
_MOST_AT_ONCE = 64 * 1024 * 1024
_OVERHEAD = 64
"""Bytes a message costs in memory beyond its own."""
Wrote = Callable[[Sequence[Outgoing], Sequence[Appended], bool], None]
"""Batches, where they are, and whether a transaction's mark follows them."""


@dataclass(frozen=True, slots=True)
class _Pending:
    batches: list[Outgoing]
    future: Future[list[Appended]]
    acks: Acks
    bytes: int

    @property
    def single(self) -> bool:
        """Whether it is atomic by itself."""
        return len({(batch.kafka, number) for batch in self.batches for number in batch.partitions}) <= 1

    @property
    def identified(self) -> bool:
        """Whether it has ids that are to be looked up."""
        return any(batch.digests for batch in self.batches)

    @property
    def safe(self) -> bool:
        """Whether it has to be in a transaction, or may be in one with others."""
        return self.acks == "all" or self.identified


class Appender:
    """Safe to use from several threads."""

    def __init__(
        self,
        connection: Connection,
        offsets: Offsets,
        linger_ms: float,
        max_pending_bytes: int,
        identified: IdentifiedWriter | None = None,
        wrote: Wrote | None = None,
    ) -> None:
        """`identified` writes batches whose ids are to be looked up; `wrote` is told of all others."""
        self._connection = connection
        self._linger_ms = linger_ms
        self._room = max_pending_bytes
        self._queue: SimpleQueue[_Pending | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._plain: dict[Acks, tuple[Sender, Poller]] = {}
        self._unsure = 0
        self._arrived = threading.Condition()
        name = f"{connection.settings.prefix}headrace-append-{uuid.uuid4()}"
        self._transactor = Transactor(connection, offsets, name, _TRANSACTION_S)
        self._identified, self._wrote = identified, wrote
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="headrace-kafka-append", daemon=True)
        self._thread.start()

    def append(self, batches: Sequence[Outgoing], acks: Acks) -> Future[list[Appended]]:
        future: Future[list[Appended]] = Future()
        size = sum(batch.bytes + _OVERHEAD * len(batch) for batch in batches)
        with self._lock:
            if self._closed:
                raise LogError("the log is closed")
            if size > self._room:
                raise Overloaded("too much is waiting to be written to Kafka", hint="try again in a moment")
            self._room -= size
            self._queue.put(_Pending(list(batches), future, acks, size))
        return future

    def _give_room(self, size: int) -> None:
        with self._lock:
            self._room += size

    # The thread

    def _run(self) -> None:
        while True:
            pending = self._queue.get()
            if pending is None:
                return
            try:
                self._take(pending)
            except BaseException as failure:
                self._finish(pending, translate(failure, "write", self._connection))

    def _take(self, pending: _Pending) -> None:
        if not pending.safe or (pending.single and not pending.identified):
            self._send(pending)
            return
        group, size = [pending], pending.bytes
        later: _Pending | None = None
        while later is None and size < _MOST_AT_ONCE and not self._queue.empty():
            following = self._queue.get()
            if following is None:
                self._queue.put(None)
                break
            if following.safe:
                group.append(following)
                size += following.bytes
            else:
                later = following
        self._transact(group)
        if later is not None:
            self._send(later)

    def _sender(self, acks: Acks) -> Sender:
        found = self._plain.get(acks)
        if found is None:
            producer = Producer(plain_conf(self._connection, acks, self._linger_ms))
            poller = Poller(producer, f"headrace-kafka-acks-{acks}")
            found = self._plain[acks] = (Sender(producer, self._connection.settings.request_seconds), poller)
        return found[0]

    def _send(self, pending: _Pending) -> None:
        """For one partition, or unsafe by wish."""
        _answer_early(pending)
        if not sum(map(len, pending.batches)):
            self._finish(pending, None)
            return
        with self._arrived:
            self._unsure += 1
        delivery = Delivery(pending.batches, lambda done: self._delivered(pending, done))
        self._sender(pending.acks).hand_over(pending.batches, delivery)

    def _delivered(self, pending: _Pending, delivery: Delivery) -> None:
        error = None
        if delivery.error is not None:
            topic = pending.batches[0].topic
            error = translate(delivery.error, f"write to `{topic}`", self._connection, topic)
        with self._arrived:
            self._unsure -= 1
            self._arrived.notify_all()
        if error is None:
            self._note(pending.batches, delivery.appended(), marked=False)
        self._finish(pending, error, delivery.appended())

    def _note(self, batches: list[Outgoing], appended: list[Appended], marked: bool) -> None:
        if self._wrote is not None:
            self._wrote(batches, appended, marked)

    def _transact(self, group: list[_Pending]) -> None:
        for pending in group:
            _answer_early(pending)
        with self._arrived:
            self._arrived.wait_for(lambda: self._unsure == 0)
        batches = [batch for pending in group for batch in pending.batches]
        try:
            if any(pending.identified for pending in group):
                assert self._identified is not None
                appended = self._identified.write(batches)
            else:
                appended = self._transactor.run(lambda: batches, "write") or []
                self._note(batches, appended, marked=True)
        except HeadraceError as error:
            if len(group) > 1 and not isinstance(error, OwnerLost):
                # One of them may be to blame; the others must not pay for it. Nothing was stored.
                for pending in group:
                    self._transact([pending])
                return
            for pending in group:
                self._finish(pending, error)
            return
        for pending in group:
            mine, appended = appended[: len(pending.batches)], appended[len(pending.batches) :]
            self._finish(pending, None, mine)

    def _finish(self, pending: _Pending, error: HeadraceError | None, found: list[Appended] | None = None) -> None:
        self._give_room(pending.bytes)
        if pending.future.done():
            return
        with contextlib.suppress(Exception):
            if error is not None:
                pending.future.set_exception(error)
            else:
                pending.future.set_result(found or [Appended(()) for _ in pending.batches])

    def close(self) -> None:
        """What was taken is written first."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()
        for sender, poller in self._plain.values():
            sender.producer.flush(self._connection.settings.delivery_seconds)
            poller.stop()
        self._transactor.close()
        if self._identified is not None:
            self._identified.close()


def _answer_early(pending: _Pending) -> None:
    """Who does not wait is told at once."""
    if pending.acks != "all" and not pending.future.done():
        pending.future.set_result([Appended(()) for _ in pending.batches])
