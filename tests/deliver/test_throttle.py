"""EMIT CHANGES EVERY: the newest of each key, no more often than asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from headrace.deliver import throttle
from headrace.deliver.base import FeedEvent
from headrace.deliver.push import end
from headrace.deliver.throttle import throttled


def row(key: str, value: int) -> FeedEvent:
    return FeedEvent("row", {"row": [key, value]})


async def script(*steps: FeedEvent | float) -> AsyncIterator[FeedEvent]:
    """Events, and seconds between them."""
    for step in steps:
        if isinstance(step, FeedEvent):
            yield step
        else:
            await asyncio.sleep(step)


async def taken(events: AsyncIterator[FeedEvent]) -> list[Any]:
    async with asyncio.timeout(30):
        return [event.data.get("row", event.event) for event in [one async for one in events]]


def test_the_newest_of_each_key_once_an_interval() -> None:
    events = script(
        FeedEvent("header", {}), row("a", 1), row("b", 1), row("a", 2), 0.5, row("a", 3), row("a", 4), end("stopped")
    )
    assert asyncio.run(taken(throttled(events, [0], 0.2))) == ["header", ["b", 1], ["a", 2], ["a", 4], "end"]


def test_what_waits_goes_out_before_the_end_and_a_limit_counts_what_goes_out() -> None:
    assert asyncio.run(taken(throttled(script(row("a", 1), row("a", 2)), [0], 60))) == [["a", 2], "end"]
    many = script(*(row(f"k{n}", n) for n in range(5)), end("stopped"))
    assert asyncio.run(taken(throttled(many, [0], 60, limit=2))) == [["k0", 0], ["k1", 1], "end"]
    one = script(row("a", 1), row("a", 2), 0.3, row("a", 3), 60.0)
    assert asyncio.run(taken(throttled(one, [0], 0.1, limit=1))) == [["a", 2], "end"]


def test_many_keys_do_not_wait(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(throttle, "MOST_KEYS", 3)
    events = script(*(row(f"k{n}", n) for n in range(4)), end("stopped"))
    assert asyncio.run(taken(throttled(events, [0], 60))) == [["k0", 0], ["k1", 1], ["k2", 2], ["k3", 3], "end"]
