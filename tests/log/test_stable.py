"""`stable`: what readers copy is always one moment, whatever the owner is doing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import LogError
from headrace.log.local.stable import FIRST_SLOTS, Slot, StablePublisher, StableReader, published_group

PUBLISHER = """
import itertools
import sys
from pathlib import Path
from headrace.log.local.stable import Slot, StablePublisher
publisher = StablePublisher(Path(sys.argv[1]), 1)
publisher.publish_all(0, 0, [Slot(1, p, 0, 0, -1) for p in range(8)])
print("ready", flush=True)
for n in itertools.count(1):
    publisher.publish(8 * n, n, [Slot(1, p, n // 2, n, n) for p in range(8)])
    if n % 1000 == 0 and Path(sys.argv[2]).exists():
        break
"""


def test_what_is_published_is_read(tmp_path: Path) -> None:
    publisher = StablePublisher(tmp_path / "stable", 1234)
    publisher.publish_all(5, 1, [Slot(1, 0, 0, 3, -1), Slot(2, 1, 1, 2, 99)])
    reader = StableReader(tmp_path / "stable")
    publisher.publish(7, 2, [Slot(1, 0, 1, 5, 50)])
    view = reader.view()
    assert (view.arrival, view.group, view.started_ms, reader.arrival()) == (7, 2, 1234, 7)
    assert view.rows() == [Slot(1, 0, 1, 5, 50), Slot(2, 1, 1, 2, 99)]
    assert published_group(tmp_path / "stable") == 2


def test_a_slot_stays_where_it_is_and_a_free_one_is_used_again(tmp_path: Path) -> None:
    publisher = StablePublisher(tmp_path / "stable", 1)
    publisher.publish_all(0, 0, [Slot(1, 0, 0, 0, -1), Slot(2, 0, 0, 0, -1), Slot(3, 0, 0, 0, -1)])
    publisher.publish(0, 1, [], removed=[(2, 0)])
    publisher.publish(0, 2, [Slot(4, 0, 0, 0, -1)])
    reader = StableReader(tmp_path / "stable")
    assert [slot.topic_id for slot in reader.view().rows()] == [1, 4, 3]
    again = StablePublisher(tmp_path / "stable", 2)
    again.publish_all(9, 3, [Slot(3, 0, 0, 9, -1), Slot(1, 0, 0, 0, -1)])
    assert [slot.topic_id for slot in reader.view().rows()] == [1, 3]
    assert reader.view().arrival == 9


def test_the_file_grows_under_its_readers(tmp_path: Path) -> None:
    publisher = StablePublisher(tmp_path / "stable", 1)
    publisher.publish_all(0, 0, [])
    reader = StableReader(tmp_path / "stable")
    slots = [Slot(number, 0, 0, number, -1) for number in range(1, 3 * FIRST_SLOTS)]
    publisher.publish(1, 1, slots)
    assert reader.view().rows() == slots
    assert not reader.is_replaced()


def test_what_a_dead_owner_published_stays_readable(tmp_path: Path) -> None:
    publisher = StablePublisher(tmp_path / "stable", 1)
    publisher.publish_all(3, 1, [Slot(1, 0, 0, 3, -1)])
    reader = StableReader(tmp_path / "stable")
    StablePublisher(tmp_path / "stable", 2)
    assert reader.view().rows() == [Slot(1, 0, 0, 3, -1)]


def test_an_owner_that_died_while_publishing_is_noticed(tmp_path: Path) -> None:
    publisher = StablePublisher(tmp_path / "stable", 1)
    publisher.publish_all(3, 1, [Slot(1, 0, 0, 3, -1)])
    reader = StableReader(tmp_path / "stable")
    publisher._begin()
    with pytest.raises(LogError, match="not publishing"):
        reader.view(timeout=0.01)
    StablePublisher(tmp_path / "stable", 2).publish_all(3, 1, [Slot(1, 0, 0, 3, -1)])
    assert reader.view().arrival == 3


def test_readers_never_see_two_moments_at_once(tmp_path: Path) -> None:
    """Another process publishes as fast as it can; every copy must be of one of its moments."""
    path, enough = tmp_path / "stable", tmp_path / "enough"
    writer = subprocess.Popen([sys.executable, "-c", PUBLISHER, str(path), str(enough)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"ready\n"
    reader, seen, last = StableReader(path), set[int](), 0
    while len(seen) < 100 or last < 8 * 20_000:
        view = reader.view(timeout=60)
        number = view.arrival // 8
        assert view.arrival >= last
        assert view.group == number
        stream_time = number if number else -1
        assert view.rows() == [Slot(1, p, number // 2, number, stream_time) for p in range(8)]
        last = view.arrival
        seen.add(number)
    enough.touch()
    assert writer.wait(60) == 0
