"""A query's batches: staged here, committed in one Kafka transaction together with the batch's identity.

The identity is a row of the table `_headrace_batches`, written in the same transaction as the rows. The transactional
id is the query's, so whoever commits first takes it over, and then reads what was committed before: a batch lands once,
whichever engine sends it and however often.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

import msgspec

from headrace.clock import Clock
from headrace.errors import LogError
from headrace.log.base import BatchIdentity
from headrace.log.kafka.client import Connection
from headrace.log.kafka.encode import Outgoing
from headrace.log.kafka.offsets import Offsets
from headrace.log.kafka.table import Table
from headrace.log.kafka.transaction import Transactor
from headrace.log.writing.identities import CommittedBatch, is_repeat
from headrace.structs import ready

_TRANSACTION_S = 60.0
_MOST_PRODUCERS = 64


class Batches:
    """Safe to use from several threads."""

    def __init__(self, connection: Connection, offsets: Offsets, table: Table, clock: Clock) -> None:
        self._connection = connection
        self._offsets = offsets
        self._clock = clock
        self._table = table
        self._lock = threading.Lock()
        self._transactors: dict[str, Transactor] = {}

    def last(self, query: str, version: int) -> BatchIdentity | None:
        row = self._table.refresh().get(_key(query, version))
        if row is None:
            return None
        try:
            return msgspec.json.decode(row, type=ready(BatchIdentity))
        except msgspec.DecodeError as error:
            raise LogError(f"the last batch of `{query}` is not legible", detail=str(error)) from error

    def commit(self, identity: BatchIdentity, staged: Callable[[], Iterable[Outgoing]]) -> bool:
        """False if this very batch was committed before. `BatchConflict` if it does not follow."""
        transactor = self._transactor(identity)
        key = _key(identity.query, identity.version)
        marker = self._table.row(key, msgspec.json.encode(asdict(identity)), self._clock.now_ms())

        def follows() -> bool:
            # Asked once the id is ours: nobody else can commit a batch of this query any more.
            known = self.last(identity.query, identity.version)
            return not is_repeat(None if known is None else CommittedBatch(known, 0), identity)

        def batches() -> Iterator[Outgoing]:
            yield from staged()
            yield marker

        return transactor.run(batches, f"commit batch {identity.batch} of `{identity.query}`", follows) is not None

    def _transactor(self, identity: BatchIdentity) -> Transactor:
        name = f"{self._connection.settings.prefix}{identity.query}-v{identity.version}"
        with self._lock:
            found = self._transactors.pop(name, None) or self._make(name)
            self._transactors[name] = found
            while len(self._transactors) > _MOST_PRODUCERS:
                # Queries that are no more: the one that was used longest ago.
                del self._transactors[next(iter(self._transactors))]
            return found

    def _make(self, name: str) -> Transactor:
        return Transactor(self._connection, self._offsets, name, _TRANSACTION_S)

    def close(self) -> None:
        for transactor in self._transactors.values():
            transactor.close()


def _key(query: str, version: int) -> str:
    return f"{query}/{version}"
