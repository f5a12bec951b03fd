"""A topic page by page, on every log there is: `deliver/browse.py` asks nothing of a log but its contract."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headrace.deliver.arrow import read_arrow
from headrace.deliver.browse import Page, offsets_at, read_after, read_before
from headrace.deliver.filtering import compile_where
from headrace.log.base import Append, Log, TopicSpec
from headrace.types import BIGINT, VARCHAR, Column

SPEC = TopicSpec("clicks", (Column("USERID", VARCHAR),), (Column("N", BIGINT),), partitions=2)


@pytest.fixture(autouse=True)
def clicks(log: Log) -> None:
    log.create_topic(SPEC)
    for number in range(20):
        columns: dict[str, Any] = {
            "USERID": [f"u{number}"],
            "N": pa.array([number], pa.int64()),
            "$time": pa.array([1_000_000 + number * 1_000], pa.int64()),
            "$headers": pa.array([[("trace", b"7")]], pa.map_(pa.string(), pa.binary())),
        }
        log.append([Append("clicks", pa.record_batch(columns), number % 2)]).result()


def numbers(page: Page) -> list[int]:
    return [json.loads(record)["value"]["n"] for record in page.records]


def test_forwards_and_backwards(log: Log) -> None:
    start = offsets_at(log, "clicks")
    first = read_after(log, "clicks", start, 7)
    second = read_after(log, "clicks", first.next, 100)
    assert numbers(first) + numbers(second) == list(range(20))
    assert json.loads(first.records[0])["headers"] == {"trace": "7"}
    newest = read_before(log, "clicks", offsets_at(log, "clicks", before="latest"), 6)
    assert numbers(newest) == [14, 15, 16, 17, 18, 19]
    assert numbers(read_before(log, "clicks", newest.first, 4)) == [10, 11, 12, 13]


def test_from_a_time_and_with_a_condition(log: Log) -> None:
    since = read_after(log, "clicks", offsets_at(log, "clicks", time=1_016_000), 100)
    assert numbers(since)[-4:] == [16, 17, 18, 19]
    where = compile_where(log.topic("clicks"), "n > 16 OR (userid = 'u3' AND ROWPARTITION = 1)")
    assert numbers(read_after(log, "clicks", offsets_at(log, "clicks"), 100, where=where)) == [3, 17, 18, 19]


def test_as_arrow(log: Log) -> None:
    page = read_arrow(log, "clicks", offsets_at(log, "clicks"), 100, 1 << 20)
    found = [number for batch in page.batches for number in batch.column("N").to_pylist()]
    assert sorted(found) == list(range(20))
    assert read_arrow(log, "clicks", page.next, 100, 1 << 20).batches == []
