"""A topic page by page, forwards and backwards, bounded in records and bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.deliver.arrow import read_arrow
from headrace.deliver.browse import Page, offsets_at_time, read_after, read_before
from headrace.deliver.filtering import compile_where
from headrace.errors import NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import Append, TopicSpec
from headrace.types import BIGINT, VARCHAR, Column
from tests.deliver.serving import Serving

SPEC = TopicSpec("clicks", (Column("USERID", VARCHAR),), (Column("N", BIGINT),), partitions=2)
START = {0: 0, 1: 0}


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    made = Serving(tmp_path)
    made.log.create_topic(SPEC)
    for number in range(20):
        send(made, number)
    yield made
    made.close()


def send(serving: Serving, number: int, rest: str | None = None) -> None:
    batch = pa.record_batch(
        {
            "USERID": [f"u{number}"],
            "N": pa.array([number], pa.int64()),
            "$time": pa.array([number * 1_000], pa.int64()),
            "$id": [f"id{number}"],
            "$rest": pa.array([rest], pa.string()),
        }
    )
    serving.log.append([Append("clicks", batch, number % 2)]).result()


def numbers(page: Page) -> list[int]:
    return [json.loads(record)["value"]["n"] for record in page.records]


def test_forwards_to_the_end_and_what_comes_later(serving: Serving) -> None:
    seen: list[int] = []
    at: dict[int, int] = START
    for _ in range(10):
        page = read_after(serving.log, "clicks", at, 7)
        seen += numbers(page)
        at = page.next
    assert seen == list(range(20))
    assert (at, page.cut) == ({0: 10, 1: 10}, False)
    send(serving, 20)
    assert numbers(read_after(serving.log, "clicks", at, 7)) == [20]


def test_backwards_to_the_beginning_and_forwards_again(serving: Serving) -> None:
    page = read_before(serving.log, "clicks", {0: 99, 1: 10}, 6)
    assert numbers(page) == [14, 15, 16, 17, 18, 19]
    before = read_before(serving.log, "clicks", page.first, 6)
    assert numbers(before) == [8, 9, 10, 11, 12, 13]
    assert numbers(read_after(serving.log, "clicks", before.next, 6)) == numbers(page)
    oldest = read_before(serving.log, "clicks", before.first, 100)
    assert (numbers(oldest), oldest.first, oldest.cut) == (list(range(8)), START, False)


def test_an_event_has_everything(serving: Serving) -> None:
    send(serving, 21, '{"more": 1}')
    [record] = read_before(serving.log, "clicks", {1: 99}, 1).records
    event: dict[str, Any] = json.loads(record)
    assert event | {"arrival": 0} == {
        "partition": 1,
        "offset": 10,
        "arrival": 0,
        "time_ms": 21_000,
        "id": "id21",
        "key": {"userid": "u21"},
        "value": {"n": 21},
        "rest": {"more": 1},
        "headers": None,
    }


def test_one_partition_an_offset_a_time(serving: Serving) -> None:
    assert numbers(read_after(serving.log, "clicks", {1: 8}, 5)) == [17, 19]
    assert numbers(read_after(serving.log, "clicks", offsets_at_time(serving.log, "clicks", 16_000), 50))[-4:] == [
        16, 17, 18, 19,
    ]  # fmt: skip
    assert numbers(read_after(serving.log, "clicks", {0: 99}, 5)) == []


@pytest.mark.parametrize("read", [read_after, read_before])
def test_a_page_of_huge_records_ends_early_but_has_one(serving: Serving, read: Any) -> None:
    for number in range(20, 30):
        send(serving, number, json.dumps({"big": "x" * 50_000}))
    at = {0: 10, 1: 10} if read is read_after else {0: 99, 1: 99}
    assert len(read(serving.log, "clicks", at, 1000, max_bytes=160_000).records) == 3
    page = read(serving.log, "clicks", at, 1000, max_bytes=1)
    assert (len(page.records), page.cut) == (1, True)


def test_arrow_pages_have_the_same_records(serving: Serving) -> None:
    seen: list[tuple[int, int]] = []
    at: dict[int, int] = START
    while True:
        page = read_arrow(serving.log, "clicks", at, 3, 1 << 20)
        if not page.batches:
            break
        for batch in page.batches:
            seen += zip(batch.column("$partition").to_pylist(), batch.column("N").to_pylist(), strict=True)
        at = page.next
    assert seen == [(0, n) for n in range(0, 20, 2)] + [(1, n) for n in range(1, 20, 2)]
    assert {"$partition", "$offset", "N", "USERID"} <= set(page.schema.names)
    assert sum(batch.num_rows for batch in read_arrow(serving.log, "clicks", START, 100, 1).batches) == 1


def test_only_what_a_condition_holds_for(serving: Serving) -> None:
    send(serving, 20, '{"more": 1}')
    topic = serving.log.topic("clicks")

    def found(condition: str, limit: int = 100) -> list[int]:
        return numbers(read_after(serving.log, "clicks", START, limit, where=compile_where(topic, condition)))

    assert found("n > 3 AND n < 8") == [4, 5, 6, 7]
    assert found("userid LIKE 'u1%' AND ROWPARTITION = 1") == [1, 11, 13, 15, 17, 19]
    assert found("EXTRACTJSONFIELD(rest, '$.more') = '1'") == [20]
    assert found("n IS NULL") == []
    page = read_after(serving.log, "clicks", START, 2, where=compile_where(topic, "n >= 5"))
    assert numbers(page) == [5, 6]
    rest = read_after(serving.log, "clicks", page.next, 100, where=compile_where(topic, "n >= 5"))
    assert numbers(rest) == list(range(7, 21))
    back = read_before(serving.log, "clicks", {0: 99, 1: 99}, 2, where=compile_where(topic, "n < 5"))
    assert numbers(back) == [3, 4]
    assert numbers(read_before(serving.log, "clicks", back.first, 9, where=compile_where(topic, "n < 5"))) == [0, 1, 2]


@pytest.mark.parametrize(
    "condition", ["n >", "nothing = 1", "n", "n = 1 GROUP BY n", "1 = 1; DROP TABLE x", "COUNT(*) > 1", "n = 1 LIMIT 3"]
)
def test_what_is_no_condition(serving: Serving, condition: str) -> None:
    with pytest.raises(UsageError, match="condition"):
        compile_where(serving.log.topic("clicks"), condition)


def test_what_cannot_be_asked(serving: Serving) -> None:
    with pytest.raises(UsageError, match="no partition `2`"):
        read_after(serving.log, "clicks", {2: 0}, 1)
    with pytest.raises(UsageError, match="no partition `2`"):
        read_before(serving.log, "clicks", {2: 0}, 1)
    with pytest.raises(NotFound):
        read_after(serving.log, "nothing", {0: 0}, 1)


def test_what_is_gone_is_said_to_be_gone(serving: Serving) -> None:
    with pytest.raises(OffsetOutOfRange, match="the oldest is `0`") as gone:
        read_after(serving.log, "clicks", {0: -1}, 1)
    assert gone.value.data == {"partition": 0, "start": 0}
