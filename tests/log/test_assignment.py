"""Partitions are shared out evenly, and as few move as can be."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from headrace.log.assignment import Assignment, assign
from headrace.log.base import TopicPartition

NAMES = ["a", "b", "c", "d", "e"]
PARTITIONS = st.dictionaries(st.sampled_from(["s", "t", "u"]), st.integers(1, 6), min_size=1)


def everything(partitions: dict[str, int]) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count)}


def moved(before: Assignment, after: Assignment) -> int:
    """Partitions that one of those still there has lost to another."""
    return sum(len(held - after[member]) for member, held in before.items() if member in after)


@st.composite
def anything(draw: st.DrawFn, same: bool) -> tuple[dict[str, set[str]], dict[str, int], Assignment]:
    """Members, topics, and some assignment there was before, by other members and other topics perhaps."""
    partitions = draw(PARTITIONS)
    members = draw(st.sets(st.sampled_from(NAMES), min_size=1))
    topics = st.sets(st.sampled_from(["s", "t", "u", "gone"]), min_size=1)
    all_topics = set(partitions)
    wanted = {member: all_topics if same else draw(topics) for member in members}
    current: Assignment = {name: set() for name in NAMES}
    for at in sorted(everything(partitions | {"gone": 2})):
        owner = draw(st.sampled_from([*NAMES, None]))
        if owner is not None:
            current[owner].add(at)
    return wanted, partitions, current


@given(anything(same=False))
def test_everything_wanted_is_given_once_to_one_who_wants_it(
    given_: tuple[dict[str, set[str]], dict[str, int], Assignment],
) -> None:
    wanted, partitions, current = given_
    result = assign(wanted, partitions, current)
    assert set(result) == set(wanted)
    shared = [at for held in result.values() for at in held]
    assert len(shared) == len(set(shared))
    all_wanted = set().union(*wanted.values())
    assert set(shared) == {at for at in everything(partitions) if at.topic in all_wanted}
    assert all(at.topic in wanted[member] for member, held in result.items() for at in held)


@given(anything(same=False))
def test_no_single_move_would_make_it_more_even(
    given_: tuple[dict[str, set[str]], dict[str, int], Assignment],
) -> None:
    wanted, partitions, current = given_
    result = assign(wanted, partitions, current)
    for giver, taker in product(result, repeat=2):
        movable = [at for at in result[giver] if at.topic in wanted[taker]]
        assert not movable or len(result[giver]) <= len(result[taker]) + 1


@given(anything(same=True))
def test_balanced_within_one_and_no_more_moves_than_needed(
    given_: tuple[dict[str, set[str]], dict[str, int], Assignment],
) -> None:
    wanted, partitions, current = given_
    result = assign(wanted, partitions, current)
    loads = sorted(len(held) for held in result.values())
    assert loads[-1] - loads[0] <= 1
    there = everything(partitions)
    before = {member: current[member] & there for member in wanted}
    assert moved(before, result) == fewest(before, len(there))


def fewest(before: Assignment, total: int) -> int:
    """The fewest moves to an even assignment: everyone keeps up to its share, and the larger shares go to those who
    have most."""
    least, more = divmod(total, len(before))
    loads = sorted((len(held) for held in before.values()), reverse=True)
    return sum(max(0, load - least - (number < more)) for number, load in enumerate(loads))


def test_ten_thousand_partitions_are_no_trouble() -> None:
    partitions = {"large": 10_000}
    wanted = {f"m{number:02}": {"large"} for number in range(20)}
    first = assign(wanted, partitions, {})
    second = assign(wanted | {"new": {"large"}}, partitions, first)
    assert {len(held) for held in second.values()} == {476, 477}
    assert moved(first, second) == len(second["new"])
