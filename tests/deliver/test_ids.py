"""Ids of feed events on a log without arrival numbers: whatever is sent, what follows an id is exactly the rest."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.deliver.ids import base36, id_of_offsets, ids_of, parse_id
from headrace.errors import UsageError
from headrace.log.base import TIME, Records
from headrace.store.arrivals import merge, position_of

partitions = st.lists(st.lists(st.integers(0, 50), max_size=12), min_size=1, max_size=4)
"""Of each partition the times of its records, in order of their offsets."""


def records(times: list[list[int]]) -> list[Records]:
    """Every other offset has a record, as with Kafka's transactions."""
    return [
        Records(
            "t", number, 0, pa.record_batch({TIME: pa.array(part, pa.int64())}), [2 * at for at in range(len(part))]
        )
        for number, part in enumerate(times)
        if part
    ]


def places(batch: pa.RecordBatch | None) -> list[tuple[int, int]]:
    columns = [] if batch is None else [batch.column(name).to_pylist() for name in ("$partition", "$offset")]
    return list(zip(*columns, strict=True))


@settings(deadline=None)
@given(partitions)
def test_each_partition_stays_in_order_and_the_whole_is_nearly_in_order_of_time(times: list[list[int]]) -> None:
    batch = merge(records(times))
    found = places(batch)
    assert sorted(found) == [(number, 2 * at) for number, part in enumerate(times) for at in range(len(part))]
    for number in range(len(times)):
        offsets = [offset for partition, offset in found if partition == number]
        assert offsets == sorted(offsets)
    if batch is not None and all(part == sorted(part) for part in times):
        assert batch.column(TIME).to_pylist() == sorted(batch.column(TIME).to_pylist())


@settings(deadline=None)
@given(partitions)
def test_what_follows_an_id_is_the_rest(times: list[list[int]]) -> None:
    start = position_of(dict.fromkeys(range(len(times)), 0))
    batch = merge(records(times), start)
    sent = places(batch)
    for count, id_ in enumerate([] if batch is None else ids_of(batch, 3, start), 1):
        parsed = parse_id(id_)
        assert parsed.version == 3
        left = places(merge(records(times), position_of(dict(enumerate(parsed.offsets)))))
        assert sorted(left) == sorted(sent[count:])


@given(st.lists(st.integers(0, 2**60), min_size=1, max_size=8), st.integers(0, 10**8))
def test_an_id_says_what_it_was_made_of(offsets: list[int], version: int) -> None:
    parsed = parse_id(id_of_offsets(version, offsets))
    assert (parsed.version, parsed.offsets) == (version, tuple(offsets))


@given(st.integers(0, 2**63))
def test_base_36(number: int) -> None:
    assert int(base36(number), 36) == number


@pytest.mark.parametrize("text", ["", "1", "1-", "1-x", "a-1", "1@", "1@1..2", "1@A", "1-1-1", "1@-1", "１-1", "1-1\n"])
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(UsageError, match="is not an event id"):
        parse_id(text)
