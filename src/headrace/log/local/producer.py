"""The local log's producer, the same in the owner and in any other process: what differs is its `Desk`.

A thread writes what was gathered, a few writes at a time, and sends again, in order, what the owner did not answer or
could not take. The owner takes each write once (`producers`), so nothing is stored twice, nothing out of order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Literal, get_args

import pyarrow as pa

from headrace.errors import Fenced, HeadraceError, LogError, UsageError
from headrace.log.base import Acks, Appended, Consumer, Producer, TopicPartition
from headrace.log.local.gather import Gathering, Send
from headrace.log.local.sender import RETRIED, Sender, backoff
from headrace.log.local.services import Desk, SentOffsets

_BLOCK_S = 60.0
_STAGED_AT_ONCE = 8


class LocalProducer(Producer):
    def __init__(
        self,
        desk: Desk,
        name: str | None = None,
        acks: Acks = "all",
        linger_ms: float = 5.0,
        transaction_timeout_s: float = 60.0,
    ) -> None:
        if acks not in get_args(Acks):
            raise UsageError(f"acks must be `0`, `1` or `all`, got `{acks}`")
        if name is not None and acks != "all":
            raise UsageError("a producer with a name needs acks `all`", hint="leave the name or the acks out")
        self.name, self._acks, self._desk = name, acks, desk
        self._timeout_s = transaction_timeout_s
        self._sender = Sender(desk, name, acks, linger_ms / 1000)
        self._state: Literal["", "open", "broken"] = ""
        """Of the transaction."""
        self._gathering = Gathering()
        self._sent: list[Send] = []
        self._staging: list[Future[list[Appended]]] = []
        self._tasks = 0
        self._offsets: list[SentOffsets] = []

    def send(self, topic: str, batch: pa.RecordBatch, partition: int | None = None) -> Future[Appended]:
        future: Future[Appended] = Future()
        future.set_running_or_notify_cancel()
        send = Send(topic, partition, batch, future)
        if not self._state:
            self._sender.send(send)
            return future
        self._check_open()
        self._gathering.add(send)
        if self._gathering.is_full():
            self._stage()
        return future

    def flush(self, timeout: float = 30.0) -> None:
        self._sender.flush(timeout)

    # Transactions

    def begin(self) -> None:
        if self.name is None:
            raise UsageError("a producer without a name has no transactions", hint="give it a name of its own")
        if self._state:
            raise UsageError("a transaction is open already", hint="commit or abort it first")
        # What was sent before comes before, and has its numbers.
        self._sender.flush(_BLOCK_S)
        self._sender.check()
        self._state = "open"

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int], consumer: Consumer | None = None) -> None:
        self._check_open()
        member = None
        if consumer is not None:
            member = getattr(consumer, "member", None)
            if member is None:
                raise Fenced("the consumer is not a member of its group (any more)", hint="abort, then poll again")
        self._offsets.append(SentOffsets(group, member, dict(offsets)))

    def commit(self) -> None:
        self._check_open()
        if self._gathering:
            self._stage()
        self._staged()
        if self._tasks or self._offsets:
            results = self._commit()
            self._sender.took()
            for number, send in enumerate(self._sent):
                send.future.set_result(results[number] if number < len(results) else Appended(()))
        self._forget()

    def _commit(self) -> list[Appended]:
        """Asked again until there is an answer: the owner knows whether it has done it."""
        stamp, deadline, tries = self._sender.stamp(), time.monotonic() + _BLOCK_S, 0
        while True:
            try:
                return self._desk.commit(stamp, self._tasks, self._offsets).result()
            except RETRIED as error:
                tries += 1
                if time.monotonic() > deadline:
                    self._break(error)
                    raise
                backoff(tries, error)
            except HeadraceError as error:
                self._break(error)
                raise

    def abort(self) -> None:
        if not self._state:
            raise UsageError("there is no transaction to abort")
        for send in [*self._sent, *self._gathering.take_all().sends]:
            if not send.future.done():
                send.future.set_exception(LogError("the transaction was aborted"))
        try:
            self._desk.abort(self._sender.stamp())
        except RETRIED:
            # Nobody can commit it any more: its number is used by the next one, or its rows are gone with the owner.
            pass
        finally:
            self._forget()

    def _check_open(self) -> None:
        self._sender.check()
        if self._state == "broken":
            raise LogError("the transaction failed", hint="abort it and run it again")
        if not self._state:
            raise UsageError("there is no transaction", hint="`begin` starts one")

    def _stage(self) -> None:
        """Hand over what was gathered, without waiting for the answer."""
        sends = self._gathering.take_all()
        self._sent += sends.sends
        if len(self._staging) >= _STAGED_AT_ONCE:
            self._staged()
        try:
            self._staging.append(self._desk.stage(self._sender.stamp(), self._tasks, sends.runs, self._timeout_s))
        except HeadraceError as error:
            self._break(error)
            raise
        self._tasks += 1

    def _staged(self) -> None:
        staging, self._staging = self._staging, []
        try:
            for future in staging:
                future.result()
        except HeadraceError as error:
            self._break(error)
            raise

    def _break(self, error: HeadraceError) -> None:
        self._state = "broken"
        for send in [*self._sent, *self._gathering.take_all().sends]:
            send.future.set_exception(error)
        self._sent = []
        if isinstance(error, Fenced):
            self._sender.die(error)

    def _forget(self) -> None:
        self._state, self._sent, self._staging, self._tasks, self._offsets = "", [], [], 0, []
        self._gathering = Gathering()

    def close(self) -> None:
        try:
            if self._state:
                self.abort()
        finally:
            self._sender.close()
