"""Kafka's own consumer groups: listed, described, reset, deleted. Records deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient

from headrace.errors import Conflict, NotFound, OffsetOutOfRange
from headrace.log.base import Group, GroupMember, GroupOffset, PartitionEnds, TopicPartition
from headrace.log.kafka.client import Connection
from headrace.log.kafka.errors import error_of, translate

Ends = Callable[[TopicPartition], PartitionEnds]
"""Where a partition of ours begins and ends; `NotFound` if there is none."""
Left = Callable[[str, int, int, int], int]
"""How many records are left in a partition of Kafka's, from an offset to another."""
_STATES: dict[Any, Literal["empty", "rebalancing", "stable"]] = {
    ConsumerGroupState.STABLE: "stable",
    ConsumerGroupState.EMPTY: "empty",
    ConsumerGroupState.DEAD: "empty",
}
_MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
_AGAIN_S = 0.05
_SETTLED_S = 3.0
_UNSTABLE = KafkaError.UNSTABLE_OFFSET_COMMIT


class Groups:
    """Names are Headrace's, without the prefix."""

    def __init__(self, admin: AdminClient, connection: Connection, ends: Ends, left: Left) -> None:
        self._admin = admin
        self._connection = connection
        self._ends = ends
        self._left = left
        self._prefix = connection.settings.prefix
        self._seconds = connection.settings.request_seconds
        self._sent: dict[str, set[TopicPartition]] = {}

    def note_sent(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        """That this process commits a group's offsets of these in a transaction. A broker lists no partition whose
        first offset is part of a transaction that was committed just now: it has to be asked for that one."""
        self._sent.setdefault(name, set()).update(partitions)

    def names(self) -> list[str]:
        try:
            found = self._admin.list_consumer_groups(request_timeout=self._seconds).result()
        except KafkaException as failure:
            raise translate(failure, "list groups", self._connection) from failure
        ids = [group.group_id for group in found.valid]
        return sorted(id_.removeprefix(self._prefix) for id_ in ids if id_.startswith(self._prefix))

    def get(self, name: str) -> Group:
        described = self._describe(name)
        committed = self._committed(name)
        members = tuple(
            GroupMember(member.member_id, member.client_id, tuple(sorted(map(self._ours, _assigned(member)))))
            for member in (described.members if described else ())
        )
        if not members and not committed and name not in self.names():
            raise NotFound(f"group `{name}` does not exist", hint="`headrace group list` lists what there is")
        holders = {at: member.id for member in members for at in member.partitions}
        state = _STATES.get(described.state, "rebalancing") if described else "empty"
        offsets = (self._offset(at, committed.get(at), holders.get(at)) for at in sorted({*committed, *holders}))
        return Group(name, state, members, tuple(offset for offset in offsets if offset is not None))

    def _describe(self, name: str) -> Any:
        id_ = self._prefix + name
        try:
            return self._ask(id_, lambda: self._admin.describe_consumer_groups([id_], request_timeout=self._seconds))
        except KafkaException as failure:
            error = error_of(failure)
            if error is not None and error.code() == KafkaError.GROUP_ID_NOT_FOUND:
                return None
            raise translate(failure, f"describe group `{name}`", self._connection) from failure

    def _ask(self, id_: str, ask: Callable[[], Mapping[str, Any]]) -> Any:
        """The answer for a group, also while its coordinator is being elected or reads its offsets."""
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                return ask()[id_].result()
            except KafkaException as failure:
                error = error_of(failure)
                if error is None or error.code() not in _MOVING or time.monotonic() > deadline:
                    raise
            time.sleep(_AGAIN_S)

    def _committed(self, name: str) -> dict[TopicPartition, int]:
        """Offsets that are part of a transaction are waited for, because whoever committed it wants to see them; but
        not for long: if it is still open, those from before it hold."""
        deadline = time.monotonic() + _SETTLED_S
        while True:
            waiting = time.monotonic() < deadline
            found = self._list_offsets(name, stable=waiting)
            unlisted = self._sent.get(name, set()) - set(map(self._ours, found))
            if unlisted:
                found += self._list_offsets(name, waiting, sorted(unlisted))
            if not waiting or not any(at.error and at.error.code() == _UNSTABLE for at in found):
                return {self._ours(at): at.offset for at in found if at.offset >= 0}
            time.sleep(_AGAIN_S)

    def _list_offsets(self, name: str, stable: bool, asked: Sequence[TopicPartition] = ()) -> list[At]:
        """Of all partitions, unless some are asked for."""
        id_ = self._prefix + name
        places = [At(self._prefix + at.topic, at.partition) for at in asked]
        request = ConsumerGroupTopicPartitions(id_, places) if places else ConsumerGroupTopicPartitions(id_)
        try:
            found = self._ask(
                id_,
                lambda: self._admin.list_consumer_group_offsets(
                    [request], require_stable=stable, request_timeout=self._seconds
                ),
            )
        except KafkaException as failure:
            error = error_of(failure)
            if error is not None and error.code() == KafkaError.GROUP_ID_NOT_FOUND:
                return []
            raise translate(failure, f"describe group `{name}`", self._connection) from failure
        return list(found.topic_partitions)

    def _ours(self, at: At) -> TopicPartition:
        return TopicPartition(at.topic.removeprefix(self._prefix), at.partition)

    def _offset(self, at: TopicPartition, committed: int | None, member: str | None) -> GroupOffset | None:
        try:
            ends = self._ends(at)
        except NotFound:
            return None
        first = ends.start if committed is None else max(committed, ends.start)
        lag = self._left(self._prefix + at.topic, at.partition, first, ends.end)
        return GroupOffset(at, committed, ends.end, lag, member)

    def reset(self, name: str, offsets: Mapping[TopicPartition, int], force: bool) -> None:
        for at, offset in offsets.items():
            ends = self._ends(at)
            if not ends.start <= offset <= ends.end:
                raise OffsetOutOfRange(
                    f"topic `{at.topic}`, partition {at.partition} has no offset {offset}",
                    detail=f"it has {ends.start} to {ends.end}",
                    start=ends.start,
                    end=ends.end,
                )
        described = self._describe(name)
        if described is not None and described.members:
            raise Conflict(
                f"group `{name}` has {len(described.members)} members",
                detail="Kafka's clients cannot send members away" if force else None,
                hint="stop them first" if force else "stop them first, or use force where the log can",
            )
        id_ = self._prefix + name
        places = [At(self._prefix + at.topic, at.partition, offset) for at, offset in offsets.items()]
        request = ConsumerGroupTopicPartitions(id_, places)
        try:
            self._ask(id_, lambda: self._admin.alter_consumer_group_offsets([request], request_timeout=self._seconds))
        except KafkaException as failure:
            raise self._refused(failure, f"reset group `{name}`", name) from failure

    def delete(self, name: str) -> None:
        id_ = self._prefix + name
        try:
            self._ask(id_, lambda: self._admin.delete_consumer_groups([id_], request_timeout=self._seconds))
        except KafkaException as failure:
            raise self._refused(failure, f"delete group `{name}`", name) from failure

    def _refused(self, failure: KafkaException, doing: str, name: str) -> Exception:
        error = error_of(failure)
        if error is not None and error.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return NotFound(f"group `{name}` does not exist", hint="`headrace group list` lists what there is")
        if error is not None and error.code() in (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID):
            return Conflict(f"group `{name}` has members", hint="stop them first")
        return translate(failure, doing, self._connection)


def _assigned(member: Any) -> list[At]:
    return list(member.assignment.topic_partitions) if member.assignment else []
