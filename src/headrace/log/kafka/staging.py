"""What tasks hand over of a query's batch, kept here until the commit, and the commit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from headrace.clock import Clock
from headrace.log.base import BatchIdentity, Route
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
    ) -> None:
        """`encoder` finds a topic's, `check` refuses what Kafka would, `write` appends."""
        self._batches = batches
        self._encoder = encoder
        self._check = check
        self._write = write
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
            return (batch for staged in taken for batch in self._messages(staged))

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

    def _messages(self, staged: Staged) -> Iterator[Outgoing]:
        for prepared in staged:
            encoder = self._encoder(prepared.topic)
            batch = encoder.encode_ready(upgrade(prepared, encoder.preparer), None)
            self._check(batch)
            yield batch

    def abort(self, transaction: str) -> None:
        self._transactions.forget(transaction)

    def close(self) -> None:
        self._transactions.close()
