"""The buffer on disk in front of a log that is away: durable, in order, handed over once, bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import SystemClock
from headrace.collect.base import RawEvents
from headrace.collect.decode import EventCollector
from headrace.collect.spool.files import decode, encode, frames, open_files
from headrace.collect.spool.spool import Spool, joined, with_ids
from headrace.config import CollectSettings
from headrace.errors import NotRunning, Overloaded
from headrace.log.base import ID, Append
from headrace.log.local import LocalLog
from headrace.log.local.gathering_client import GatheringClient
from tests.log.support import PLAIN, batch, numbers, open_owner
from tests.support import wait_for


class Stage:
    """An owner that comes and goes, a client, and a spool between."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder / "log", folder / "spool"
        self.owner: LocalLog | None = self.up()
        self.owner.create_topic(PLAIN)
        self.client = GatheringClient(self.folder)
        self.spool = Spool(self.client, self.home, 1_000_000)

    def up(self) -> LocalLog:
        self.owner = open_owner(self.folder, serve=True)
        return self.owner

    def down(self) -> None:
        assert self.owner is not None
        self.owner.close()
        self.owner = None
        wait_for(lambda: self.spool._spooling, 20, "the spool to notice")

    def send(self, *values: int, **columns: list[Any]) -> Any:
        return self.spool.append([Append("plain", batch(N=list(values), **columns))]).result(30)[0]

    def drained(self) -> list[int]:
        wait_for(lambda: not self.spool._spooling, 20, "the spool to be handed over")
        assert self.owner is not None
        return numbers(self.owner)

    def close(self) -> None:
        self.spool.close()
        self.client.close()
        if self.owner is not None:
            self.owner.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def test_what_comes_while_the_log_is_away_is_in_it_later_and_in_order(stage: Stage) -> None:
    assert not stage.send(0).buffered
    stage.down()
    answers = [stage.send(number) for number in range(1, 50)]
    assert all(answer.buffered and not answer.positions for answer in answers)
    assert stage.spool.size > 0
    stage.up()
    assert stage.drained() == list(range(50))
    assert stage.send(50).positions == ((0, 50, 50),)
    assert list(stage.home.glob("*/*.spool")) == []


def test_a_process_that_is_killed_leaves_it_to_the_next(stage: Stage) -> None:
    """Killed while it waits, and again when half of it was handed over: each event is there once."""
    stage.down()
    for number in range(20):
        stage.send(number)
    files = sorted(stage.home.glob("*/*.spool"))
    kept = {file: file.read_bytes() for file in files}
    stage.spool.close()
    stage.spool = Spool(stage.client, stage.home, 1_000_000)
    stage.send(20)
    stage.up()
    assert stage.drained() == list(range(21))
    stage.spool.close()
    # As if the files had not been taken away before it was killed.
    for file, content in kept.items():
        file.write_bytes(content)
    stage.spool = Spool(stage.client, stage.home, 1_000_000)
    assert stage.drained() == list(range(21))


def test_ids_hold_across_the_buffer(stage: Stage) -> None:
    stage.send(1, id_=["a"])
    stage.down()
    stage.send(1, id_=["a"])
    stage.send(2, id_=["b"])
    stage.send(2, id_=["b"])
    stage.up()
    assert stage.drained() == [1, 2]


def test_what_must_have_a_place_is_refused_while_the_log_is_away(stage: Stage) -> None:
    """Kinesis answers with a sequence number, and there is none yet."""
    collector = EventCollector(stage.spool, SystemClock(), CollectSettings())
    placed = RawEvents("plain", b'{"N": 1}', placed=True)
    assert collector.collect(placed).result(30).positions == ((0, 0, 0),)
    stage.down()
    with pytest.raises(NotRunning, match="is not known yet"):
        collector.collect(placed)
    assert collector.collect(RawEvents("plain", b'{"N": 2}')).result(30).buffered
    stage.up()
    assert stage.drained() == [1, 2]
    assert collector.collect(placed).result(30).positions == ((0, 2, 2),)


def test_when_it_is_full_senders_are_told_to_come_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    try:
        stage.spool._max_bytes = 3000
        stage.down()
        taken = 0
        while stage.spool.size < 2500:
            stage.send(taken)
            taken += 1
        with pytest.raises(Overloaded, match="used up"):
            stage.send(*range(100))
        stage.up()
        assert stage.drained() == list(range(taken))
        stage.send(taken)
    finally:
        stage.close()


def test_what_the_log_refuses_is_kept_aside_and_holds_up_nothing(stage: Stage) -> None:
    assert stage.owner is not None
    stage.owner.create_topic(replace(PLAIN, name="other"))
    stage.down()
    stage.spool.append([Append("other", batch(N=[1]))]).result(30)
    stage.send(2)
    alone = open_owner(stage.folder)
    alone.delete_topic("other")
    alone.close()
    stage.up()
    assert stage.drained() == [2]
    [kept] = stage.home.glob("*/*.refused-*")
    assert [one.batch.column(0).to_pylist() for one in decode(kept.read_bytes())] == [[1]]


def test_two_processes_have_a_spool_each(tmp_path: Path) -> None:
    first, second = open_files(tmp_path), open_files(tmp_path)
    assert first.folder != second.folder
    first.close()
    third = open_files(tmp_path)
    assert third.folder == first.folder
    second.close()
    third.close()


BATCHES = st.lists(st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=5), min_size=1, max_size=4)


@given(BATCHES, st.integers(0, 10**6), st.binary(max_size=3))
def test_a_frame_is_read_as_it_was_written_or_not_at_all(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], at: int, wound: bytes
) -> None:
    writes = [[Append("t", pa.record_batch({"N": pa.array(values)}), None)] for values in batches]
    content = b"".join(map(encode, writes))
    path = tmp_path_factory.mktemp("frames") / "f"
    at %= len(content)
    path.write_bytes(content[:at] + wound + content[at + len(wound) :])
    found = [one.batch.column(0).to_pylist() for body in frames(path) for one in decode(body)]
    assert found == batches[: len(found)]
    if not wound:
        assert found == batches


def test_rows_keep_their_ids_and_their_order_when_writes_are_joined() -> None:
    plain = with_ids(batch(N=[1, 2]), "w/1/0")
    own = with_ids(batch(N=[3, 4], id_=["mine", None]), "w/2/0")
    [whole] = joined([[Append("t", plain)], [Append("t", own)]])
    assert whole.batch.select(["N", ID]).to_pydict() == {
        "N": [1, 2, 3, 4],
        ID: ["w/1/0/0", "w/1/0/1", "mine", "w/2/0/1"],
    }
