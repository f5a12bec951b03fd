"""What tasks hand over of a query's batch, kept here until the commit, and the commit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from headrace.clock import Clock
from headrace.log.base import PUBLISHER_PREFIX, BatchIdentity, Route
from headrace.log.kafka.batches import Batches
from headrace.log.kafka.encode import Encoder, Outgoing
from headrace.log.writing.prepare import upgrade
from headrace.log.writing.routes import route_rows
from headrace.log.writing.transactions import Staged, Transactions


class Staging:
    """Safe to use from several threads."""

    def __init__(
        self,
        batches: Batches,
        encoder: Callable[[str], Encoder],
        check: Callable[[Outgoing], None],
        write: Callable[[list[Outgoing]], None],
        clock: Clock,
        memory_bytes: int,
        forks: Callable[[], Mapping[str, str]],
    ) -> None:
        """`encoder` finds a topic's, `check` refuses what Kafka would, `write` appends, `forks` are known by the names
        of their originals: what queries write to those goes to the forks."""
        self._batches = batches
        self._encoder = encoder
        self._check = check
        self._write = write
        self._forks = forks
        self._transactions = Transactions(Path(tempfile.gettempdir()), clock, memory_bytes)

    def stage(
        self, transaction: str, task: int, attempt: int, routes: Sequence[Route], batches: Iterator[pa.RecordBatch]
    ) -> int:
        self._transactions.forget_old()
        preparers = [self._encoder(route.topic).preparer for route in routes]
        prepared = (part for batch in batches for part in route_rows(routes, preparers, batch))
        return self._transactions.stage(transaction, (task, attempt), prepared)

    def commit(self, transaction: str, tasks: Sequence[tuple[int, int]], identity: BatchIdentity | None) -> bool:
        """False if this very batch was committed before."""
        taken: list[Staged] = []

        def outgoing() -> Iterator[Outgoing]:
            named = self._transactions.put_in_order(transaction, tasks)
            taken.extend(self._transactions.take(transaction, named))
            of_query = identity is not None and not identity.query.startswith(PUBLISHER_PREFIX)
            forks = self._forks() if of_query else {}
            return (batch for staged in taken for batch in self._messages(staged, forks))

        fresh = True
        try:
            if identity is None:
                self._write(list(outgoing()))
            else:
                fresh = self._batches.commit(identity, outgoing)
        finally:
            self._transactions.release(taken)
        if not fresh:
            self._transactions.forget(transaction)
        return fresh

    def _messages(self, staged: Staged, forks: Mapping[str, str]) -> Iterator[Outgoing]:
        for prepared in staged:
            encoder = self._encoder(prepared.topic)
            batch = encoder.encode_ready(upgrade(prepared, encoder.preparer), None)
            if fork := forks.get(batch.topic):
                batch = replace(batch, topic=fork, kafka=self._encoder(fork).kafka)
            self._check(batch)
            yield batch

    def abort(self, transaction: str) -> None:
        self._transactions.forget(transaction)

    def close(self) -> None:
        self._transactions.close()
