"""EMIT CHANGES EVERY …: of each key's rows the newest, that often.

A row waits until the interval that began with the first one is over; a newer row of its key takes its place. So a
listener gets every key's last row, at most an interval late, and never two rows of a key within one. When more keys
than `MOST_KEYS` wait, they go out at once: memory is bounded, and nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from headrace.deliver.base import FeedEvent
from headrace.deliver.push import end

MOST_KEYS = 10_000


async def throttled(
    events: AsyncIterator[FeedEvent], places: Sequence[int], every_s: float, limit: int | None = None
) -> AsyncIterator[FeedEvent]:
    """`places` of the key in a row. `limit` counts rows that go out, so the events should have none of their own."""
    loop = asyncio.get_running_loop()
    waiting: dict[bytes, FeedEvent] = {}
    due: float | None = None
    coming: asyncio.Future[FeedEvent] | None = None
    left = limit
    try:
        while left is None or left > 0:
            coming = coming or asyncio.ensure_future(_next(events))
            pause = None if due is None else max(0.0, due - loop.time())
            await asyncio.wait([coming], timeout=pause)
            event = coming.result() if coming.done() else None
            if event is not None:
                coming = None
                if event.event == "row":
                    waiting.pop(_key(event, places), None)
                    waiting[_key(event, places)] = event
                    due = loop.time() + every_s if due is None else due
                elif event.event != "end":
                    yield event
            over = event is not None and event.event == "end"
            if over or len(waiting) >= MOST_KEYS or (due is not None and loop.time() >= due):
                for row in list(waiting.values())[:left]:
                    yield row
                left = None if left is None else left - len(waiting)
                waiting, due = {}, None
            if over and (left is None or left > 0):
                assert event is not None
                yield event
                return
        yield end("limit")
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        await events.aclose()  # type: ignore[attr-defined]


async def _next(events: AsyncIterator[FeedEvent]) -> FeedEvent:
    try:
        return await anext(events)
    except StopAsyncIteration:
        return end("stopped")


def _key(event: FeedEvent, places: Sequence[int]) -> bytes:
    row: list[Any] = event.data["row"]
    return msgspec.json.encode([row[place] for place in places])
