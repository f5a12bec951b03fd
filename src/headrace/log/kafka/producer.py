"""Producers without a name: librdkafka's idempotent producer, which writes each batch once and in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import get_args

import pyarrow as pa
from confluent_kafka import Producer as Client

from headrace.errors import DeadlineExceeded, HeadraceError, UsageError
from headrace.log.base import Acks, Appended, Consumer, Producer, TopicPartition
from headrace.log.kafka.client import Conf, Connection
from headrace.log.kafka.delivery import Delivery, Poller, Sender
from headrace.log.kafka.encode import Outgoing
from headrace.log.kafka.errors import translate

Encode = Callable[[str, pa.RecordBatch, int | None], Outgoing]
"""Topic, batch and partition → messages; raises what is wrong with them."""
Identified = Callable[[Sequence[Outgoing], Acks], Future[list[Appended]]]
"""Writes messages whose event ids have to be looked up."""


def plain_conf(connection: Connection, acks: Acks, linger_ms: float) -> Conf:
    """Of a producer that does not do transactions."""
    if acks not in get_args(Acks):
        raise UsageError(f"acks must be `0`, `1` or `all`, got `{acks}`")
    settings = connection.settings
    return connection.conf(
        acks=acks,
        enable_idempotence=acks == "all",
        linger_ms=linger_ms,
        delivery_timeout_ms=int(settings.delivery_seconds * 1000 + linger_ms),
        compression_type="lz4",
        partitioner="murmur2_random",
    )


class PlainProducer(Producer):
    def __init__(
        self, connection: Connection, encode: Encode, identified: Identified, acks: Acks, linger_ms: float
    ) -> None:
        client = Client(plain_conf(connection, acks, linger_ms))
        self._connection = connection
        self._encode, self._identified = encode, identified
        self._waiting: deque[Future[list[Appended]]] = deque()
        """What was sent with ids, and is not answered yet."""
        self._acks = acks
        self._sender = Sender(client, connection.settings.request_seconds)
        self._poller = Poller(client, "headrace-kafka-producer")
        self._failed: HeadraceError | None = None
        self._closed = False

    def send(self, topic: str, batch: pa.RecordBatch, partition: int | None = None) -> Future[Appended]:
        if self._closed:
            raise UsageError("the producer is closed")
        future: Future[Appended] = Future()
        try:
            messages = self._encode(topic, batch, partition)
        except HeadraceError as error:
            self._failed = self._failed or error
            future.set_exception(error)
            return future
        if messages.digests:
            return self._send_identified(messages)
        # What went before it has to be there before it.
        self._settle(time.monotonic() + self._connection.settings.delivery_seconds)
        delivery = Delivery([messages], lambda done: self._delivered(topic, future, done))
        if self._acks != "all":
            future.set_result(Appended(()))
        self._sender.hand_over([messages], delivery)
        if not len(messages):
            self._delivered(topic, future, delivery)
        return future

    def _send_identified(self, messages: Outgoing) -> Future[Appended]:
        """By the log's own writer, which looks ids up: in turns with what this producer sends itself."""
        self._sender.producer.flush(self._connection.settings.delivery_seconds)
        written = self._identified([messages], self._acks)
        self._waiting.append(written)
        while self._waiting and self._waiting[0].done() and self._waiting[0].exception() is None:
            self._waiting.popleft()
        future: Future[Appended] = Future()

        def answered(done: Future[list[Appended]]) -> None:
            error = done.exception()
            if error is None:
                future.set_result(done.result()[0])
            else:
                future.set_exception(error)

        written.add_done_callback(answered)
        return future

    def _settle(self, deadline: float) -> None:
        """Until all that was sent with ids is answered."""
        while self._waiting:
            try:
                error = self._waiting[0].exception(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise DeadlineExceeded("not everything was acknowledged in time") from None
            self._waiting.popleft()
            if isinstance(error, HeadraceError):
                self._failed = self._failed or error

    def _delivered(self, topic: str, future: Future[Appended], delivery: Delivery) -> None:
        if delivery.error is not None:
            error = translate(delivery.error, f"write to `{topic}`", self._connection, topic)
            self._failed = self._failed or error
            if not future.done():
                future.set_exception(error)
        elif not future.done():
            future.set_result(delivery.appended()[0])

    def flush(self, timeout: float = 30.0) -> None:
        deadline = time.monotonic() + timeout
        while self._sender.producer.flush(0.1):
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"not everything was acknowledged within {timeout:.0f} s")
        self._settle(deadline)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def begin(self) -> None:
        raise UsageError("a producer without a name has no transactions", hint="give it a name of its own")

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int], consumer: Consumer | None = None) -> None:
        self.begin()

    def commit(self) -> None:
        self.begin()

    def abort(self) -> None:
        self.begin()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self.flush(self._connection.settings.delivery_seconds)
        finally:
            self._poller.stop()
