"""A topic's records as they are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.deliver.base import FeedEvent
from headrace.deliver.tail import tail
from headrace.errors import NotFound, UsageError
from headrace.log.base import Append, Records, Snapshot, TopicSpec
from headrace.types import BIGINT, VARCHAR, Column
from tests.deliver.serving import Serving, take, take_all

SPEC = TopicSpec("clicks", (Column("USERID", VARCHAR),), (Column("N", BIGINT),), partitions=2)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    made = Serving(tmp_path)
    made.log.create_topic(SPEC)
    yield made
    made.close()


def send(serving: Serving, *numbers: int, partition: int | None = None) -> None:
    batch = pa.record_batch(
        {
            "USERID": [f"u{n}" for n in numbers],
            "N": pa.array(numbers, pa.int64()),
            "$time": pa.array([n * 1_000 for n in numbers], pa.int64()),
            "$id": [f"id{n}" for n in numbers],
            "$rest": ['{"more": 1}' if n % 2 else None for n in numbers],
        }
    )
    serving.log.append([Append("clicks", batch, partition)]).result()


def shown(events: list[dict[str, Any]]) -> list[int]:
    return [event["value"]["n"] for event in events]


def test_what_cannot_be_asked(serving: Serving) -> None:
    with pytest.raises(NotFound):
        tail(serving.delivery, "nothing")
    with pytest.raises(UsageError):
        tail(serving.delivery, "clicks", partition=9)


def test_live(serving: Serving) -> None:
    send(serving, 1)

    async def story() -> list[FeedEvent]:
        from_now = tail(serving.delivery, "clicks")
        from_start = tail(serving.delivery, "clicks", from_beginning=True)
        send(serving, 2, 3)
        return await take(from_now, 2) + await take(from_start, 3)

    events = asyncio.run(story())
    assert shown([event.data for event in events]) == [2, 3, 1, 2, 3]
    assert {event.event for event in events} == {"event"}


def test_one_partition(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = tail(serving.delivery, "clicks", partition=1)
        for number in range(6):
            send(serving, number, partition=number % 2)
        return await take(events, 3)

    assert shown([event.data for event in asyncio.run(story())]) == [1, 3, 5]


def test_another_topic_of_the_same_name_is_another_topic(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        send(serving, 1)
        events = tail(serving.delivery, "clicks", from_beginning=True, heartbeat_s=0.05)
        old = await take(events, 1)
        serving.log.delete_topic("clicks")
        serving.log.create_topic(SPEC)
        send(serving, 2)
        new = await take(tail(serving.delivery, "clicks", from_beginning=True), 1)
        return [*old, *new, *await take_all(events)]

    old, new, end = asyncio.run(story())
    assert shown([old.data, new.data]) == [1, 2]
    assert end.event == "cut"


def test_whoever_waits_for_the_log_is_late(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new topic is read as far as the old one of its name went; nothing of it is there yet, and that passes."""
    replaced, read_since = threading.Event(), threading.Event()
    wait, read = serving.log.wait, serving.log.read

    def late(arrival: int, seconds: float) -> Snapshot:
        found = wait(arrival, seconds)
        if replaced.is_set():
            assert read_since.wait(120)
        return found

    def watched(*range_: Any) -> Iterator[Records]:
        yield from read(*range_)
        if replaced.is_set():
            read_since.set()

    monkeypatch.setattr(serving.log, "wait", late)
    monkeypatch.setattr(serving.log, "read", watched)

    async def story() -> list[FeedEvent]:
        send(serving, 1, partition=0)
        await take(tail(serving.delivery, "clicks", from_beginning=True), 1)
        replaced.set()
        serving.log.delete_topic("clicks")
        serving.log.create_topic(SPEC)
        send(serving, 2, partition=0)
        return await take(tail(serving.delivery, "clicks", from_beginning=True), 1)

    assert shown([event.data for event in asyncio.run(story())]) == [2]


def test_a_topic_that_goes(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = tail(serving.delivery, "clicks", heartbeat_s=0.05)
        serving.log.delete_topic("clicks")
        return await take_all(events)

    assert [event.data for event in asyncio.run(story())] == [{"reason": "the topic is gone"}]
