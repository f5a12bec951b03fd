"""Many partitions: open files are bounded, and what one write costs does not grow with how many there are."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.log.base import TopicSpec
from headrace.log.local import LocalClient
from headrace.log.local.open_files import OpenFiles
from headrace.types import BIGINT, VARCHAR, Array, Column, Map
from tests.log.support import VIEWS, numbers, open_owner, put, rows


def open_segments(folder: Path) -> int:
    """How many of this log's segments the process holds open. Other logs of the test run do not count."""
    targets = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(target.startswith(f"{folder}/") and target.endswith(".seg") for target in targets)


def bytes_of(topic: Path) -> int:
    return sum(file.stat().st_size for file in topic.rglob("*.seg"))


def use(folder: Path, partitions: int, most: int) -> int:
    """Write everywhere three times, read everything, open again, write once more. How many records that gives."""
    log = open_owner(folder, serve=True)
    log._committer._files = OpenFiles(most)
    log.create_topic(replace(VIEWS, partitions=partitions))
    users = [f"user {n}" for n in range(4 * partitions)]
    for n in range(3):
        put(log, "pageviews", USERID=users, N=[n] * len(users))
        assert open_segments(folder) <= most
    client = LocalClient(folder)
    for n in range(3, 6):
        put(log, "pageviews", 7, USERID=["seven"], N=[n])
        assert numbers(client, "pageviews", 7)[-1] == n
        assert client.snapshot() == log.snapshot()
    expected = 3 * len(users) + 3
    assert sum(ends.end for ends in client.snapshot().ends["pageviews"]) == expected
    assert len(rows(client, "pageviews", ["N"])) == expected
    client.close()
    log.close()
    assert open_segments(folder) == 0
    log = open_owner(folder)
    assert open_segments(folder) == 0
    put(log, "pageviews", USERID=users, N=[6] * len(users))
    found = len(rows(log, "pageviews", ["N"]))
    log.close()
    return found


def test_open_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.log.local.reader._MOST_FILES", 10)
    assert use(tmp_path / "log", 60, 20) == 16 * 60 + 3


def test_what_a_record_takes_does_not_grow_with_how_many_partitions_its_batch_is_for(tmp_path: Path) -> None:
    """Columns without a value least of all: they are those of which a frame could have more than its share."""
    columns = (Column("LIST", Array(VARCHAR)), Column("MAP", Map(VARCHAR, BIGINT)), Column("TEXT", VARCHAR))
    with contextlib.closing(open_owner(tmp_path / "log")) as log:
        for partitions in (2, 200):
            topic = f"by-{partitions}"
            log.create_topic(TopicSpec(topic, key=VIEWS.key, value=columns, partitions=partitions))
            put(log, topic, USERID=[f"user {n}" for n in range(4 * partitions)])
    few, many = (bytes_of(tmp_path / "log" / "topics" / f"by-{partitions}") / partitions for partitions in (2, 200))
    assert many < 1.5 * few


@pytest.mark.slow
def test_thousands_of_partitions(tmp_path: Path) -> None:
    assert use(tmp_path / "log", 3_000, 300) == 16 * 3_000 + 3
