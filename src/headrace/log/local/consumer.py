"""The local log's consumer, the same in the owner and in any other process: it reads the files itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from headrace.errors import Fenced, NotFound, NotRunning, OffsetOutOfRange, OwnerLost, UsageError
from headrace.log.base import Consumer, Log, PartitionEnds, Records, Snapshot, Start, Subscription, TopicPartition
from headrace.log.local.cursor import Cursor
from headrace.log.local.services import Answer, Beat, Coordination, SentOffsets
from headrace.log.subscription import wanted

OutOfRange = Literal["error", "earliest", "latest"]

_BEAT_S = 0.5
_SOON_S = 0.02
_PAST = 1 << 63
"""Of what nobody of a group began to read and nobody is to."""


class LocalConsumer(Consumer):
    def __init__(
        self,
        log: Log,
        coordination: Coordination,
        topics: Subscription,
        group: str | None = None,
        start: Start = "earliest",
        columns: Sequence[str] | None = None,
        client: str = "",
        session_timeout_s: float = 10.0,
        out_of_range: OutOfRange = "error",
    ) -> None:
        if start not in get_args(Start):
            raise UsageError(f"a consumer starts at `earliest` or `latest`, not `{start}`", hint="then `seek`")
        if out_of_range not in get_args(OutOfRange):
            raise UsageError(f"out_of_range is `error`, `earliest` or `latest`, not `{out_of_range}`")
        self._log, self._coordination = log, coordination
        self._wanted = wanted(topics)
        for name in self._wanted.names:
            log.topic(name)
        self._group, self._start, self._columns, self._client = group, start, columns, client
        self._timeout_s, self._out_of_range = session_timeout_s, out_of_range
        self.member: str | None = None
        """Our name in the group, while we are in it."""
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._at_start = {topic.id: topic.spec.partitions for topic in log.topics()}
        """What there was: topics and partitions that are made later are read from their beginning."""
        self._seen: Snapshot | None = None
        self._next_beat = 0.0
        self._turn = 0
        self._closed = False
        if group is None:
            self._look_around(log.snapshot())

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._cursors)

    def poll(self, timeout: float = 1.0, max_records: int = 10_000) -> list[Records]:
        if self._closed:
            raise UsageError("the consumer is closed")
        if max_records < 1:
            raise UsageError(f"cannot poll {max_records} records")
        deadline = time.monotonic() + timeout
        while True:
            snapshot = self._log.snapshot()
            self._look_around(snapshot)
            found = self._gather(snapshot, max_records)
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            until_beat = self._next_beat - time.monotonic() if self._group is not None else left
            self._log.wait(snapshot.arrival, max(0.001, min(left, until_beat)))

    # Reading

    def _gather(self, snapshot: Snapshot, most: int) -> list[Records]:
        """A fair share of every partition that has something, then the rest, beginning with another one each time."""
        ready = [(cursor, end) for cursor in self._in_turn() if (end := self._end(cursor, snapshot)) is not None]
        found: list[Records] = []
        for share in (max(1, most // len(ready)), most) if ready else ():
            for cursor, end in ready:
                if most > 0:
                    taken = self._take(cursor, end, min(share, most))
                    most -= sum(records.batch.num_rows for records in taken)
                    found += taken
        return found

    def _in_turn(self) -> list[Cursor]:
        cursors = list(self._cursors.values())
        self._turn = (self._turn + 1) % max(1, len(cursors))
        return cursors[self._turn :] + cursors[: self._turn]

    def _end(self, cursor: Cursor, snapshot: Snapshot) -> int | None:
        """Up to where a partition can be read, None if there is nothing to read."""
        ends = _ends(snapshot, cursor.at)
        if ends is None or cursor.paused or not self._parents_are_read(cursor, snapshot):
            return None
        if not ends.start <= cursor.position <= ends.end:
            self._overtaken(cursor, ends)
        return ends.end if cursor.position < ends.end else None

    def _parents_are_read(self, cursor: Cursor, snapshot: Snapshot) -> bool:
        """A partition that was split off, or merged, comes after those whose keys it has: so a key's order is kept."""
        # A topic that was deleted just now goes with the next look around.
        with contextlib.suppress(NotFound):
            unread = [parent for parent in cursor.parents if not self._is_read(cursor.at.topic, parent, snapshot)]
            cursor.parents = tuple(unread)
        return not cursor.parents

    def _is_read(self, topic: str, number: int, snapshot: Snapshot) -> bool:
        """To its end, and so is whatever came before it: an empty one says nothing of its parents."""
        left, seen = [number], set[int]()
        while left:
            if (number := left.pop()) in seen:
                continue
            seen.add(number)
            at = TopicPartition(topic, number)
            ends, ours = _ends(snapshot, at), self._cursors.get(at)
            empty = ends is None or ends.start == ends.end
            if ours is not None:
                left += ours.parents
            elif empty:
                left += self._log.topic(topic).parents(number)
            if not empty and ends is not None and self._reached(at) < ends.end:
                return False
        return True

    def _reached(self, at: TopicPartition) -> int:
        """How far we are, or whoever else of our group reads there."""
        if at in self._cursors:
            return self._cursors[at].position
        if self._group is None:
            return 0
        with contextlib.suppress(NotRunning, OwnerLost, NotFound):
            for offset in self._log.group(self._group).offsets:
                if offset.at == at and offset.committed is not None:
                    return offset.committed
        return _PAST if self._start == "latest" else 0

    def _overtaken(self, cursor: Cursor, ends: PartitionEnds) -> None:
        if self._out_of_range != "error":
            cursor.seek(ends.start if self._out_of_range == "earliest" else ends.end)
            return
        raise OffsetOutOfRange(
            f"topic `{cursor.at.topic}`, partition {cursor.at.partition}: offset {cursor.position} is not in the log",
            detail=f"it goes from {ends.start} to {ends.end}",
            hint="seek, or open the consumer with out_of_range `earliest` or `latest`",
            topic=cursor.at.topic,
            partition=cursor.at.partition,
            offset=cursor.position,
            start=ends.start,
            end=ends.end,
        )

    def _take(self, cursor: Cursor, end: int, most: int) -> list[Records]:
        try:
            return cursor.take(end, most)
        except NotFound:
            # Deleted just now; it goes with the next look around.
            return []
        except OffsetOutOfRange:
            if self._out_of_range == "error":
                raise
            return []

    # Partitions

    def _look_around(self, snapshot: Snapshot) -> None:
        """Which partitions are ours now."""
        if self._group is not None:
            if time.monotonic() >= self._next_beat:
                self._beat()
        elif snapshot is not self._seen:
            names = self._wanted.among(snapshot.ends)
            ours = {TopicPartition(name, number) for name in names for number in range(len(snapshot.ends[name]))}
            self._have(ours, {})
        if snapshot is not self._seen:
            self._drop_replaced()
        self._seen = snapshot

    def _beat(self) -> None:
        assert self._group is not None
        held = tuple(sorted(self._cursors))
        topics = self._wanted.among(topic.name for topic in self._log.topics())
        beat = Beat(self._group, self.member, self._client, topics, self._timeout_s, held)
        try:
            answer = self._coordination.beat(beat)
        except (NotRunning, OwnerLost):
            # Reading needs no owner; whether we are still a member is known when it is back.
            self._next_beat = time.monotonic() + _SOON_S
            return
        pause = min(_BEAT_S, self._timeout_s / 3) if answer.settled else _SOON_S
        self._next_beat = time.monotonic() + pause
        self.member = answer.member
        self._follow(answer)

    def _follow(self, answer: Answer) -> None:
        if answer.joined:
            for cursor in list(self._cursors.values()):
                # Kept only if nobody else can have read there meanwhile.
                if not answer.resumed or answer.committed.get(cursor.at) != cursor.committed:
                    del self._cursors[cursor.at]
        self._have(set(answer.partitions), answer.committed)

    def _have(self, ours: set[TopicPartition], committed: Mapping[TopicPartition, int]) -> None:
        for at in self._cursors.keys() - ours:
            del self._cursors[at]
        for at in sorted(ours - self._cursors.keys()):
            try:
                self._cursors[at] = self._cursor(at, committed.get(at))
            except NotFound:
                # Gone again, or not visible to this process yet: the next look around will tell.
                self._seen, self._next_beat = None, 0.0

    def _cursor(self, at: TopicPartition, committed: int | None) -> Cursor:
        topic = self._log.topic(at.topic)
        ends = _ends(self._log.snapshot(), at)
        if ends is None:
            raise NotFound(f"topic `{at.topic}` has no partition {at.partition}")
        position = committed
        if position is None:
            late = self._start == "latest" and at.partition < self._at_start.get(topic.id, 0)
            position = ends.end if late else ends.start
        cursor = Cursor(self._log, at, topic.id, self._columns, position, committed)
        cursor.parents = topic.parents(at.partition)
        return cursor

    def _drop_replaced(self) -> None:
        """Topics that were deleted, perhaps made again: those are other topics, and may have fewer partitions."""
        for at, cursor in list(self._cursors.items()):
            try:
                if self._log.topic(at.topic).id != cursor.topic_id:
                    self._cursors[at] = self._cursor(at, None)
            except NotFound:
                del self._cursors[at]

    # Positions

    def _at(self, at: TopicPartition) -> Cursor:
        cursor = self._cursors.get(at)
        if cursor is None:
            raise UsageError(
                f"partition {at.partition} of topic `{at.topic}` is not assigned to this consumer",
                hint="in a group, partitions are assigned by `poll`",
            )
        return cursor

    def position(self, at: TopicPartition) -> int:
        return self._at(at).position

    def seek(self, at: TopicPartition, to: int | Start) -> None:
        cursor = self._at(at)
        if isinstance(to, str):
            if to not in get_args(Start):
                raise UsageError(f"cannot seek to `{to}`", hint="an offset, `earliest` or `latest`")
            ends = _ends(self._log.snapshot(), at) or PartitionEnds(0, 0)
            to = ends.start if to == "earliest" else ends.end
        cursor.seek(to)

    def seek_to_time(self, time_ms: int) -> None:
        for at, cursor in self._cursors.items():
            cursor.seek(self._log.offset_at_time(at.topic, at.partition, time_ms))

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        for at in partitions:
            self._at(at).paused = True

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        for at in partitions:
            self._at(at).paused = False

    # The group

    def heartbeat(self) -> None:
        if self._group is None or self.member is None:
            return
        try:
            self._coordination.keep_alive(self._group, self.member)
        except Fenced:
            self._lost()
            raise

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        if self._group is None:
            raise UsageError("a consumer without a group has nothing to commit to", hint="give it a group")
        if offsets is None:
            offsets = {at: cursor.position for at, cursor in self._cursors.items() if cursor.given}
        if not offsets:
            return
        if self.member is None:
            raise Fenced(f"this consumer is not in group `{self._group}`", hint="poll: it joins the group")
        try:
            self._coordination.commit(SentOffsets(self._group, self.member, offsets))
        except Fenced as error:
            if "partition" not in error.data:
                self._lost()
            raise
        for at, offset in offsets.items():
            if cursor := self._cursors.get(at):
                cursor.committed, cursor.given = offset, cursor.given and cursor.position != offset

    def _lost(self) -> None:
        """Not a member any more: the next poll joins again."""
        self._next_beat = 0.0

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._cursors.clear()
        if self._group is not None and self.member is not None:
            # Without an owner there is no group to leave.
            with contextlib.suppress(NotRunning, OwnerLost):
                self._coordination.leave(self._group, self.member)
            self.member = None


def _ends(snapshot: Snapshot, at: TopicPartition) -> PartitionEnds | None:
    ends = snapshot.ends.get(at.topic, ())
    return ends[at.partition] if at.partition < len(ends) else None
