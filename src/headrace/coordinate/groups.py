"""Groups and queues in the words of the HTTP API, and where a group shall be after a reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from headrace.errors import HeadraceError, NotFound, UsageError
from headrace.log.base import Group, Log, TopicPartition
from headrace.log.queues import Queue


def describe_group(group: Group) -> dict[str, Any]:
    """The API's Group."""
    return {
        "name": group.name,
        "state": group.state,
        "lag": group.lag,
        "members": [
            {"id": member.id, "client": member.client, "partitions": [asdict(at) for at in sorted(member.partitions)]}
            for member in group.members
        ],
        "offsets": [
            asdict(offset.at)
            | {"committed": offset.committed, "end": offset.end, "lag": offset.lag, "member": offset.member}
            for offset in group.offsets
        ],
    }


def describe_groups(log: Log) -> list[dict[str, Any]]:
    found = []
    for name in log.groups():
        try:
            found.append(describe_group(log.group(name)))
        except NotFound:
            continue  # deleted meanwhile
    return found


def reset_offsets(
    log: Log,
    group: str,
    to: str | None = None,
    time_ms: int | None = None,
    offsets: Mapping[TopicPartition, int] | None = None,
    topics: Sequence[str] | None = None,
) -> dict[TopicPartition, int]:
    """Where each partition shall be: of the topics named, or of all that the group has offsets of."""
    if sum(way is not None for way in (to, time_ms, offsets)) != 1:
        raise UsageError("say where to: one of `to`, `time` and `offsets`", hint='{"to": "earliest"}')
    if offsets is not None:
        return dict(offsets)
    found: dict[TopicPartition, int] = {}
    snapshot = log.snapshot()
    for topic in topics or _topics_of(log, group):
        log.topic(topic)
        for partition, ends in enumerate(snapshot.ends[topic]):
            at = TopicPartition(topic, partition)
            if time_ms is not None:
                found[at] = log.offset_at_time(topic, partition, time_ms)
            else:
                found[at] = ends.start if to == "earliest" else ends.end
    return found


def _topics_of(log: Log, group: str) -> list[str]:
    try:
        return sorted({offset.at.topic for offset in log.group(group).offsets})
    except NotFound:
        raise NotFound(f"group `{group}` does not exist", hint="name the topics to give it offsets of") from None


def describe_queue(queue: Queue) -> dict[str, Any]:
    """The API's Queue."""
    fields = asdict(queue.definition)
    for internal in ("id", "topic_id"):
        del fields[internal]
    stats, error = queue.stats(), None
    try:
        queue.check()
    except HeadraceError as problem:
        error = problem.message
    numbers = {name: getattr(stats, name) for name in ("ready", "leased", "delayed", "dead", "missing")}
    return fields | numbers | {"error": error}
