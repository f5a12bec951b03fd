"""Sends that travel together are told their own places."""

from __future__ import annotations

from concurrent.futures import Future
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.base import Appended
from headrace.log.local.cuts import cut_positions
from headrace.log.local.gather import Send, gathered
from tests.log.support import batch

ROWS = st.tuples(st.integers(0, 3), st.booleans())


@given(st.lists(st.lists(ROWS, max_size=5), min_size=1, max_size=8), st.booleans())
def test_each_send_gets_the_places_of_its_own_rows(sends: list[list[tuple[int, bool]]], one: bool) -> None:
    """Row by row, by hand, for any partitions and duplicates."""
    rows = [(0 if one else partition, duplicate) for send in sends for partition, duplicate in send]
    kept = [partition for partition, duplicate in rows if not duplicate]
    nexts = {partition: 100 * partition for partition in range(4)}
    expected = []
    for send in sends:
        places: dict[int, list[int]] = {}
        for partition, duplicate in send:
            if not duplicate:
                number = 0 if one else partition
                places.setdefault(number, []).append(nexts[number])
                nexts[number] += 1
        positions = tuple((number, places[number][0], places[number][-1]) for number in sorted(places))
        expected.append(Appended(positions, tuple(row for row, (_, duplicate) in enumerate(send) if duplicate)))
    whole = Appended(
        tuple((number, 100 * number, 100 * number + kept.count(number) - 1) for number in sorted(set(kept))),
        tuple(row for row, (_, duplicate) in enumerate(rows) if duplicate),
    )
    partitions = 0 if one else np.array(kept, np.int64)
    cuts = tuple(len(send) for send in sends)
    assert cut_positions(whole, partitions, cuts) == expected
    with patch("headrace.log.local.cuts._FEW", 0):
        assert cut_positions(whole, partitions, cuts) == expected


@given(st.lists(st.tuples(st.sampled_from(["s", "t"]), st.sampled_from([None, 0, 1]), st.booleans()), max_size=30))
def test_gathering_keeps_the_order_where_it_matters(given_: list[tuple[str, int | None, bool]]) -> None:
    """Two sends that may meet in a partition stay in the order of the calls; nothing is lost."""
    sends = [
        Send(topic, partition, batch(N=[number]) if plain else batch(M=[number]), Future[Appended]())
        for number, (topic, partition, plain) in enumerate(given_)
    ]
    taken = gathered(sends)
    order = [int(run.batch.column(0)[row].as_py()) for run in taken.runs for row in range(run.batch.num_rows)]
    assert [sends.index(send) for send in taken.sends] == order
    assert sorted(order) == list(range(len(sends)))
    for topic in ("s", "t"):
        for partition in (0, 1):
            meeting = [n for n in order if given_[n][0] == topic and given_[n][1] in (None, partition)]
            by_hand = [n for n in meeting if given_[n][1] == partition]
            assert by_hand == sorted(by_hand)
            if any(given_[n][1] is None for n in meeting):
                assert meeting == sorted(meeting)
    assert all(run.cuts == (1,) * run.batch.num_rows for run in taken.runs)


def test_what_goes_to_one_place_travels_as_one_batch() -> None:
    sends = [Send("t", number % 10, batch(N=[number]), Future[Appended]()) for number in range(1000)]
    taken = gathered(sends)
    [run] = taken.runs
    assert run.partition == tuple(number % 10 for number in range(1000))
    assert (run.batch.column(0).to_pylist(), run.cuts) == (list(range(1000)), (1,) * 1000)
    same = gathered([Send("t", 3, batch(N=[number]), Future[Appended]()) for number in range(5)])
    assert [(run.partition, run.cuts) for run in same.runs] == [(3, (1,) * 5)]
