"""What an evaluation reads of the log: only what can matter, and never more than was there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import DeadlineExceeded
from headrace.log.local.open import LocalLog
from headrace.sql.expressions import ColumnRef
from headrace.sql.functions.arrays import hashable
from headrace.sql.plan import Aggregate, Named, Scan
from headrace.sql.source import Source
from headrace.types import BIGINT, VARCHAR, Column
from headrace.views.aggregates import aggregate_stream
from headrace.views.reading import Reader
from headrace.views.traced import Traced, Wanted
from tests.store.project import create_topic, open_log, write

CLICKS = Source("CLICKS", "stream", "clicks", (Column("K", VARCHAR),), (Column("N", BIGINT),), partitions=2)
USERS = Source("USERS", "table", "users", (Column("ID", VARCHAR),), (Column("TEAM", VARCHAR),), partitions=2)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    log = open_log(tmp_path)
    create_topic(log, CLICKS, 2)
    create_topic(log, USERS, 2)
    for number, time in enumerate((0, 10, 20, 30, 40, 15, 50)):
        write(log, CLICKS, {"K": "ab"[number % 2], "N": number, "$time": time}, partition=number % 2)
    yield log
    log.close()


def numbers(rows: list[Traced]) -> list[Any]:
    return [row.values["N"] for row in rows]


def only(**columns: Any) -> dict[str, frozenset[Any]]:
    return {name: frozenset({hashable(value)}) for name, value in columns.items()}


def test_records_come_by_arrival_up_to_the_cut(log: LocalLog) -> None:
    now = log.snapshot().arrival
    rows = Reader(log, now).read(CLICKS)
    assert numbers(rows) == [0, 1, 2, 3, 4, 5, 6]
    assert [(row.origins[0].partition, row.origins[0].offset) for row in rows[:3]] == [(0, 0), (1, 0), (0, 1)]
    assert numbers(Reader(log, rows[3].arrival).read(CLICKS)) == [0, 1, 2]
    assert numbers(Reader(log, now, starts={"clicks": {0: 2, 1: 1}}).read(CLICKS)) == [3, 4, 5, 6]


def test_a_key_and_a_window_narrow_it(log: LocalLog) -> None:
    reader = Reader(log, log.snapshot().arrival)
    assert numbers(reader.read(CLICKS, Wanted(only(K="b")))) == [1, 3, 5]
    assert numbers(reader.read(CLICKS, Wanted(only(K="b", N=3)))) == [3]
    assert numbers(reader.read(CLICKS, Wanted(since=10, until=30))) == [1, 2, 5]
    assert numbers(reader.read(CLICKS, Wanted(since=10, until=30, closes=40))) == [1, 2], "5 came after it closed"
    late = Reader(log, log.snapshot().arrival, late={("clicks", 1): [2]})
    assert numbers(late.read(CLICKS, Wanted(since=10, until=30, closes=40))) == [1, 2, 5], "unless it is admitted"
    assert numbers(late.read(CLICKS, Wanted(since=10, until=30))) == [1, 2, 5], "and never twice"
    assert numbers(Reader(log, log.snapshot().arrival, only={("clicks", 0): [1, 3]}).read(CLICKS)) == [2, 6]


def test_a_tables_row_is_followed_wherever_it_goes(log: LocalLog) -> None:
    for id_, team in (("x", "red"), ("y", "blue"), ("x", "blue"), ("z", "red"), ("z", None)):
        write(log, USERS, {"ID": id_, "TEAM": team, "$tombstone": team is None}, partition=0)
    rows = Reader(log, log.snapshot().arrival).read(USERS, Wanted(only(TEAM="red")))
    found = [(row.values["ID"], row.values["TEAM"], row.gone) for row in rows]
    assert found == [("x", "red", False), ("x", "blue", False), ("z", "red", False), ("z", None, True)]


def test_what_is_gone_or_takes_too_long_is_said(log: LocalLog) -> None:
    log.delete_records("clicks", 0, 1)
    reader = Reader(log, log.snapshot().arrival)
    assert (numbers(reader.read(CLICKS)), reader.missing) == ([1, 2, 3, 4, 5, 6], {"clicks"})
    begun = Reader(log, log.snapshot().arrival, starts={"clicks": {0: 1}})
    assert (numbers(begun.read(CLICKS)), begun.missing) == ([1, 2, 3, 4, 5, 6], set()), "it never had read that"
    with pytest.raises(DeadlineExceeded):
        Reader(log, log.snapshot().arrival, deadline=0.0).read(CLICKS)


def test_time_is_up_for_what_is_computed_too(log: LocalLog) -> None:
    """A few keys may have most of a topic: read in no time, and then computed one record at a time."""
    reader = Reader(log, log.snapshot().arrival)
    rows = reader.read(CLICKS)
    node = Aggregate(Scan(CLICKS), (Named("K", ColumnRef("K", type=VARCHAR)),), ())
    assert len(aggregate_stream(node, rows, Wanted(), [], reader)) == 2
    reader.deadline = 0.0
    with pytest.raises(DeadlineExceeded):
        aggregate_stream(node, rows, Wanted(), [], reader)
