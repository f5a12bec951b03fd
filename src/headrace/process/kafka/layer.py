"""The batch layer of a Lambda view → Kafka: one transaction, with the job's identity, which names the cut."""

from __future__ import annotations

import json

from headrace.errors import QueryFailed
from headrace.log.base import BatchIdentity
from headrace.log.kafka import KafkaLog
from headrace.process.base import LayerSpec
from headrace.process.kafka.letters import DeadLetters
from headrace.process.lower.sink import Routed


def commit_layer(log: KafkaLog, spec: LayerSpec, routed: Routed, letters: DeadLetters) -> None:
    """As every batch's on Kafka its rows pass through the driver. Done again it changes nothing: the identity is there,
    or nothing is."""
    if isinstance(spec.cut, int):
        raise QueryFailed(f"the batch layer `{spec.id}` ends at an arrival number, and Kafka has none")
    if log.last_identity(spec.id, 1) is not None:
        return
    transaction = f"{spec.id}-layer"
    log.abort(transaction)
    letters.clear()
    log.stage(transaction, 0, 0, routed.routes, iter(routed.frame.toArrow().to_batches()))
    tasks = [(0, 0), *letters.stage(log, transaction, 1)]
    log.commit(transaction, tasks, BatchIdentity(spec.id, 1, spec.id, 0, json.dumps({"topics": spec.cut})))
