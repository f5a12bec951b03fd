"""A transactional producer that survives its troubles: what cannot be aborted is fenced by starting anew."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaException, Producer

from headrace.errors import HeadraceError, OwnerLost
from headrace.log.base import Appended, TopicPartition
from headrace.log.kafka.client import Connection
from headrace.log.kafka.delivery import Delivery, Sender
from headrace.log.kafka.encode import Outgoing
from headrace.log.kafka.errors import FENCED, error_of, translate
from headrace.log.kafka.offsets import Offsets

READABLE_S = 5.0
"""How long a writer waits until what it committed can be read. Kafka needs milliseconds for that; it takes longer only
if somebody else's transaction is open in the same partition, for which a writer must not wait."""


class Transactor:
    """Commits batches in transactions of one transactional id, one at a time. Safe to use from several threads.

    Opening one finishes what a former holder of the id left open: committed if that one had decided so, else aborted.
    """

    def __init__(
        self, connection: Connection, offsets: Offsets, transactional_id: str, timeout_s: float, shared: bool = False
    ) -> None:
        """`shared`: the id goes from one to another, and losing it is nothing to write into anybody's log."""
        self.id = transactional_id
        self._shared = shared
        self._connection = connection
        self._offsets = offsets
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._sender: Sender | None = None

    @property
    def sender(self) -> Sender | None:
        """The producer that has the id now, as far as is known; another one after each time it was taken anew."""
        return self._sender

    def open(self) -> Sender:
        """The producer, ready to begin."""
        if self._sender is None:
            delivery_s = self._connection.settings.delivery_seconds
            quiet = {"log_level": 0} if self._shared else {}
            producer = Producer(
                self._connection.conf(
                    transactional_id=self.id,
                    transaction_timeout_ms=int(self._timeout_s * 1000),
                    delivery_timeout_ms=int(min(self._timeout_s, delivery_s) * 1000),
                    linger_ms=1,
                    compression_type="lz4",
                )
                | quiet
            )
            self.retry(producer.init_transactions, "begin with transactions")
            self._sender = Sender(producer, self._connection.settings.request_seconds)
        return self._sender

    def run(
        self,
        batches: Callable[[], Iterable[Outgoing]],
        doing: str,
        check: Callable[[], bool] | None = None,
        unread: str = "",
    ) -> list[Appended] | None:
        """Commit all batches in one transaction, and wait a moment until they can be read, but for those in the topic
        `unread`. `check` is called once nobody else can commit with this id; if it returns False, nothing is written
        and None is returned."""
        with self._lock:
            try:
                sender = self.open()
            except KafkaException as failure:
                self.drop()
                raise translate(failure, doing, self._connection) from failure
            if check is not None and not check():
                return None
            deliveries: list[Delivery] = []
            names: list[str] = []
            ends: dict[TopicPartition, int] = {}
            try:
                sender.producer.begin_transaction()
                for batch in batches():
                    names.append(batch.kafka)
                    deliveries.append(Delivery([batch], _nothing))
                    sender.hand_over([batch], deliveries[-1])
                    sender.hear()
                sender.flush(self._timeout_s)
                for delivery in deliveries:
                    if delivery.cause is not None:
                        raise KafkaException(delivery.cause)
                self.retry(sender.producer.commit_transaction, doing)
            except (KafkaException, HeadraceError) as failure:
                raise self.give_up(failure, doing) from failure
            appended = [found for delivery in deliveries for found in delivery.appended()]
            for name, found in zip(names, appended, strict=True):
                for partition, _, last in found.positions:
                    if name != unread:
                        ends[TopicPartition(name, partition)] = last + 1
            # It is committed, whatever becomes of the wait: an error now would make the caller write it again.
            with contextlib.suppress(HeadraceError):
                self._offsets.wait_for(ends, READABLE_S)
            return appended

    def give_up(self, failure: BaseException, doing: str) -> HeadraceError:
        """Abort; if even that cannot be, forget the producer: the next one aborts by taking the id again."""
        error, sender = error_of(failure), self._sender
        if error is not None and error.code() in FENCED:
            self.drop()
        elif sender is not None:
            sender.let_go()
            try:
                self.retry(sender.producer.abort_transaction, doing)
            except (KafkaException, HeadraceError):
                self.drop()
        return translate(failure, doing, self._connection)

    def retry(self, step: Callable[[float], None], doing: str) -> None:
        """Steps of a transaction may be tried again as long as librdkafka says so; it does not lose its place."""
        deadline = time.monotonic() + max(self._timeout_s, self._connection.settings.request_seconds)
        while True:
            left = deadline - time.monotonic()
            try:
                step(max(1.0, min(left, 10.0)))
                return
            except KafkaException as failure:
                error = error_of(failure)
                if error is None or not error.retriable() or error.txn_requires_abort():
                    raise
                if left <= 0:
                    raise OwnerLost(
                        f"could not {doing}: Kafka did not answer in time", detail=error.str(), hint="try again"
                    ) from failure

    def drop(self) -> None:
        """Forget the producer without a word to Kafka."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.let_go()
            sender.producer.purge()
            sender.let_go()

    def close(self) -> None:
        with self._lock:
            sender, self._sender = self._sender, None
            if sender is not None:
                sender.let_go()


def _nothing(_: Delivery) -> None:
    """What became of the messages is looked at after the flush."""
