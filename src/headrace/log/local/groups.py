"""The coordinator of groups. It lives in the owner; members talk to it directly or over the socket.

Membership is in memory only: after a restart of the owner members join again by themselves and get back what they had.
Committed offsets are records of the topic `_offsets`, written like any others.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.errors import Conflict, NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import Group, GroupMember, GroupOffset, PartitionEnds, TopicPartition
from headrace.log.local.members import Member, Members
from headrace.log.local.offsets import TOPIC, Offsets, offset_rows
from headrace.log.local.owner import Committer
from headrace.log.local.requests import Guard
from headrace.log.local.services import Answer, Beat, SentOffsets
from headrace.log.writing.prepare import Prepared

if TYPE_CHECKING:
    from headrace.log.local.log import LocalLog

SHORTEST_SESSION_S, LONGEST_SESSION_S = 0.1, 3600.0
SETTLE_S = 1.0
MOST_GROUPS = 10_000


class Coordinator:
    """Safe to use from several threads. Its lock is never held while waiting for the commit thread, which asks it
    whether a commit is still by a member."""

    def __init__(self, log: LocalLog, committer: Committer) -> None:
        self._log, self._committer, self._clock = log, committer, log.clock
        self._offsets = Offsets(log)
        self._lock = threading.Lock()
        self._groups: dict[str, Members] = {}

    # Members

    def beat(self, beat: Beat) -> Answer:
        _check_group(beat.group)
        if not SHORTEST_SESSION_S <= beat.timeout_s <= LONGEST_SESSION_S:
            raise UsageError(f"a session timeout cannot be {beat.timeout_s} s", hint="0.1 to 3600")
        partitions = {topic.name: topic.spec.partitions for topic in self._log.topics()}
        with self._lock:
            now = self._clock.monotonic()
            if len(self._groups) > MOST_GROUPS:
                self._forget_empty(now)
            group = self._groups.setdefault(beat.group, Members())
            group.expire(now, beat.member)
            known = group.by_id.get(beat.member or "")
            joined = known is None
            resumed = joined and beat.member is not None and not group.knows_gone(beat.member)
            if known is None:
                known = self._join(group, beat, now, resumed)
            else:
                known.held &= set(beat.held)
            known.wanted, known.timeout_s, known.deadline = beat.topics, beat.timeout_s, now + beat.timeout_s
            group.share_out(partitions)
            granted = group.grant(known, now)
            settled = granted == known.target
            generation = group.generation
        fresh = granted if joined else granted - set(beat.held)
        committed = self._committed_now(beat.group, fresh) if fresh else {}
        return Answer(known.id, generation, tuple(sorted(granted)), committed, joined, resumed, settled)

    def _forget_empty(self, now: float) -> None:
        """Groups nobody is in; their offsets are kept elsewhere. Otherwise every name ever used would stay."""
        for members in self._groups.values():
            members.expire(now)
        empty = [name for name, members in self._groups.items() if not members.by_id]
        for name in empty[: len(self._groups) - MOST_GROUPS // 2]:
            del self._groups[name]

    def _join(self, group: Members, beat: Beat, now: float, resumed: bool) -> Member:
        name = beat.member if resumed and beat.member else f"{beat.client or 'member'}-{uuid.uuid4().hex[:12]}"
        member = Member(name, beat.client, beat.topics, beat.timeout_s, now + beat.timeout_s)
        if resumed and not group.by_id:
            group.settle_until = now + min(SETTLE_S, beat.timeout_s)
        group.join(member, beat.held if resumed else ())
        return member

    def _committed_now(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Committed offsets, after every commit that was still allowed to whoever had the partitions before."""
        self._committer.control(lambda: None)
        known = self._offsets.committed(group)
        return {at: known[at] for at in partitions if at in known}

    def keep_alive(self, group: str, member: str) -> None:
        with self._lock:
            members = self._members(group)
            now = self._clock.monotonic()
            members.expire(now, member)
            members.check(group, member, ())
            members.by_id[member].deadline = now + members.by_id[member].timeout_s

    def leave(self, group: str, member: str) -> None:
        with self._lock:
            self._members(group).remove(member)

    def _members(self, group: str) -> Members:
        return self._groups.get(group) or Members()

    def _active(self, group: str) -> bool:
        with self._lock:
            members = self._members(group)
            members.expire(self._clock.monotonic())
            return bool(members.by_id)

    # Offsets

    def commit(self, sent: SentOffsets) -> None:
        parts, guard = self.rows([sent])
        self._committer.append(parts, "all", guard=guard).result()

    def rows(self, sent: Sequence[SentOffsets]) -> tuple[list[Prepared], Guard]:
        """Rows for `_offsets`, and the question the commit thread asks before it takes them."""
        batches = []
        for one in sent:
            _check_group(one.group)
            batches.append(offset_rows(one.group, self._with_topics(one.offsets)))
        preparer = self._preparer()

        def guard() -> None:
            with self._lock:
                for one in sent:
                    if one.member is not None:
                        members = self._members(one.group)
                        members.expire(self._clock.monotonic(), one.member)
                        members.check(one.group, one.member, one.offsets)

        return [preparer(batch) for batch in batches], guard

    def _preparer(self) -> Callable[..., Prepared]:
        self._offsets.topic()
        preparer = self._log.preparer(TOPIC)
        return lambda batch: preparer.prepare(batch, None)

    def _with_topics(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int] | None]:
        found: dict[TopicPartition, tuple[int, int] | None] = {}
        for at, offset in offsets.items():
            topic = self._log.topic(at.topic)
            if not 0 <= at.partition < topic.spec.partitions:
                raise NotFound(f"topic `{at.topic}` has no partition {at.partition}", topic=at.topic)
            if type(offset) is not int or offset < 0:
                raise UsageError(f"`{offset}` is not an offset")
            found[at] = (offset, topic.id)
        return found

    # Looking after groups

    def names(self) -> list[str]:
        with self._lock:
            now = self._clock.monotonic()
            for members in self._groups.values():
                members.expire(now)
            active = [name for name, members in self._groups.items() if members.by_id]
        return sorted({*active, *self._offsets.names()})

    def describe(self, name: str) -> Group:
        with self._lock:
            members = self._members(name)
            members.expire(self._clock.monotonic())
            holders = {at: member.id for member in members.by_id.values() for at in member.held}
            wanted = {at for member in members.by_id.values() for at in member.target}
            listed = tuple(
                GroupMember(member.id, member.client, tuple(sorted(member.held))) for member in members.by_id.values()
            )
            settled = members.is_settled
        committed = self._offsets.committed(name)
        if not listed and not committed and name not in self._offsets.names():
            raise NotFound(f"there is no group `{name}`", hint="`headrace group list` lists what there is")
        ends = self._log.snapshot().ends
        offsets = [
            _group_offset(at, committed.get(at), ends[at.topic][at.partition], holders.get(at))
            for at in sorted({*committed, *holders, *wanted})
            if at.topic in ends and at.partition < len(ends[at.topic])
        ]
        state = "empty" if not listed else "stable" if settled else "rebalancing"
        return Group(name, state, listed, tuple(offsets))  # type: ignore[arg-type]

    def reset(self, name: str, offsets: Mapping[TopicPartition, int], force: bool) -> None:
        _check_group(name)
        ends = self._log.snapshot().ends
        rows = self._with_topics(offsets)
        for at, offset in offsets.items():
            there = ends[at.topic][at.partition]
            if not there.start <= offset <= there.end:
                raise OffsetOutOfRange(
                    f"topic `{at.topic}`, partition {at.partition}: offset {offset} is not in the log",
                    detail=f"it goes from {there.start} to {there.end}",
                    start=there.start,
                    end=there.end,
                )
        self._clear(name, force)
        self._write(name, rows)

    def delete(self, name: str) -> None:
        known = self._offsets.everything(name)
        if not known and not self._active(name):
            raise NotFound(f"there is no group `{name}`", hint="`headrace group list` lists what there is")
        self._clear(name, force=False)
        self._write(name, dict.fromkeys(known))

    def _clear(self, name: str, force: bool) -> None:
        """Nobody is in the group any more; `Conflict` if somebody is and may stay."""
        with self._lock:
            members = self._members(name)
            members.expire(self._clock.monotonic())
            if members.by_id and not force:
                raise Conflict(
                    f"group `{name}` has {len(members.by_id)} members",
                    hint="stop them first, or use force: they are sent away and join again",
                )
            for member in list(members.by_id):
                members.remove(member)

    def _write(self, name: str, rows: Mapping[TopicPartition, tuple[int, int] | None]) -> None:
        if rows:
            self._committer.append([self._preparer()(offset_rows(name, rows))], "all").result()


def _group_offset(at: TopicPartition, committed: int | None, ends: PartitionEnds, member: str | None) -> GroupOffset:
    start = ends.start if committed is None else max(committed, ends.start)
    return GroupOffset(at, committed, ends.end, max(0, ends.end - start), member)


def _check_group(name: str) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= 249 or not name.isprintable():
        raise UsageError("a group's name has 1 to 249 printable characters")
