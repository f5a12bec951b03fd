"""Messages on their way: handing them to librdkafka, and what becomes of them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.log.base import Appended
from headrace.log.kafka.client import Introductions
from headrace.log.kafka.encode import Outgoing
from headrace.log.kafka.errors import error_of

Receiver: TypeAlias = Callable[[KafkaError | None, Message], None]

_FULL_S = 0.05
_LAST_WORDS = 100


class Delivery:
    """Collects where the messages of some batches went, and calls back once, when the fate of all is known."""

    def __init__(self, batches: Sequence[Outgoing], done: Callable[[Delivery], None]) -> None:
        self.error: KafkaError | None = None
        self.topic = ""
        self._total = sum(map(len, batches))
        # No lock: librdkafka's client may call back with an error pending, under which a lock would be taken and never
        # given back. A step of a counter is one step.
        self._counter = itertools.count(1)
        self._done = done
        self._places: list[dict[int, tuple[int, int]]] = [{} for _ in batches]

    def receiver(self, number: int) -> Receiver:
        """The delivery callback for the messages of one batch."""
        places = self._places[number]

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                partition, offset = message.partition(), message.offset()
                known = places.get(partition)
                places[partition] = (offset, offset) if known is None else (known[0], max(known[1], offset))
            elif self.error is None:
                self.error, self.topic = error, message.topic()
            self.count(1)

        return delivered

    def fail(self, failure: KafkaException, topic: str, left: int) -> None:
        """These many could not even be handed over."""
        if self.error is None:
            self.error, self.topic = error_of(failure) or KafkaError(KafkaError._FAIL), topic
        self.count(left)

    @property
    def cause(self) -> KafkaError | None:
        """Why it failed. Messages that were thrown away because the transaction broke, and those that came after the
        producer's end, do not know; the commit does."""
        unknowing = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL)
        return None if self.error is None or self.error.code() in unknowing else self.error

    def count(self, number: int) -> None:
        for _ in range(number):
            if next(self._counter) == self._total:
                self._done(self)

    def appended(self) -> list[Appended]:
        return [
            Appended(tuple((partition, *place) for partition, place in sorted(places.items())))
            for places in self._places
        ]


class Sender:
    """A producer of librdkafka's, as we use it. For one thread."""

    def __init__(self, producer: Producer, seconds: float) -> None:
        self.producer = producer
        self._introductions = Introductions(producer, seconds)

    def hand_over(self, batches: Sequence[Outgoing], delivery: Delivery) -> None:
        """All messages into librdkafka's queue; waits while that is full."""
        for number, batch in enumerate(batches):
            receiver = delivery.receiver(number)
            row = 0
            try:
                self._introductions.introduce(batch.kafka)
                for row in range(len(batch)):
                    self._produce(batch, row, receiver)
            except KafkaException as failure:
                delivery.fail(failure, batch.topic, len(batch) - row)

    def _produce(self, batch: Outgoing, row: int, receiver: Receiver) -> None:
        while True:
            try:
                self.producer.produce(
                    batch.kafka,
                    value=batch.values[row],
                    key=batch.keys[row],
                    partition=batch.partitions[row],
                    timestamp=batch.times[row],
                    headers=batch.headers[row] if batch.headers else None,
                    on_delivery=receiver,
                )
                return
            except BufferError:
                self.hear(_FULL_S)

    def flush(self, seconds: float) -> int:
        """How many messages are still on their way. A producer that was fenced says so by an error; the commit that
        follows says why. (Its own `flush` would go on calling back with that error pending.)"""
        deadline = time.monotonic() + seconds
        try:
            while len(self.producer) and time.monotonic() < deadline:
                self.producer.poll(_FULL_S)
        except (KafkaException, SystemError):
            return 0
        return len(self.producer)

    def hear(self, seconds: float = 0.0) -> int:
        """Let it call back. A producer that was fenced raises its end here, from whichever call comes first; a step of
        a transaction would go on calling back with that pending, which Python does not survive. So it is heard before
        each, and told by what follows: deliveries, or the step itself."""
        try:
            return int(self.producer.poll(seconds))
        except (KafkaException, SystemError):
            return 1

    def let_go(self) -> None:
        """Have it say what it has to say, or it would do so when nobody can listen any more."""
        for _ in range(_LAST_WORDS):
            if not self.hear():
                return


class Poller:
    """A thread that lets one producer call back."""

    def __init__(self, producer: Producer, name: str) -> None:
        self._producer = producer
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(0.1)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
