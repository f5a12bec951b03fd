"""Whether a request can be part of the group that is being made, and what it adds to it.

Runs in the commit thread. What is refused here is refused before any of its rows was added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.errors import BatchConflict, NotFound
from headrace.log.base import PUBLISHER_PREFIX, Appended, Committed
from headrace.log.local.group import Group, OwnedTopic
from headrace.log.local.producers import check_epoch, known_results
from headrace.log.local.requests import AppendRequest, CommitRequest
from headrace.log.local.state import LogState
from headrace.log.writing.identities import CommittedBatch, is_repeat
from headrace.log.writing.prepare import Prepared
from headrace.log.writing.reshape import closed_partition
from headrace.log.writing.transactions import Transactions


def add_request(
    group: Group,
    request: AppendRequest | CommitRequest,
    state: LogState,
    topics: Mapping[str, OwnedTopic],
    transactions: Transactions,
) -> None:
    stamp = request.stamp
    if stamp is not None:
        producer = check_epoch(state.producers, stamp)
        known = known_results(producer, group.writes.get(stamp.producer, {}), stamp)
        if known is not None:
            request.result = known
            if isinstance(request, CommitRequest):
                transactions.forget(request.transaction)
            return
    if request.guard is not None:
        request.guard()
    if isinstance(request, AppendRequest):
        _check_topics(topics, request.parts)
        request.result = [result for part in request.parts for result in group.add(part, stamp)]
    elif stamp is not None:
        request.result = _add_staged(group, request, topics, transactions)
    else:
        _add_batch(group, request, state, topics, transactions)
    if stamp is not None:
        assert isinstance(request.result, list)
        group.note_write(stamp, request.result)


def _add_batch(
    group: Group,
    request: CommitRequest,
    state: LogState,
    topics: Mapping[str, OwnedTopic],
    transactions: Transactions,
) -> None:
    """A query's batch, once for its identity."""
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
    of_query = identity is not None and not identity.query.startswith(PUBLISHER_PREFIX)
    _add_staged(group, request, topics, transactions, state if of_query else None)
    request.result = Committed(group.next_arrival, duplicate=False)
    if identity is not None:
        group.batches[identity.query, identity.version] = CommittedBatch(identity, group.next_arrival)


def _add_staged(
    group: Group,
    request: CommitRequest,
    topics: Mapping[str, OwnedTopic],
    transactions: Transactions,
    state: LogState | None = None,
) -> list[Appended]:
    """With a `state`, rows for a topic that was forked go to the fork."""

    def placed(part: Prepared) -> Prepared:
        original = state.topics.get(part.topic_id) if state is not None else None
        if state is None or original is None or not original.fork:
            return part
        fork = state.topics[original.fork].topic
        return replace(part, topic=fork.name, topic_id=fork.id)

    request.taken = transactions.take(request.transaction, request.tasks)
    for staged in request.taken:
        _check_topics(topics, map(placed, staged.outlines()))
    return [result for staged in request.taken for part in staged for result in group.add(placed(part), request.stamp)]


def _check_topics(topics: Mapping[str, OwnedTopic], parts: Iterable[Prepared]) -> None:
    for part in parts:
        topic = topics.get(part.topic)
        if topic is None or topic.state.topic.id != part.topic_id:
            raise NotFound(f"topic `{part.topic}` was deleted", topic=part.topic)
        ranges = topic.state.topic.ranges
        for number in part.given if ranges else ():
            if ranges[number].closed:
                raise closed_partition(topic.state.topic, number)
