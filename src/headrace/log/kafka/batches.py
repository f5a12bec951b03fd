"""A query's batches: staged here, committed in one Kafka transaction together with the batch's identity.

The identity is a row of the table `_headrace_batches`, written in the same transaction as the rows. The transactional
id is the query's, so whoever commits first takes it over, and then reads what was committed before: a batch lands once,
whichever engine sends it and however often.

All queries share the table's one partition, and a reader sees it only up to the last stable offset: an open transaction
of another query hides every identity that was committed after it began. So a new holder of the id waits until the table
has settled before it trusts what it reads. From then on it remembers its own commits, because nobody else can commit
with the id without fencing it: it neither reads the table nor waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

import msgspec
from confluent_kafka import KafkaException

from headrace.clock import Clock
from headrace.errors import LogError
from headrace.log.base import BatchIdentity
from headrace.log.kafka.client import Connection
from headrace.log.kafka.delivery import Sender
from headrace.log.kafka.encode import Outgoing
from headrace.log.kafka.errors import translate
from headrace.log.kafka.offsets import Offsets, Unsettled
from headrace.log.kafka.table import Table
from headrace.log.kafka.transaction import Transactor
from headrace.log.writing.identities import CommittedBatch, is_repeat
from headrace.structs import ready

_TRANSACTION_S = 60.0
SETTLE_S = 90.0
"""How long a new holder waits for other queries' transactions: Kafka aborts an abandoned one after `_TRANSACTION_S`,
and looks for such every ten seconds."""
_MOST_PRODUCERS = 64


class Batches:
    """Safe to use from several threads."""

    def __init__(
        self, connection: Connection, offsets: Offsets, table: Table, clock: Clock, taken: Callable[[], object]
    ) -> None:
        """`taken` is called when a query's id was taken, before anything is written: whoever had it may have been shut
        out because a topic was forked."""
        self._connection = connection
        self._offsets = offsets
        self._clock = clock
        self._table = table
        self._taken = taken
        self._lock = threading.Lock()
        self._transactors: dict[str, Transactor] = {}
        self._own: dict[str, tuple[Sender, BatchIdentity]] = {}
        """By transactional id: the last batch, and the producer that has held the id since."""

    def last(self, query: str, version: int) -> BatchIdentity | None:
        """Return the last batch that can be read, or a later one that this process committed."""
        read = self._decode(self._table.refresh(), query, version)
        _, own = self._own.get(self._transactional_id(query, version), (None, None))
        return own if own is not None and (read is None or own.batch > read.batch) else read

    def last_settled(self, query: str, version: int) -> BatchIdentity | None:
        """Return the last batch, once no open transaction can hide it. `Unsettled` if one stays open."""
        try:
            rows = self._table.settle(SETTLE_S)
        except Unsettled as error:
            raise Unsettled(
                f"it is not known yet which batch of `{query}` was committed last",
                detail=f"a transaction has been open in `{self._table.topic}` for {SETTLE_S:g} s",
                hint="nothing was written; try again, as queries do by themselves. Is an engine or a broker stuck?",
            ) from error
        return self._decode(rows, query, version)

    @staticmethod
    def _decode(rows: dict[str, bytes], query: str, version: int) -> BatchIdentity | None:
        row = rows.get(_key(query, version))
        if row is None:
            return None
        try:
            return msgspec.json.decode(row, type=ready(BatchIdentity))
        except msgspec.DecodeError as error:
            raise LogError(f"the last batch of `{query}` is not legible", detail=str(error)) from error

    def commit(self, identity: BatchIdentity, staged: Callable[[], Iterable[Outgoing]]) -> bool:
        """Return False if this very batch was committed before. `BatchConflict` if it does not follow."""
        name = self._transactional_id(identity.query, identity.version)
        transactor = self._transactor(name)
        key = _key(identity.query, identity.version)
        marker = self._table.row(key, msgspec.json.encode(asdict(identity)), self._clock.now_ms())

        def follows() -> bool:
            # Asked once the id is ours: nobody else can commit a batch of this query any more.
            holder, known = self._own.pop(name, (None, None))
            if holder is not transactor.sender:
                self._taken()
                known = self.last_settled(identity.query, identity.version)
            fresh = not is_repeat(None if known is None else CommittedBatch(known, 0), identity)
            if not fresh:
                self._remember(name, transactor, identity)
            return fresh

        def batches() -> Iterator[Outgoing]:
            yield from staged()
            yield marker

        doing = f"commit batch {identity.batch} of `{identity.query}`"
        if transactor.run(batches, doing, follows, unread=self._table.topic) is None:
            return False
        self._remember(name, transactor, identity)
        return True

    def shut_out(self, query: str, version: int) -> None:
        """End the query's open transaction, and let nobody commit for it without taking its id anew."""
        transactor = self._make(self._transactional_id(query, version))
        try:
            transactor.open()
        except KafkaException as failure:
            raise translate(failure, f"shut out writers of `{query}`", self._connection) from failure
        finally:
            transactor.close()

    def _remember(self, name: str, transactor: Transactor, identity: BatchIdentity) -> None:
        sender = transactor.sender
        with self._lock:
            _, known = self._own.get(name, (None, None))
            if sender is not None and (known is None or known.batch < identity.batch):
                self._own[name] = (sender, identity)

    def _transactional_id(self, query: str, version: int) -> str:
        return f"{self._connection.settings.prefix}{query}-v{version}"

    def _transactor(self, name: str) -> Transactor:
        with self._lock:
            found = self._transactors.pop(name, None) or self._make(name)
            self._transactors[name] = found
            while len(self._transactors) > _MOST_PRODUCERS:
                # The query that committed longest ago has probably ended.
                oldest = next(iter(self._transactors))
                del self._transactors[oldest]
                self._own.pop(oldest, None)
            return found

    def _make(self, name: str) -> Transactor:
        return Transactor(self._connection, self._offsets, name, _TRANSACTION_S)

    def close(self) -> None:
        for transactor in self._transactors.values():
            transactor.close()


def _key(query: str, version: int) -> str:
    return f"{query}/{version}"
