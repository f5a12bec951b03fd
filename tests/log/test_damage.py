"""Damage below the end: named, set aside, passed over; never the end of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import CorruptFrame, UsageError
from headrace.log.base import Log
from headrace.log.local import LocalClient
from headrace.log.local.segment import MappedSegment
from tests.log.support import PLAIN, numbers, open_owner, put, segments

GROUPS = 5


def damaged_log(folder: Path, flips: dict[int, int]) -> tuple[Path, list[int]]:
    """Five frames of two rows each, a bit flipped in some: frame to byte. The segment, and where its frames are."""
    log = open_owner(folder)
    log.create_topic(PLAIN)
    for number in range(GROUPS):
        put(log, "plain", N=[2 * number, 2 * number + 1], time_=[number, number])
    log.close()
    [segment] = segments(folder)
    positions = [position for position, _ in MappedSegment(segment.parent, 0).frames(0, 2 * GROUPS)]
    data = bytearray(segment.read_bytes())
    for frame, byte in flips.items():
        data[positions[frame] + byte] ^= 4
    segment.write_bytes(data)
    return segment, positions


def readers(folder: Path) -> tuple[Log, Log]:
    owner = open_owner(folder, serve=True)
    return owner, LocalClient(folder)


@pytest.mark.parametrize("byte", [0, 5, 8, 12, 16, 24, 33, 200], ids=lambda byte: f"byte {byte}")
@pytest.mark.parametrize("frame", [0, 2, GROUPS - 1])
def test_a_damaged_frame_is_named_and_exactly_it_is_passed_over(tmp_path: Path, frame: int, byte: int) -> None:
    segment, positions = damaged_log(tmp_path / "log", {frame: byte})
    owner, client = readers(tmp_path / "log")
    first, after = 2 * frame, 2 * frame + 2
    for log in (owner, client):
        with pytest.raises(CorruptFrame) as raised:
            numbers(log)
        data = raised.value.data
        assert (data["file"], data["position"]) == (str(segment), positions[frame])
        assert (data["first_offset"], data["next_offset"]) == (first, after)
        # What comes before and after can be read all the same.
        assert numbers(log, end=first) == list(range(first))
        assert numbers(log, start=after) == list(range(after, 2 * GROUPS))
    assert client.quarantine("plain", 0, first + 1) == (first, after)
    put(owner, "plain", N=[100])
    rest = [n for n in range(2 * GROUPS) if n // 2 != frame]
    for log in (owner, client):
        assert numbers(log) == [*rest, 100]
        assert numbers(log, start=first + 1) == [n for n in rest if n > first] + [100]
    with pytest.raises(UsageError):
        owner.quarantine("plain", 0, 0 if frame else 5)
    assert sorted(path.suffix for path in (tmp_path / "log" / "quarantine").iterdir()) == [".bytes", ".json"]
    client.close()
    owner.close()


def test_several_damages_are_set_aside_one_after_the_other(tmp_path: Path) -> None:
    damaged_log(tmp_path / "log", {1: 150, 3: 140})
    log = open_owner(tmp_path / "log")
    for offset in (2, 6):
        with pytest.raises(CorruptFrame) as raised:
            numbers(log)
        assert raised.value.data["first_offset"] == offset
        log.quarantine("plain", 0, offset)
    assert numbers(log) == [0, 1, 4, 5, 8, 9]
    log.close()


def test_a_missing_segment_is_damage_too(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_owner(folder, segment_bytes=300)
    log.create_topic(PLAIN)
    for number in range(4):
        put(log, "plain", N=[number])
    log.close()
    lost = segments(folder)[1]
    lost.unlink()
    log = open_owner(folder)
    with pytest.raises(CorruptFrame) as raised:
        numbers(log)
    assert (raised.value.data["first_offset"], raised.value.data["next_offset"]) == (1, 2)
    log.quarantine("plain", 0, 1)
    assert numbers(log) == [0, 2, 3]
    log.close()
    segments(folder)[0].unlink()
    log = open_owner(folder)
    assert log.quarantine("plain", 0, 0) == (0, 2)
    assert numbers(log) == [2, 3]
    log.close()
