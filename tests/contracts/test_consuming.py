"""Reading: ranges, snapshots, times, for every log there is."""

from __future__ import annotations

import threading

import pytest

from headrace.errors import NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import Log, PartitionEnds
from tests.log.support import PLAIN, VIEWS, numbers, put, rows


def test_reading_a_range_of_some_columns(log: Log) -> None:
    log.create_topic(VIEWS)
    for first in range(0, 20, 4):
        put(log, "pageviews", 0, USERID=["u"] * 4, N=list(range(first, first + 4)))
    found = [row for records in log.read("pageviews", 0, 3, 9, ["N", "$offset"]) for row in records.batch.to_pylist()]
    assert found == [{"N": n, "$offset": n} for n in range(3, 9)]
    with pytest.raises(UsageError, match="NOPE"):
        log.read("pageviews", 0, 0, columns=["NOPE"])


def test_offsets_outside_the_log_are_refused(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    assert numbers(log, start=1) == []
    for start in (-1, 2):
        with pytest.raises(OffsetOutOfRange) as raised:
            numbers(log, start=start)
        assert (raised.value.data["start"], raised.value.data["end"]) == (0, 1)
    with pytest.raises(NotFound):
        numbers(log, partition=1)


def test_a_snapshot_is_a_moment(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1, 2], time_=[50, 40])
    before = log.snapshot()
    put(log, "plain", N=[3])
    assert (before.arrival, before.ends["plain"]) == (2, (PartitionEnds(0, 2),))
    if "arrival" in log.capabilities:
        assert before.stream_times["plain"] == 50
    assert numbers(log, end=before.ends["plain"][0].end) == [1, 2]


def test_waiting_ends_with_the_next_record(log: Log) -> None:
    log.create_topic(PLAIN)
    assert log.wait(0, 0.01).arrival == 0
    writer = threading.Timer(0.02, put, (log, "plain"), {"N": [1]})
    writer.start()
    assert log.wait(0, 30).arrival == 1
    writer.join()


@pytest.mark.needs("arrival")
def test_stream_time_is_what_arrived_before(log: Log) -> None:
    log.create_topic(VIEWS)
    put(log, "pageviews", USERID=["a", "b", "c", "d"], time_=[10, 5, 30, 20])
    put(log, "pageviews", USERID=["e"], time_=[1])
    stamped = sorted((row["$arrival"], row["$time"], row["$stream_time"]) for row in rows(log, "pageviews"))
    assert stamped == [(0, 10, -1), (1, 5, 10), (2, 30, 10), (3, 20, 30), (4, 1, 30)]


@pytest.mark.needs("arrival")
def test_offsets_by_time_and_by_arrival(log: Log) -> None:
    log.create_topic(PLAIN)
    log.create_topic(VIEWS)
    put(log, "plain", N=[1, 2, 3], time_=[100, 300, 200])
    put(log, "pageviews", 0, USERID=["a"])
    put(log, "plain", N=[4], time_=[400])
    assert [log.offset_at_time("plain", 0, time_ms) for time_ms in (0, 100, 150, 300, 301, 500)] == [0, 0, 1, 1, 3, 4]
    assert [log.offset_at_arrival("plain", 0, arrival) for arrival in range(6)] == [0, 1, 2, 3, 3, 4]
    assert log.offset_at_time("pageviews", 1, 0) == log.offset_at_arrival("pageviews", 1, 0) == 0


def test_stats_count_records_and_bytes(log: Log) -> None:
    log.create_topic(VIEWS)
    put(log, "pageviews", 0, USERID=["a", "b", "c", "d"], time_=[1, 2, 3, 4])
    stats = log.stats("pageviews")
    assert (stats.records, stats.partitions) == (4, (PartitionEnds(0, 4), PartitionEnds(0, 0)))
    if "arrival" in log.capabilities:
        assert stats.stream_time == 4
    if "sizes" in log.capabilities:
        assert stats.bytes > 0
        assert stats.segments >= 1


def test_the_owner_is_there(log: Log) -> None:
    assert log.owner_alive()
