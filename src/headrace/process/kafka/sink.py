"""A query's rows → Kafka, exactly once: one transaction a batch, with the batch's identity in it.

Kafka's transactions belong to one producer, so rows pass through the driver. `KafkaLog.commit` makes the transaction; a
batch that Spark hands over again, because it was killed before it could note that the batch was done, is known by its
identity and not written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from headrace.errors import HeadraceError, QueryFailed
from headrace.log.base import Route
from headrace.log.kafka import KafkaLog
from headrace.process.base import QuerySpec
from headrace.process.kafka.checkpoint import batch_identity, planned_batch
from headrace.process.kafka.letters import DeadLetters

WriteBatch = Callable[[DataFrame, int], None]


def write_batches(
    log: KafkaLog,
    spec: QuerySpec,
    routes: Sequence[Route],
    stops: Mapping[str, Mapping[int, int]],
    letters: DeadLetters,
) -> WriteBatch:
    """For `foreachBatch`. `stops`: what comes before these offsets, by topic, has its results in the log already.
    `letters`: what tasks cannot decode."""

    def write(frame: DataFrame, number: int) -> None:
        try:
            _write(log, spec, routes, stops, letters, frame, number)
        except HeadraceError as error:
            # What Python raises passes through the JVM as text; the code is what is looked for there.
            raise QueryFailed(f"{error.code}: {error}") from error

    return write


def _write(
    log: KafkaLog,
    spec: QuerySpec,
    routes: Sequence[Route],
    stops: Mapping[str, Mapping[int, int]],
    letters: DeadLetters,
    frame: DataFrame,
    number: int,
) -> None:
    identity = batch_identity(spec, number, log.kafka_names)
    if log.last_identity(spec.id, spec.version) == identity:
        return
    transaction = f"{spec.id}-v{spec.version}-{number}"
    log.abort(transaction)
    letters.clear()
    tasks = [(0, 0)]
    if _is_known(log, spec, stops, number):
        frame.write.format("noop").mode("overwrite").save()  # for the state alone
        log.stage(transaction, 0, 0, routes, iter(()))
    else:
        table: Any = frame.toArrow()
        log.stage(transaction, 0, 0, routes, iter(table.to_batches()))
        tasks += letters.stage(log, transaction, 1)
    log.commit(transaction, tasks, identity)


def _is_known(log: KafkaLog, spec: QuerySpec, stops: Mapping[str, Mapping[int, int]], number: int) -> bool:
    """Batches end at the stops, so one is before them or behind them as a whole."""
    if not stops:
        return False
    planned = planned_batch(spec.checkpoint, number)
    return all(
        end <= offsets.get(partition, 0)
        for topic, offsets in stops.items()
        for partition, end in planned.ends(*log.kafka_names(topic)).items()
    )
