"""Sharing partitions out among the members of a group: even, and moving as few as possible."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.log.base import TopicPartition

Assignment = dict[str, set[TopicPartition]]


def assign(
    wanted: Mapping[str, Collection[str]],
    partitions: Mapping[str, int],
    current: Mapping[str, Collection[TopicPartition]],
) -> Assignment:
    """Partitions by member. `wanted` are each member's topics, `partitions` how many each topic has, `current` what
    each has now. Everyone keeps what it may; what is free goes to whoever has least; then partitions move, one by one,
    from those who have at least two more. Members that want the same topics end up within one of each other."""
    members = sorted(wanted)
    takers = {
        topic: [member for member in members if topic in wanted[member]]
        for topic in sorted({topic for topics in wanted.values() for topic in topics} & partitions.keys())
    }
    result = _keep(members, takers, partitions, current)
    taken = {at for held in result.values() for at in held}
    free = [
        TopicPartition(topic, number)
        for topic in sorted(takers, key=lambda topic: (len(takers[topic]), topic))
        for number in range(partitions[topic])
        if TopicPartition(topic, number) not in taken
    ]
    for at in free:
        result[min(takers[at.topic], key=lambda member: (len(result[member]), member))].add(at)
    _balance(result, takers)
    return result


def _keep(
    members: list[str],
    takers: Mapping[str, list[str]],
    partitions: Mapping[str, int],
    current: Mapping[str, Collection[TopicPartition]],
) -> Assignment:
    """What each member has and may keep; nothing twice."""
    result: Assignment = {member: set() for member in members}
    taken: set[TopicPartition] = set()
    for member in members:
        for at in current.get(member, ()):
            wanted = member in takers.get(at.topic, ()) and 0 <= at.partition < partitions[at.topic]
            if wanted and at not in taken:
                taken.add(at)
                result[member].add(at)
    return result


def _balance(result: Assignment, takers: Mapping[str, list[str]]) -> None:
    """Always from the one with most, so that nobody gives more than it must."""
    held = {member: sorted(partitions) for member, partitions in result.items()}
    stuck: set[str] = set()
    while givers := [member for member in result if member not in stuck]:
        giver = min(givers, key=lambda member: (-len(result[member]), member))
        move = _find_move(held[giver], result, takers, len(result[giver]))
        if move is None:
            stuck.add(giver)
            continue
        at, taker = move
        stuck.clear()
        held[giver].remove(at)
        held[taker].append(at)
        result[giver].remove(at)
        result[taker].add(at)


def _find_move(
    held: list[TopicPartition], result: Assignment, takers: Mapping[str, list[str]], load: int
) -> tuple[TopicPartition, str] | None:
    """A partition and a member that has at least two less."""
    for at in reversed(held):
        taker = min(takers[at.topic], key=lambda member: (len(result[member]), member))
        if len(result[taker]) + 1 < load:
            return at, taker
        if len(takers[at.topic]) == len(result):
            # Not even the least of all members is low enough.
            return None
    return None
