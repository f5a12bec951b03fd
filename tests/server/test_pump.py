"""A pump is cheap: there may be thousands of subscribers, each with one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

from headrace.deliver.base import FeedEvent
from headrace.server.pump import Pump, line, message, sse
from tests.server.running import Running

SENT = 100


def test_an_event_is_encoded_once_for_all_subscribers() -> None:
    event = FeedEvent("change", {"key": {"ID": "u1"}, "value": {"NAME": "Ann"}}, "1-7")
    for encode in (sse, message, line):
        assert encode(event) is encode(event)
    assert sse(event) == b'id: 1-7\nevent: change\ndata: {"key":{"ID":"u1"},"value":{"NAME":"Ann"}}\n\n'
    assert line(event) == message(event) + b"\n"


def test_sending_starts_no_task_for_each_event(server: Running) -> None:
    started: list[str] = []
    received: list[int] = []

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        started.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def run() -> None:
        room = asyncio.Event()

        async def events() -> AsyncIterator[FeedEvent]:
            for number in range(SENT):
                yield FeedEvent("change", {"number": number})
                # One by one, not gathered.
                await room.wait()
                room.clear()

        async def send(batch: list[FeedEvent]) -> None:
            received.extend(event.data["number"] for event in batch)
            room.set()

        asyncio.get_running_loop().set_task_factory(make)
        assert await Pump(events(), server.services, "feed").run(send, asyncio.Event().wait(), {})

    with closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(run())
    assert received == list(range(SENT))
    assert len(started) < 10, started
