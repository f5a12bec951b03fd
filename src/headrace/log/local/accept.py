"""Whether a request can be part of the group that is being made, and what it adds to it.

Runs in the commit thread. What is refused here is refused before any of its rows was added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.errors import BatchConflict, NotFound
from headrace.log.base import Committed
from headrace.log.local.group import Group, OwnedTopic
from headrace.log.local.prepare import Prepared
from headrace.log.local.requests import AppendRequest, CommitRequest
from headrace.log.local.state import CommittedBatch, LogState
from headrace.log.local.transactions import Transactions, is_repeat


def add_request(
    group: Group,
    request: AppendRequest | CommitRequest,
    state: LogState,
    topics: Mapping[str, OwnedTopic],
    transactions: Transactions,
) -> None:
    if isinstance(request, AppendRequest):
        _check_topics(topics, request.parts)
        request.result = [group.add(part) for part in request.parts]
        return
    identity = request.identity
    last = None
    if identity is not None:
        key = (identity.query, identity.version)
        last = group.batches.get(key) or state.batches.get(key)
        try:
            repeated = is_repeat(last, identity)
        except BatchConflict:
            transactions.forget(request.transaction)
            raise
        if repeated:
            assert last is not None
            transactions.forget(request.transaction)
            request.result = Committed(last.arrival, duplicate=True)
            return
    request.taken = transactions.take(request.transaction, request.tasks)
    for staged in request.taken:
        _check_topics(topics, staged.outlines())
    for staged in request.taken:
        for part in staged:
            group.add(part)
    request.result = Committed(group.next_arrival, duplicate=False)
    if identity is not None:
        group.batches[identity.query, identity.version] = CommittedBatch(identity, group.next_arrival)


def _check_topics(topics: Mapping[str, OwnedTopic], parts: Iterable[Prepared]) -> None:
    for part in parts:
        topic = topics.get(part.topic)
        if topic is None or topic.state.topic.id != part.topic_id:
            raise NotFound(f"topic `{part.topic}` was deleted", topic=part.topic)
