"""A fork of a topic: the same records at the same offsets, and what queries write goes there from then on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.base import ARRIVAL, PUBLISHER_PREFIX, Append, BatchIdentity, Route, TopicSpec
from headrace.log.local.open import LocalLog
from headrace.types import BIGINT, VARCHAR, Column

SPEC = TopicSpec("ROLLING", (Column("K", VARCHAR),), (Column("N", BIGINT),), partitions=2, role="derived")


def opened(folder: Path) -> LocalLog:
    return LocalLog(folder, LogSettings(linger_ms=0, min_free_bytes=1), SystemClock(), serve=False)


def rows(*numbers: int) -> pa.RecordBatch:
    keys = pa.array([f"key {number}" for number in numbers])
    return pa.record_batch({"K": keys, "N": pa.array(numbers, pa.int64())})


def commit(log: LocalLog, who: str, batch: int, *numbers: int) -> None:
    log.stage(f"{who}-{batch}", 0, 0, [Route("ROLLING", {"K": "K", "N": "N"})], iter([rows(*numbers)]))
    log.commit(f"{who}-{batch}", [(0, 0)], BatchIdentity(who, 1, "run", batch, "{}"))


def read(log: LocalLog, topic: str) -> dict[tuple[int, int], tuple[int, int]]:
    """By partition and offset: number and arrival."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for partition, ends in enumerate(log.snapshot().ends[topic]):
        for records in log.read(topic, partition, ends.start, ends.end, ["N", ARRIVAL]):
            values = zip(records.batch.column("N").to_pylist(), records.batch.column(ARRIVAL).to_pylist(), strict=True)
            found |= {(partition, at): value for at, value in zip(records.each_offset(), values, strict=True)}
    return found


def numbers(log: LocalLog, topic: str) -> list[int]:
    return sorted(number for number, _ in read(log, topic).values())


def test_a_fork_has_the_records_and_takes_what_queries_write(tmp_path: Path) -> None:
    log = opened(tmp_path)
    original = log.create_topic(SPEC)
    log.append([Append("ROLLING", rows(1, 2, 3))]).result()
    log.maintain()
    commit(log, "CTAS_ROLLING_1", 0, 4, 5)
    before = read(log, "ROLLING")
    fork = log.fork_topic("ROLLING", "ROLLING.v1")
    assert (fork.id, fork.forked_from) == (original.id + 1, original.id)
    assert log.fork_topic("ROLLING", "ROLLING.v1") == fork
    assert read(log, "ROLLING.v1") == read(log, "ROLLING") == before
    commit(log, "CTAS_ROLLING_1", 1, 6)
    commit(log, f"{PUBLISHER_PREFIX}ROLLING", 0, 7)
    for _ in range(2):
        assert numbers(log, "ROLLING.v1") == [1, 2, 3, 4, 5, 6]
        assert numbers(log, "ROLLING") == [1, 2, 3, 4, 5, 7]
        assert before.items() <= read(log, "ROLLING.v1").items()
        log.close()
        log = opened(tmp_path)
    # Each is rewritten, retained and deleted without the other.
    log.maintain()
    for partition, ends in enumerate(log.snapshot().ends["ROLLING"]):
        log.delete_records("ROLLING", partition, ends.end)
    log.maintain()
    assert numbers(log, "ROLLING") == []
    assert numbers(log, "ROLLING.v1") == [1, 2, 3, 4, 5, 6]
    log.delete_topic("ROLLING")
    assert numbers(log, "ROLLING.v1") == [1, 2, 3, 4, 5, 6]
    log.close()
    log = opened(tmp_path)
    assert numbers(log, "ROLLING.v1") == [1, 2, 3, 4, 5, 6]
    log.close()


def test_a_fork_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    """As after kill -9 between the links and the journal's record."""
    log = opened(tmp_path)
    log.create_topic(SPEC)
    log.append([Append("ROLLING", rows(1, 2, 3))]).result()
    log.close()
    left = tmp_path / "topics" / "ROLLING.v1" / "0"
    left.mkdir(parents=True)
    (left / f"{0:020}.seg").write_bytes(b"half a segment")
    log = opened(tmp_path)
    log.fork_topic("ROLLING", "ROLLING.v1")
    assert read(log, "ROLLING.v1") == read(log, "ROLLING")
    log.close()
