"""A log is moved to Kafka: every record once, in order, and every old position has a new one."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.coordinate.catalog import create_internal_topics
from headrace.coordinate.move import move_to_kafka, move_to_local
from headrace.errors import Conflict
from headrace.log.base import Append, Log, TopicPartition, TopicSpec
from headrace.log.copy.moves import Moves, PartitionMoves, Run
from headrace.log.kafka import KafkaLog
from headrace.log.local import LocalLog
from headrace.types import BIGINT, VARCHAR, Column
from tests.kafka import kafka_settings

pytestmark = pytest.mark.slow

VIEWS = TopicSpec("views", key=(Column("USERID", VARCHAR),), value=(Column("PAGEID", VARCHAR),), partitions=2)
COUNTS = TopicSpec(
    "counts",
    key=(Column("PAGEID", VARCHAR),),
    value=(Column("N", BIGINT),),
    partitions=2,
    role="derived",
    windowed="time",
)
RAW = TopicSpec("bytes", kind="raw", partitions=1)


def nothing(done: int, total: int) -> None: ...


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalLog]:
    log = LocalLog(tmp_path / "log", LogSettings(linger_ms=0, min_free_bytes=0), SystemClock())
    create_internal_topics(log)
    for spec in (VIEWS, COUNTS, RAW):
        log.create_topic(spec)
    yield log
    log.close()


@pytest.fixture
def there(kafka: str) -> Iterator[KafkaLog]:
    log = KafkaLog(kafka_settings(kafka), SystemClock())
    yield log
    log.close()


def fill(log: Log, chance: random.Random, rounds: int) -> None:
    headers = pa.map_(pa.string(), pa.binary())
    for number in range(rounds):
        rows = chance.randrange(1, 5)
        users = [chance.choice(("a", "b", "ü", None)) for _ in range(rows)]
        views = {
            "USERID": pa.array(users, pa.string()),
            "PAGEID": pa.array([f"/{number}"] * rows),
            "$time": pa.array([chance.randrange(10**12) for _ in range(rows)]),
            "$id": pa.array([f"{number}-{row}" for row in range(rows)]),
            "$headers": pa.array([[("trace", b"\x00\xff")]] * rows, headers),
            "$rest": pa.array([f'{{"more":[{row}, 1.50]}}' for row in range(rows)]),
        }
        counts = {
            "PAGEID": pa.array([chance.choice("xyz") for _ in range(rows)]),
            "N": pa.array([None if row == 1 else row for row in range(rows)], pa.int64()),
            "$tombstone": pa.array([row == 1 for row in range(rows)]),
            "$time": pa.array([5] * rows),
            "$window_start": pa.array([number * 10] * rows),
            "$window_end": pa.array([number * 10 + 10] * rows),
        }
        raw = {"KEY": pa.array([None] * rows, pa.binary()), "VALUE": pa.array([b"\x00\x01"] * rows)}
        log.append([Append("views", pa.record_batch(views), chance.choice((None, 0, 1)))]).result()
        log.append([Append("counts", pa.record_batch(counts)), Append("bytes", pa.record_batch(raw))]).result()


def records(log: Log, topic: str) -> list[list[dict[str, Any]]]:
    """By partition, without what only the one log or the other gives."""
    found: list[list[dict[str, Any]]] = []
    for number, ends in enumerate(log.snapshot().ends[topic]):
        rows = [
            row
            for part in log.read(topic, number, ends.start, ends.end)
            for row in part.batch.to_pylist(maps_as_pydicts="strict")
        ]
        found.append([{k: v for k, v in row.items() if k not in ("$arrival", "$stream_time")} for row in rows])
    return found


def places(log: Log, topic: str, number: int) -> list[int]:
    ends = log.snapshot().ends[topic][number]
    return [
        offset
        for part in log.read(topic, number, ends.start, ends.end)
        for offset in (part.offsets or range(part.first_offset, part.next_offset))
    ]


class Killed(Exception):
    pass


def test_everything_once_however_often_it_is_interrupted(
    local: LocalLog, there: KafkaLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.log.copy.copier.CHUNK_ROWS", 7)
    chance = random.Random(5)
    fill(local, chance, 12)
    chunks = 0

    def cut_off(done: int, total: int) -> None:
        nonlocal chunks
        chunks += 1
        if chunks in (2, 5):
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            move_to_kafka(local, there, tmp_path, cut_off)
    move_to_kafka(local, there, tmp_path, cut_off)
    # It was in use meanwhile.
    fill(local, chance, 5)
    assert move_to_kafka(local, there, tmp_path, nothing).records > 0
    assert move_to_kafka(local, there, tmp_path, nothing).records == 0
    for topic in ("views", "counts", "bytes"):
        assert records(there, topic) == records(local, topic)
    moves = Moves(there)
    for topic in ("views", "counts"):
        for number in range(2):
            new = places(there, topic, number)
            partition = moves.partition(topic, number)
            assert [partition.offset(old) for old in range(len(new))] == new
            assert partition.offset(len(new)) == (new[-1] + 1 if new else 0)
    # Feeds know an event of a derived topic by its arrival number.
    for number in range(2):
        old = list(local.read("counts", number, 0))
        arrivals = [arrival for part in old for arrival in part.batch.column("$arrival").to_pylist()]
        new = [*places(there, "counts", number), places(there, "counts", number)[-1] + 1] if arrivals else []
        assert [moves.partition("counts", number).after_arrival(at) for at in arrivals] == new[1:]


def test_there_and_back_in_the_order_of_time(
    local: LocalLog, there: KafkaLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.log.copy.copier.CHUNK_ROWS", 9)
    chance = random.Random(9)
    fill(local, chance, 10)
    local.reset_group("readers", {TopicPartition("views", 0): 3})
    move_to_kafka(local, there, tmp_path, nothing)
    # Kafka takes an event id twice, the local log once.
    again = pa.record_batch({"USERID": ["a"], "PAGEID": ["/again"], "$time": [10**12], "$id": ["3-0"]})
    there.append([Append("views", again, 0), Append("views", again, 0)]).result()
    back = LocalLog(tmp_path / "back", LogSettings(linger_ms=0, min_free_bytes=0), SystemClock())
    try:
        chunks = 0

        def cut_off(done: int, total: int) -> None:
            nonlocal chunks
            chunks += 1
            if chunks in (2, 4):
                raise Killed

        for _ in range(2):
            with pytest.raises(Killed):
                move_to_local(there, back, tmp_path, cut_off)
        move_to_local(there, back, tmp_path, nothing)
        assert move_to_local(there, back, tmp_path, nothing).records == 0
        for topic in ("views", "counts", "bytes"):
            kept = [[row for row in part if row.get("PAGEID") != "/again"] for part in records(there, topic)]
            assert records(back, topic) == kept
        moves = Moves(back)
        for topic in ("views", "counts", "bytes"):
            for number, ends in enumerate(back.snapshot().ends[topic]):
                old = places(there, topic, number)
                new = [moves.partition(topic, number).offset(at) for at in old]
                assert new == [min(place, ends.end) for place in range(len(old))]
        [offset] = [one for one in back.group("readers").offsets if one.at == TopicPartition("views", 0)]
        assert offset.committed == 3
    finally:
        back.close()


def test_records_of_all_partitions_come_in_order_of_time(there: KafkaLog, tmp_path: Path) -> None:
    """So that what was not late is not late there, and a join sees what it saw."""
    for name in ("one", "two"):
        there.create_topic(TopicSpec(name, value=(Column("N", BIGINT),), partitions=2))
    for number in range(40):
        batch = pa.record_batch({"N": pa.array([number], pa.int64()), "$time": pa.array([1000 + number])})
        there.append([Append(("one", "two")[number % 2], batch, number // 2 % 2)]).result()
    back = LocalLog(tmp_path / "back", LogSettings(linger_ms=0, min_free_bytes=0), SystemClock())
    try:
        move_to_local(there, back, tmp_path, nothing)
        found = [
            (row["$arrival"], row["N"])
            for name in ("one", "two")
            for number in range(2)
            for part in back.read(name, number, 0)
            for row in part.batch.to_pylist()
        ]
        assert [n for _, n in sorted(found)] == list(range(40))
    finally:
        back.close()


def test_groups_go_on_where_they_were(local: LocalLog, there: KafkaLog, tmp_path: Path) -> None:
    fill(local, random.Random(6), 8)
    at = TopicPartition("views", 0)
    local.reset_group("readers", {at: 3})
    move_to_kafka(local, there, tmp_path, nothing)
    [offset] = [one for one in there.group("readers").offsets if one.at == at]
    assert offset.committed == places(there, "views", 0)[3]


def test_what_is_there_already_is_not_mixed_with(local: LocalLog, there: KafkaLog, tmp_path: Path) -> None:
    there.create_topic(VIEWS)
    there.append([Append("views", pa.record_batch({"USERID": pa.array(["else"])}))]).result()
    with pytest.raises(Conflict, match="already holds records there"):
        move_to_kafka(local, there, tmp_path, nothing)


def test_the_map_between_runs() -> None:
    moves = PartitionMoves(1, 30, [Run(0, 10, 100, 5), Run(20, 10, 200, 50)])
    assert [moves.offset(old) for old in (0, 9, 10, 19, 20, 29, 30, 99)] == [100, 109, 200, 200, 200, 209, 210, 210]
    assert [moves.after_arrival(at) for at in (-1, 4, 5, 13, 14, 49, 50, 59, 60)] == [
        100, 100, 101, 109, 200, 200, 201, 210, 210
    ]  # fmt: skip


@pytest.mark.slow
def test_kill_9_while_copying(local: LocalLog, kafka: str, tmp_path: Path) -> None:
    """The real command, killed at any moment, again and again."""
    settings = kafka_settings(kafka)
    (tmp_path / "headrace.toml").write_text(
        f'data = "."\n[log.kafka]\nbootstrap = "{kafka}"\nprefix = "{settings.kafka.prefix}"\n'
    )
    chance = random.Random(8)
    fill(local, chance, 150)
    local.close()
    command = [sys.executable, "-m", "tests.log.copy_slowly", str(tmp_path)]
    for _ in range(4):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.5 + 2 * chance.random())
        process.kill()
        process.wait()
    assert subprocess.run(command, check=False).returncode == 0
    source = LocalLog(tmp_path / "log", LogSettings(linger_ms=0, min_free_bytes=0), SystemClock())
    there = KafkaLog(settings, SystemClock())
    try:
        for topic in ("views", "counts", "bytes"):
            assert records(there, topic) == records(source, topic)
            for number in range(len(there.snapshot().ends[topic])):
                new = places(there, topic, number)
                moves = Moves(there).partition(topic, number)
                assert [moves.offset(old) for old in range(len(new))] == new
    finally:
        there.close()
        source.close()
