"""Producers with a name: Kafka's transactional producers. The name, with the project's prefix, is the transactional id.

Kafka lets such a producer write in transactions only, so a `send` outside of one is a small transaction by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from confluent_kafka import Consumer as ConsumerClient
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as At

from headrace.errors import Fenced, HeadraceError, LogError, UsageError
from headrace.log.base import Appended, Consumer, Producer, TopicPartition
from headrace.log.kafka.client import Connection
from headrace.log.kafka.delivery import Delivery
from headrace.log.kafka.encode import Outgoing
from headrace.log.kafka.errors import FENCED, error_of, is_lost_member, translate
from headrace.log.kafka.groups import Groups
from headrace.log.kafka.ids import KafkaIds
from headrace.log.kafka.offsets import Offsets
from headrace.log.kafka.producer import Encode
from headrace.log.kafka.transaction import READABLE_S, Transactor


@dataclass(frozen=True, slots=True)
class _Sent:
    kafka: str
    future: Future[Appended]
    delivery: Delivery
    known: tuple[int, ...]
    """Rows that were not sent: their ids were there."""


class NamedProducer(Producer):
    def __init__(
        self,
        connection: Connection,
        offsets: Offsets,
        encode: Encode,
        ids: KafkaIds | None,
        groups: Groups,
        name: str,
        timeout_s: float,
    ) -> None:
        self.name = name
        self._groups = groups
        self._connection = connection
        self._offsets = offsets
        self._encode, self._ids = encode, ids
        self._transactor = Transactor(connection, offsets, connection.settings.prefix + name, timeout_s)
        self._sent: list[_Sent] = []
        self._digests: dict[str, set[bytes]] = {}
        """Of the ids that the transaction has, by topic."""
        self._state: Literal["", "open", "broken"] = ""
        self._why: HeadraceError | None = None
        self._fenced: Fenced | None = None
        try:
            self._sender = self._transactor.open()
        except KafkaException as failure:
            raise translate(failure, f"open producer `{name}`", connection) from failure

    def send(self, topic: str, batch: pa.RecordBatch, partition: int | None = None) -> Future[Appended]:
        alone = not self._state
        future: Future[Appended] = Future()
        try:
            self._check_fenced()
            messages, known = self._without_known(self._encode(topic, batch, partition))
            if alone:
                self.begin()
        except HeadraceError as error:
            if not alone:
                self._state, self._why = "broken", self._why or error
            future.set_exception(error)
            return future
        delivery = Delivery([messages], lambda _: None)
        self._sent.append(_Sent(messages.kafka, future, delivery, known))
        self._sender.hand_over([messages], delivery)
        self._sender.hear()
        if alone:
            self._commit_alone()
        return future

    def _without_known(self, messages: Outgoing) -> tuple[Outgoing, tuple[int, ...]]:
        """Rows whose id the topic or the transaction has are left out. Looked up as they are sent: a transaction has a
        name of its own, so it cannot also have the turn of those who write ids (`identified`)."""
        if self._ids is None or not messages.digests:
            return messages, ()
        [known] = self._ids.sift([messages], in_turn=False, sent=self._digests)
        self._digests.setdefault(messages.topic, set()).update(filter(None, messages.digests))
        return messages.without(set(known)), known

    def _commit_alone(self) -> None:
        """What went wrong is the send's to tell."""
        try:
            self.commit()
        except HeadraceError:
            if self._state and self._fenced is None:
                self.abort()

    def flush(self, timeout: float = 30.0) -> None:
        self._check_fenced()
        self._sender.flush(timeout)

    def begin(self) -> None:
        if self._state:
            raise UsageError("a transaction is open already", hint="commit or abort it first")
        self._check_fenced()
        self._step(self._sender.producer.begin_transaction, "begin a transaction")
        self._state = "open"

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int], consumer: Consumer | None = None) -> None:
        self._check_open()
        prefix, seconds = self._connection.settings.prefix, self._connection.settings.request_seconds
        places = [At(prefix + at.topic, at.partition, offset) for at, offset in offsets.items()]
        self._groups.note_sent(group, offsets)
        try:
            self._step(
                lambda: self._sender.producer.send_offsets_to_transaction(
                    places, self._membership(prefix + group, consumer), seconds
                ),
                f"commit offsets of `{group}`",
            )
        except Fenced as error:
            # Told at the commit, as a member may have lost a partition at any moment before it.
            self._state, self._why = "broken", error

    def _membership(self, group: str, consumer: Consumer | None) -> Any:
        if consumer is not None and hasattr(consumer, "membership"):
            return consumer.membership()
        client = ConsumerClient(self._connection.conf(group_id=group))
        try:
            return client.consumer_group_metadata()
        finally:
            client.close()

    def commit(self) -> None:
        self._check_open()
        if self._state == "broken":
            raise self._why or LogError("the transaction is broken", hint="abort it")
        doing = f"commit a transaction of `{self.name}`"
        self.flush(self._connection.settings.delivery_seconds)
        for one in self._sent:
            if one.delivery.cause is not None:
                self._state = "broken"
                self._why = self._failure(KafkaException(one.delivery.cause), doing, one.kafka)
                raise self._why
        self._step(lambda: self._transactor.retry(self._sender.producer.commit_transaction, doing), doing)
        self._finish()

    def _finish(self) -> None:
        sent = self._end()
        ends: dict[TopicPartition, int] = {}
        for one in sent:
            for partition, _, last in one.delivery.appended()[0].positions:
                at = TopicPartition(one.kafka, partition)
                ends[at] = max(last + 1, ends.get(at, 0))
        with contextlib.suppress(HeadraceError):
            # It is committed, whatever becomes of the wait.
            self._offsets.wait_for(ends, READABLE_S)
        for one in sent:
            one.future.set_result(replace(one.delivery.appended()[0], duplicates=one.known))

    def _end(self) -> list[_Sent]:
        sent, self._sent, self._digests, self._state, self._why = self._sent, [], {}, "", None
        return sent

    def abort(self) -> None:
        if not self._state:
            raise UsageError("there is no transaction", hint="`begin` one first")
        doing = f"abort a transaction of `{self.name}`"
        self._sender.let_go()
        try:
            self._step(lambda: self._transactor.retry(self._sender.producer.abort_transaction, doing), doing)
        finally:
            self._fail_all(LogError("the transaction was aborted"))

    def _fail_all(self, error: HeadraceError) -> None:
        for one in self._end():
            if not one.future.done():
                one.future.set_exception(error)

    def _check_fenced(self) -> None:
        if self._fenced is not None:
            raise self._fenced

    def _check_open(self) -> None:
        self._check_fenced()
        if not self._state:
            raise UsageError("there is no transaction", hint="`begin` one first")

    def _step(self, step: Callable[[], object], doing: str) -> None:
        try:
            step()
        except KafkaException as failure:
            raise self._failure(failure, doing, None) from failure

    def _failure(self, failure: KafkaException, doing: str, topic: str | None) -> HeadraceError:
        """Somebody of our name is newer: then it is over, for good."""
        error = error_of(failure)
        if error is not None and error.code() in FENCED:
            self._fenced = Fenced(
                f"another producer named `{self.name}` took over", detail=error.str(), hint="one of a name at a time"
            )
            self._fail_all(self._fenced)
            return self._fenced
        if error is not None and is_lost_member(error):
            return Fenced(f"could not {doing}: the group has moved on", detail=error.str())
        return translate(failure, doing, self._connection, topic)

    def close(self) -> None:
        if self._state and self._fenced is None:
            try:
                self.abort()
            except HeadraceError:
                self._transactor.drop()
        self._transactor.close()
