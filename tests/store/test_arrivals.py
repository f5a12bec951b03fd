"""Stretches of a topic: complete up to one arrival number, whatever their size and however records are spread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.errors import NotFound
from headrace.log.base import ARRIVAL, Append, Records, TopicSpec
from headrace.log.local.open import LocalLog
from headrace.store.arrivals import (
    BEGINNING,
    behind,
    gathered,
    merge,
    position_at_end,
    position_at_start,
    read_stretch,
)
from headrace.types import BIGINT, Column


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    opened = LocalLog(tmp_path, LogSettings(linger_ms=0), SystemClock(), serve=False)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalLog]:
    opened = LocalLog(tmp_path_factory.mktemp("log"), LogSettings(linger_ms=0), SystemClock(), serve=False)
    yield opened
    opened.close()


def append(log: LocalLog, topic: str, partition: int, values: list[int]) -> None:
    batch = pa.record_batch({"N": pa.array(values, pa.int64())})
    log.append([Append(topic, batch, partition)]).result()


names = (f"t{number}" for number in range(100_000))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    groups=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 7)), min_size=1, max_size=8),
    max_rows=st.integers(1, 12),
)
def test_stretches_add_up_to_the_topic_in_order(shared: LocalLog, groups: list[tuple[int, int]], max_rows: int) -> None:
    topic = next(names)
    shared.create_topic(TopicSpec(topic, value=(Column("N", BIGINT),), partitions=3, role="derived"))
    other = next(names)
    shared.create_topic(TopicSpec(other, value=(Column("N", BIGINT),), role="derived"))
    written: list[int] = []
    for partition, rows in groups:
        append(shared, other, 0, [0])  # arrival numbers of one topic have gaps
        append(shared, topic, partition, list(range(len(written), len(written) + rows)))
        written += range(len(written), len(written) + rows)
    now = shared.snapshot()
    position, read, last = BEGINNING, [], -1
    while behind(now, topic, position):
        stretch = read_stretch(shared, topic, position, now, max_rows=max_rows)
        batch = merge(stretch.records)
        assert stretch.rows <= max(3, max_rows)
        if batch is not None:
            arrivals = batch.column(ARRIVAL).to_pylist()
            assert [last, *arrivals, stretch.position.arrival] == sorted([last, *arrivals, stretch.position.arrival])
            assert last < arrivals[0] <= arrivals[-1] < stretch.position.arrival
            last = arrivals[-1]
            read += batch.column("N").to_pylist()
        position = stretch.position
    assert read == written
    assert position == position_at_end(shared, now, topic)


def test_nothing_new_is_nothing(log: LocalLog) -> None:
    log.create_topic(TopicSpec("t", value=(Column("N", BIGINT),), partitions=2))
    now = log.snapshot()
    assert read_stretch(log, "t", position_at_start(log, now, "t"), now).rows == 0
    assert merge([]) is None


def test_a_topic_that_is_not_there(log: LocalLog) -> None:
    with pytest.raises(NotFound, match="topic `t` does not exist"):
        read_stretch(log, "t", BEGINNING, log.snapshot())
    assert behind(log.snapshot(), "t", BEGINNING) == 0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2), min_size=1, max_size=6))),
    st.integers(1, 20),
)
def test_small_frames_are_gathered_and_every_row_keeps_its_offset(
    frames: list[tuple[int, list[int]]], rows: int
) -> None:
    """Each frame begins some offsets behind the one before, and so does each of its rows."""
    made, offset = [], 0
    for gap, gaps in frames:
        offset += gap
        offsets = [(offset := offset + more + 1) - 1 for more in gaps]
        batch = pa.record_batch({"N": pa.array(offsets, pa.int64())})
        made.append(Records("numbers", 1, offsets[0], batch, offsets if any(gaps[1:]) else None))
    runs = list(gathered(made, rows))
    assert [at for run in runs for at in run.each_offset()] == [at for one in made for at in one.each_offset()]
    for run in runs:
        assert run.batch.column("N").to_pylist() == list(run.each_offset())
    assert all(run.batch.num_rows >= rows for run in runs[:-1])
