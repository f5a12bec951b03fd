"""A fork of a topic: the same records at the same offsets, and what queries write goes there from then on."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from headrace.errors import Conflict, HeadraceError, OffsetOutOfRange
from headrace.log.base import PUBLISHER_PREFIX, BatchIdentity, Log, PartitionEnds, Route, TopicSpec
from headrace.log.kafka import KafkaLog
from headrace.types import BIGINT, VARCHAR, Column
from tests.contracts.logs import KafkaPlace, Place

pytestmark = pytest.mark.needs("fork")

SPEC = TopicSpec("ROLLING", (Column("K", VARCHAR),), (Column("N", BIGINT),), partitions=2, role="derived")
QUERY = "CTAS_ROLLING_1"
WRITERS = [(QUERY, 1)]


def commit(log: Log, who: str, batch: int, *numbers: int) -> None:
    keys = pa.array([f"key {number}" for number in numbers])
    rows = pa.record_batch({"K": keys, "N": pa.array(numbers, pa.int64()), "$time": pa.array(numbers, pa.int64())})
    log.stage(f"{who}-{batch}", 0, 0, [Route("ROLLING", {name: name for name in rows.schema.names})], iter([rows]))
    try:
        log.commit(f"{who}-{batch}", [(0, 0)], BatchIdentity(who, 1, "run", batch, "{}"))
    except HeadraceError:
        log.abort(f"{who}-{batch}")
        raise


def commit_again(log: Log, who: str, batch: int, *numbers: int) -> None:
    """As the engine does after its producer was shut out."""
    try:
        commit(log, who, batch, *numbers)
    except HeadraceError:
        commit(log, who, batch, *numbers)


def read(log: Log, topic: str) -> dict[tuple[int, int], int]:
    """The numbers by partition and offset."""
    found: dict[tuple[int, int], int] = {}
    for partition, ends in enumerate(log.snapshot().ends[topic]):
        for records in log.read(topic, partition, ends.start, ends.end, ["N"]):
            values = records.batch.column("N").to_pylist()
            found |= {(partition, at): value for at, value in zip(records.each_offset(), values, strict=True)}
    return found


def numbers(log: Log, topic: str) -> list[int]:
    return sorted(read(log, topic).values())


def test_a_fork_has_the_records_and_takes_what_queries_write(place: Place) -> None:
    log = place.log
    original = log.create_topic(SPEC)
    commit(log, QUERY, 0, 1, 2, 3)
    commit(log, QUERY, 1, 4, 5)
    before = read(log, "ROLLING")
    fork = log.fork_topic("ROLLING", "ROLLING.v1", WRITERS)
    assert (fork.forked_from, fork.schemas) == (original.id, original.schemas)
    assert log.fork_topic("ROLLING", "ROLLING.v1", WRITERS) == fork
    assert read(log, "ROLLING.v1") == read(log, "ROLLING") == before
    commit_again(log, QUERY, 2, 6)
    commit(log, f"{PUBLISHER_PREFIX}ROLLING", 0, 7)
    commit(log, QUERY, 3, 8)
    for _ in range(2):
        assert numbers(log, "ROLLING.v1") == [1, 2, 3, 4, 5, 6, 8]
        assert numbers(log, "ROLLING") == [1, 2, 3, 4, 5, 7]
        assert before.items() <= read(log, "ROLLING.v1").items()
        place.reopen()
        log = place.log
    assert log.topic("ROLLING.v1") == fork
    # Every part of a range is read, and nothing beyond it.
    for partition, ends in enumerate(log.snapshot().ends["ROLLING.v1"]):
        whole = [at for number, at in sorted(read(log, "ROLLING.v1")) if number == partition]
        for start in range(ends.start, ends.end + 1):
            found = [at for part in log.read("ROLLING.v1", partition, start, ends.end) for at in part.each_offset()]
            assert found == [at for at in whole if at >= start]
        with pytest.raises(OffsetOutOfRange):
            log.read("ROLLING.v1", partition, ends.end + 1)
        for (number, at), value in read(log, "ROLLING.v1").items():
            if number == partition:
                assert log.offset_at_time("ROLLING.v1", partition, value) <= at
    # Each is deleted without the other.
    log.delete_topic("ROLLING.v1")
    assert numbers(log, "ROLLING") == [1, 2, 3, 4, 5, 7]


def test_a_fork_of_nothing_and_a_name_that_is_taken(log: Log) -> None:
    log.create_topic(SPEC)
    log.create_topic(TopicSpec("ROLLING.v2", SPEC.key, SPEC.value, partitions=2, role="derived"))
    with pytest.raises(Conflict, match="exists already and is another one"):
        log.fork_topic("ROLLING", "ROLLING.v2")
    log.fork_topic("ROLLING", "ROLLING.v1")
    commit(log, QUERY, 0, 1)
    assert (numbers(log, "ROLLING"), numbers(log, "ROLLING.v1")) == ([], [1])


@pytest.fixture
def two(kafka: str, tmp_path: Path) -> tuple[KafkaLog, KafkaLog]:
    """The log as a server and as an engine have it open."""
    place = KafkaPlace(kafka, tmp_path)
    assert isinstance(place.log, KafkaLog)
    engine = place.log
    place._open()
    assert isinstance(place.log, KafkaLog)
    return place.log, engine


@pytest.mark.slow
def test_an_engine_that_has_not_heard_of_a_fork_cannot_write_to_the_original(two: tuple[KafkaLog, KafkaLog]) -> None:
    server, engine = two
    engine.create_topic(SPEC)
    commit(engine, QUERY, 0, 1)
    server.fork_topic("ROLLING", "ROLLING.v1", WRITERS)
    with pytest.raises(HeadraceError):
        commit(engine, QUERY, 1, 2)
    commit(engine, QUERY, 1, 2)
    commit(server, f"{PUBLISHER_PREFIX}ROLLING", 0, 3)
    commit(engine, QUERY, 2, 4)
    for log in two:
        assert (numbers(log, "ROLLING"), numbers(log, "ROLLING.v1")) == ([1, 3], [1, 2, 4])
    server.delete_topic("ROLLING")
    assert numbers(engine, "ROLLING.v1") == [2, 4]
    for log in two:
        log.close()


@pytest.mark.slow
def test_a_fork_on_kafka_that_was_cut_short_is_finished(two: tuple[KafkaLog, KafkaLog]) -> None:
    """As after kill -9 before it is known where the fork begins. What the query writes until then is in the fork."""
    server, engine = two
    server.create_topic(SPEC)
    commit(engine, QUERY, 0, 1)
    with (
        patch.object(server._batches, "shut_out", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        server.fork_topic("ROLLING", "ROLLING.v1", WRITERS)
    assert "ROLLING.v1" not in server.snapshot().ends
    commit(engine, QUERY, 1, 2)
    # Whether it was shut out or not, it may write on: it does not know of the fork until it is shut out.
    with patch.object(server.offsets, "written", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        server.fork_topic("ROLLING", "ROLLING.v1", WRITERS)
    commit_again(engine, QUERY, 2, 3)
    made = server.fork_topic("ROLLING", "ROLLING.v1", WRITERS)
    assert numbers(server, "ROLLING.v1") == [1, 2, 3]
    assert numbers(server, "ROLLING") == [1, 2]
    assert len(made.fork_at) == 2
    assert server.snapshot().ends["ROLLING.v1"] != (PartitionEnds(0, 0),) * 2
    for log in two:
        log.close()
