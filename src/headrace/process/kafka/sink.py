"""A query's rows → Kafka, exactly once: one transaction a batch, with the batch's identity in it.

Kafka's transactions belong to one producer, so rows pass through the driver. `KafkaLog.commit` makes the transaction; a
batch that Spark hands over again, because it was killed before it could note that the batch was done, is known by its
identity and not written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame

from headrace.errors import HeadraceError, QueryFailed
from headrace.log.base import Log, Route
from headrace.process.base import QuerySpec
from headrace.process.kafka.checkpoint import batch_identity

WriteBatch = Callable[[DataFrame, int], None]


def write_batches(log: Log, spec: QuerySpec, routes: Sequence[Route]) -> WriteBatch:
    """For `foreachBatch`."""

    def write(frame: DataFrame, number: int) -> None:
        try:
            _write(log, spec, routes, frame, number)
        except HeadraceError as error:
            # What Python raises passes through the JVM as text; the code is what is looked for there.
            raise QueryFailed(f"{error.code}: {error}") from error

    return write


def _write(log: Log, spec: QuerySpec, routes: Sequence[Route], frame: DataFrame, number: int) -> None:
    identity = batch_identity(spec, number)
    if log.last_identity(spec.id, spec.version) == identity:
        return
    transaction = f"{spec.id}-v{spec.version}-{number}"
    table: Any = frame.toArrow()
    log.abort(transaction)
    log.stage(transaction, 0, 0, routes, iter(table.to_batches()))
    log.commit(transaction, [(0, 0)], identity)
