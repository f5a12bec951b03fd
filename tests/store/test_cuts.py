"""How much of its inputs a query has read, by either kind of cut."""

from __future__ import annotations

from pathlib import Path

from headrace.log.base import BatchIdentity
from headrace.store.cuts import Reading, has_reached, later, parse_floor
from tests.store.project import Project


def test_a_cut_is_compared_and_joined_partition_by_partition() -> None:
    one, other = {"a": {0: 5, 1: 2}}, {"a": {0: 4, 1: 3}, "b": {0: 1}}
    assert later(one, other) == {"a": {0: 5, 1: 3}, "b": {0: 1}}
    assert has_reached(later(one, other), one)
    assert has_reached(later(one, other), other)
    assert not has_reached(one, other)
    assert has_reached(7, 7)
    assert not has_reached(6, 7)
    assert not has_reached(7, one), "one says nothing about the other"


def test_a_batch_says_more_than_it_used_to() -> None:
    assert parse_floor('{"topics": {}, "floor": 86}') == 86
    assert parse_floor('{"partitions": {"0": 7}}') == -1


def test_on_the_local_log_it_is_what_the_last_batch_says(tmp_path: Path) -> None:
    project = Project(tmp_path)
    try:
        reading = Reading(project.log, "Q", 1, ("a",), begun=3)
        assert reading.cut() == 3
        # A layer that began at 3 and has found nothing new yet has no less for it.
        for number, (arrival, expected) in enumerate(((0, 3), (9, 9))):
            project.log.stage(f"t{number}", 0, 0, [], iter(()))
            identity = BatchIdentity("Q", 1, "c", number, f'{{"arrival": {arrival}}}')
            project.log.commit(f"t{number}", [(0, 0)], identity)
            assert reading.cut() == expected
        assert Reading(project.log, "R", 1, ("a",), begun={"a": {0: 1}}).cut() == 0
    finally:
        project.close()
