"""The buffer on disk in front of a log that is away: durable, in order, handed over once, bounded."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
from headrace.collect.redrive import Order, Redriver
from headrace.collect.split import Limits, read_json
from headrace.collect.spool.files import decode, encode, frames, open_files
from headrace.collect.spool.spool import Spool, joined, with_ids
from headrace.config import CollectSettings
from headrace.errors import DiskFull, NotRunning, Overloaded
from headrace.log.base import ID, Append, TopicSpec
from headrace.log.codecs.event_time import TimeBounds
from headrace.log.codecs.json_codec import JsonCodec
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC, create_dead_letters
from headrace.log.local import LocalLog
from headrace.log.local.gathering_client import GatheringClient
from headrace.types import BIGINT, BYTES, DATE, VARCHAR, Column, Decimal, Map
from tests.log.support import PLAIN, batch, numbers, open_owner, rows
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


ODD = TopicSpec(
    "odd",
    key=(Column("K", VARCHAR),),
    value=(Column("DAY", DATE), Column("PRICE", Decimal(8, 2)), Column("M", Map(VARCHAR, BIGINT)), Column("B", BYTES)),
)


def without(folder: Path, *topics: str) -> None:
    """The log while nobody uses it, and these topics no more."""
    alone = open_owner(folder)
    for name in topics:
        alone.delete_topic(name)
    alone.close()


def test_what_the_log_refuses_after_it_was_taken_is_a_dead_letter_and_can_be_sent_again(stage: Stage) -> None:
    assert stage.owner is not None
    create_dead_letters(stage.owner)
    stage.owner.create_topic(ODD)
    stage.owner.create_topic(replace(PLAIN, name="other"))
    codec = JsonCodec(stage.owner.topic("odd"))
    sent = read_json(
        b'[{"k": "a", "day": "2026-01-05", "price": 1.10, "m": {"x": 1}, "b": "AAE=", "more": {"n": 1.00}},'
        b' {"$id": "mine", "$headers": {"h": "v"}, "$time": 5, "k": "b"}, {"$id": "good", "day": "never"}]',
        codec.decoder,
        Limits(10, 1000),
    )
    decoded = codec.decode(sent.events, sent.slices, 1000, TimeBounds(1000))
    assert decoded.batch is not None
    stage.down()
    mixed = [Append("odd", decoded.batch), Append("other", batch(N=[1]))]
    stage.spool.append(mixed).result(30)
    stage.send(2)
    without(stage.folder, "odd")
    stage.up()
    assert stage.drained() == [2]
    assert numbers(stage.owner, "other") == [1], "the rest of the same write is not lost with it"
    letters = rows(stage.owner, DEAD_LETTERS_TOPIC)
    assert [(letter["TOPIC"], letter["SOURCE"]) for letter in letters] == [("odd", "buffer")] * 2
    assert {letter["REASON"] for letter in letters} == {
        "the log refused it after it was taken: topic `odd` does not exist"
    }
    assert letters[1]["EVENT_ID"] == "mine"
    assert [json.loads(letter["PAYLOAD"]) for letter in letters] == [
        {"k": "a", "day": "2026-01-05", "price": 1.1, "m": {"x": 1}, "b": "AAE=", "more": {"n": 1.0}, "$time": 1000},
        {"k": "b", "$time": 5, "$headers": {"h": "v"}},
    ]
    stage.owner.create_topic(ODD)
    report = Redriver(stage.owner, SystemClock(), CollectSettings()).redrive(Order("odd"), {})
    assert (report.accepted, report.rejected) == (2, 0)
    assert [str(row["PRICE"]) for row in rows(stage.owner, "odd")] == ["1.10", "None"]
    assert list(stage.home.glob("*/*.refused-*")) == []


def test_a_raw_record_that_is_refused_keeps_its_bytes(stage: Stage) -> None:
    assert stage.owner is not None
    create_dead_letters(stage.owner)
    stage.owner.create_topic(TopicSpec("raw", kind="raw"))
    stage.down()
    stage.spool.append([Append("raw", batch(KEY=[b"k"], VALUE=[b"\xff\x00"]))]).result(30)
    without(stage.folder, "raw")
    stage.up()
    stage.drained()
    assert [letter["PAYLOAD"] for letter in rows(stage.owner, DEAD_LETTERS_TOPIC)] == [b"\xff\x00"]


def test_a_topic_that_was_made_anew_with_other_columns_holds_up_nothing(stage: Stage) -> None:
    assert stage.owner is not None
    create_dead_letters(stage.owner)
    stage.down()
    stage.send(1)
    stage.spool.append([Append("plain", batch(N=["text"]))]).result(30)
    stage.send(2)
    stage.up()
    assert stage.drained() == [1, 2]
    [letter] = rows(stage.owner, DEAD_LETTERS_TOPIC)
    assert letter["PAYLOAD"] == b'{"n":"text"}'


def test_what_cannot_even_be_a_letter_is_set_aside_and_tried_when_a_process_starts(stage: Stage) -> None:
    assert stage.owner is not None
    stage.owner.create_topic(replace(PLAIN, name="other"))
    stage.down()
    stage.spool.append([Append("other", batch(N=[1]))]).result(30)
    stage.send(2)
    without(stage.folder, "other")
    stage.up()
    assert stage.drained() == [2]
    [kept] = stage.home.glob("*/*.refused-*")
    assert [one.batch.column(0).to_pylist() for one in decode(kept.read_bytes())] == [[1]]
    create_dead_letters(stage.owner)
    stage.spool.close()
    stage.spool = Spool(stage.client, stage.home, 1_000_000)
    wait_for(lambda: not kept.exists(), 20, "it to become a letter")
    assert [letter["TOPIC"] for letter in rows(stage.owner, DEAD_LETTERS_TOPIC)] == ["other"]


SENDER = """
import sys
from headrace.collect.spool.spool import Spool
from headrace.log.base import Append
from headrace.log.local.gathering_client import GatheringClient
from pathlib import Path
from tests.log.support import batch
from tests.support import wait_for

