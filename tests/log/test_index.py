"""The sparse index: a file that may be torn anywhere and is then shorter, never wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.log.local.index import (
    ENTRY_SIZE,
    HEADER_SIZE,
    Index,
    decode_index,
    encode_entries,
    encode_index_header,
)


@st.composite
def indexes(draw: st.DrawFn) -> Index:
    count = draw(st.integers(0, 8))
    index = Index()
    for column, least in ((index.offsets, 0), (index.positions, 64), (index.arrivals, 0), (index.times_before, -1)):
        steps = draw(st.lists(st.integers(1, 2**40), min_size=count, max_size=count))
        total = least - 1
        for step in steps:
            total += step
            column.append(total)
    return index


@given(indexes(), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_an_index_is_read_back(index: Index, generation: int, base: int) -> None:
    data = encode_index_header(generation, base) + encode_entries(index)
    assert decode_index(data, generation, base) == index
    assert len(decode_index(data, generation + 1, base)) == 0
    assert len(decode_index(data, generation, base + 1)) == 0


@given(indexes(), st.data())
def test_a_torn_index_is_a_shorter_one(index: Index, data: st.DataObject) -> None:
    whole = encode_index_header(0, 0) + encode_entries(index)
    cut = data.draw(st.integers(0, len(whole)))
    # A crash may leave zeros where the file had grown already.
    torn = whole[:cut] + bytes(data.draw(st.integers(0, 2 * ENTRY_SIZE)))
    found = decode_index(torn, 0, 0)
    assert found.offsets == index.offsets[: len(found)]
    assert found.times_before == index.times_before[: len(found)]
    assert len(found) >= (cut - HEADER_SIZE) // ENTRY_SIZE


@given(indexes(), st.integers(0, 2**41), st.integers(-1, 2**41))
def test_searches_agree_with_looking_at_every_entry(index: Index, wanted: int, time_ms: int) -> None:
    def last(column: list[int], limit: int) -> int | None:
        return max((number for number, value in enumerate(column) if value <= limit), default=None)

    assert index.before_offset(wanted) == last(index.offsets, wanted)
    assert index.before_arrival(wanted) == last(index.arrivals, wanted)
    assert index.before_time(time_ms) == last(index.times_before, time_ms - 1)
