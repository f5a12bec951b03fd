"""Compressed frames: the same records in fewer bytes, written by the owner and by rewriting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from headrace.log.base import TopicConfig
from headrace.log.local import maintenance
from headrace.log.local.segment import MappedSegment
from tests.log.support import PLAIN, VIEWS, numbers, open_owner, put, rows, segments

Codec = Literal["lz4", "zstd"]


def compressions(folder: Path, topic: str) -> list[int]:
    """Of all frames, segment by segment."""
    found = []
    for path in segments(folder, topic):
        segment, position = MappedSegment(path.parent, int(path.name[:20])), 64
        while (header := segment.header_at(position)) is not None:
            found.append(header.compression)
            position += header.size
    return found


@pytest.mark.parametrize(("codec", "number"), [("lz4", 1), ("zstd", 2)])
def test_the_same_records_in_fewer_bytes(tmp_path: Path, codec: Codec, number: int) -> None:
    log = open_owner(tmp_path / "log")
    plain, small = replace(VIEWS, partitions=1), replace(VIEWS, name="small", partitions=1)
    log.create_topic(plain)
    log.create_topic(replace(small, config=TopicConfig(compression=codec)))
    for topic in ("pageviews", "small"):
        for first in range(0, 3000, 1000):
            ns = list(range(first, first + 1000))
            put(log, topic, USERID=[f"user {n % 10}" for n in ns], N=ns, time_=ns)
    assert compressions(tmp_path / "log", "small") == [number] * 3
    assert log.stats("small").bytes < log.stats("pageviews").bytes / 2
    same = [
        [{key: row[key] for key in ("USERID", "N", "$time")} for row in rows(log, topic)]
        for topic in ("pageviews", "small")
    ]
    assert same[0] == same[1]
    assert log.offset_at_time("small", 0, 1234) == 1234
    for columns in (["N"], ["$offset", "USERID"], ["$partition"], ["$headers", "$time"]):
        assert rows(log, "small", columns) == rows(log, "pageviews", columns)
    log.close()
    log = open_owner(tmp_path / "log")
    assert len(rows(log, "small")) == 3000
    log.close()


def test_small_frames_stay_plain_until_they_are_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "EVERY_S", 3600.0)  # however long writing takes, housekeeping waits for us
    log = open_owner(tmp_path / "log", segment_bytes=100_000)
    log.create_topic(replace(PLAIN, config=TopicConfig(compression="zstd")))
    for n in range(700):
        put(log, "plain", N=[n])
    assert set(compressions(tmp_path / "log", "plain")) == {0}
    size = log.stats("plain").bytes
    log.maintain()
    assert 2 in compressions(tmp_path / "log", "plain")
    assert log.stats("plain").bytes < size / 2
    assert numbers(log) == list(range(700))
    log.close()


def test_a_topic_may_change_its_mind(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    codecs: tuple[Literal["none", "lz4", "zstd"], ...] = ("none", "lz4", "zstd", "none")
    for number, codec in enumerate(codecs):
        log.alter_topic(replace(PLAIN, config=TopicConfig(compression=codec)))
        put(log, "plain", N=list(range(1000 * number, 1000 * number + 1000)))
    assert compressions(tmp_path / "log", "plain") == [0, 1, 2, 0]
    assert numbers(log) == list(range(4000))
    log.close()


def test_a_topic_may_have_a_segment_size_of_its_own(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(replace(PLAIN, config=TopicConfig(segment_bytes=2_000)))
    log.create_topic(replace(PLAIN, name="other"))
    for n in range(40):
        put(log, "plain", N=[n])
        put(log, "other", N=[n])
    assert len(segments(log.folder, "plain")) > 5
    assert max(path.stat().st_size for path in segments(log.folder, "plain")) <= 2_064 + 128
    assert len(segments(log.folder, "other")) == 1
    log.alter_topic(replace(PLAIN, config=TopicConfig(segment_bytes=1_000_000)))
    before = len(segments(log.folder, "plain"))
    for n in range(40, 80):
        put(log, "plain", N=[n])
    assert len(segments(log.folder, "plain")) == before
    assert numbers(log) == list(range(80))
    log.close()