folder, first = Path(sys.argv[1]), int(sys.argv[2])
spool = Spool(GatheringClient(folder / "log"), folder / "spool", 1_000_000)
print("up", flush=True)
wait_for(lambda: spool._spooling, 60, "the log to go away")
for number in range(first, first + 20):
    assert spool.append([Append("plain", batch(N=[number]))]).result(30)[0].buffered
    print(number, flush=True)
sys.stdin.read()
"""


def test_where_fewer_processes_start_than_were_killed_nothing_stays_behind(tmp_path: Path) -> None:
    owner = open_owner(tmp_path / "log", serve=True)
    owner.create_topic(PLAIN)
    command = [sys.executable, "-c", SENDER, str(tmp_path)]
    senders = [
        subprocess.Popen([*command, str(first)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for first in (0, 100, 200)
    ]
    try:
        for sender in senders:
            assert sender.stdout is not None
            assert sender.stdout.readline() == "up\n"
        owner.close()
        taken = [int(sender.stdout.readline()) for sender in senders if sender.stdout for _ in range(20)]
    finally:
        for sender in senders:
            sender.kill()
            sender.communicate()
    owner = open_owner(tmp_path / "log", serve=True)
    client = GatheringClient(tmp_path / "log")
    spool = Spool(client, tmp_path / "spool", 1_000_000)
    try:
        wait_for(lambda: len(numbers(owner)) == 60, 30, "all that was acknowledged")
        assert sorted(numbers(owner)) == sorted(taken)
        assert [[n for n in numbers(owner) if n // 100 == each] for each in range(3)] == [
            list(range(first, first + 20)) for first in (0, 100, 200)
        ]
        wait_for(lambda: not list((tmp_path / "spool").glob("*/*.spool")), 20, "the files to be taken away")
    finally:
        spool.close()
        client.close()
        owner.close()


def test_a_spool_that_is_left_while_another_process_runs_is_found(stage: Stage) -> None:
    other = open_files(stage.home)
    other.write([encode([Append("plain", with_ids(batch(N=[7]), "left"))])])
    assert stage.drained() == []
    other.close()
    wait_for(lambda: numbers(stage.client) == [7], 20, "what was left")


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Every file of this process: a disk that is full, in the middle of a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_is_said_and_what_comes_when_it_is_not_follows(stage: Stage) -> None:
    stage.down()
    stage.send(1)
    [file] = stage.home.glob("*/*.spool")
    whole = file.stat().st_size
    with files_end_at(whole + 100):
        for _ in range(3):
            with pytest.raises(DiskFull, match="cannot be kept here"):
                stage.send(*range(1000))
        assert file.stat().st_size == whole, "nothing of it is left behind"
    with files_end_at(0), pytest.raises(DiskFull):
        stage.send(*range(1000))
    stage.send(2)
    stage.spool.close()
    stage.spool = Spool(stage.client, stage.home, 1_000_000)
    stage.send(3)
    stage.up()
    assert stage.drained() == [1, 2, 3]


@pytest.mark.parametrize("restarted", [False, True])
def test_damage_in_the_middle_is_kept_for_somebody_to_look_at(
    stage: Stage, caplog: pytest.LogCaptureFixture, restarted: bool
) -> None:
    stage.down()
    for number in range(3):
        stage.send(number)
    [file] = stage.home.glob("*/*.spool")
    wounded = bytearray(file.read_bytes())
    wounded[len(wounded) // 2] ^= 1
    if restarted:
        stage.spool.close()
    file.write_bytes(wounded)
    if restarted:
        stage.spool = Spool(stage.client, stage.home, 1_000_000)
    stage.up()
    assert stage.drained() == [0]
    assert file.with_suffix(".damaged").read_bytes() == wounded
    assert "is damaged" in caplog.text


def test_a_torn_tail_is_nothing_that_anybody_was_told_of(stage: Stage) -> None:
    stage.down()
    stage.send(1)
    [file] = stage.home.glob("*/*.spool")
    stage.spool.close()
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:-7])
    stage.spool = Spool(stage.client, stage.home, 1_000_000)
    stage.send(2)
    stage.up()
    assert stage.drained() == [1, 2]
    assert list(stage.home.glob("*/*.damaged")) == []


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
