"""Who is in a group and who reads what: a group's members as values, without time, threads or files of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headrace.errors import Fenced
from headrace.log.assignment import assign
from headrace.log.base import TopicPartition

_REMEMBERED = 1000


@dataclass(slots=True)
class Member:
    id: str
    client: str
    wanted: frozenset[str]
    """Topics, as they match its subscription now."""
    timeout_s: float
    deadline: float
    held: set[TopicPartition] = field(default_factory=set)
    """What it reads."""
    target: set[TopicPartition] = field(default_factory=set)
    """What it is to read, once the others have let go."""


@dataclass(slots=True)
class Members:
    """One group. A partition changes hands in two steps: whoever has it lets go when it next polls, then the other gets
    it; so no partition is ever held by two."""

    generation: int = 0
    settle_until: float = 0.0
    """After a restart of the owner members get back what they had, before anything is shared out anew."""
    by_id: dict[str, Member] = field(default_factory=dict)
    _gone: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _basis: object = None

    def knows_gone(self, member: str) -> bool:
        return member in self._gone

    def join(self, member: Member, claims: Collection[TopicPartition]) -> None:
        member.held = {at for at in claims if self.holder(at) is None}
        member.target = set(member.held)
        self.by_id[member.id] = member
        self._basis = None
        self._gone.pop(member.id, None)

    def remove(self, member: str) -> None:
        if self.by_id.pop(member, None) is not None:
            self._basis = None
            self._gone[member] = None
            while len(self._gone) > _REMEMBERED:
                self._gone.popitem(last=False)

    def expire(self, now: float, caller: str | None = None) -> list[str]:
        late = [member.id for member in self.by_id.values() if member.deadline < now and member.id != caller]
        for member in late:
            self.remove(member)
        return late

    def holder(self, at: TopicPartition) -> str | None:
        return next((member.id for member in self.by_id.values() if at in member.held), None)

    def share_out(self, partitions: Mapping[str, int]) -> None:
        """New targets, if the members, what they want or the topics have changed."""
        wanted = {member.id: member.wanted for member in self.by_id.values()}
        basis = (wanted, partitions)
        if basis == self._basis:
            return
        self._basis = (wanted, dict(partitions))
        current = {member.id: member.target for member in self.by_id.values()}
        targets = assign(wanted, partitions, current)
        if any(member.target != targets[member.id] for member in self.by_id.values()):
            self.generation += 1
        for member in self.by_id.values():
            member.target = targets[member.id]

    def grant(self, member: Member, now: float) -> set[TopicPartition]:
        """What the member reads from now on: of its target, what nobody else holds."""
        others = {at for other in self.by_id.values() if other is not member for at in other.held}
        granted = member.target - others
        if now < self.settle_until:
            granted &= member.held
        member.held = granted
        return granted

    def check(self, group: str, member: str, partitions: Collection[TopicPartition]) -> None:
        """`Fenced` unless it is a member and holds these."""
        known = self.by_id.get(member)
        if known is None:
            raise Fenced(
                f"group `{group}` has moved on without this member",
                detail="it did not poll within its session timeout, or the group was reset",
                hint="poll again: it joins anew and continues from the committed offsets",
                group=group,
            )
        lost = sorted(set(partitions) - known.held)
        if lost:
            at = lost[0]
            raise Fenced(
                f"group `{group}`: partition {at.partition} of topic `{at.topic}` is not this member's",
                hint="commit before the next poll, which may move partitions",
                group=group,
                topic=at.topic,
                partition=at.partition,
            )

    @property
    def is_settled(self) -> bool:
        return all(member.held == member.target for member in self.by_id.values())
