"""What everybody who follows a topic shares."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.deliver.tails import WOKEN_AT_ONCE, Waiter, wake_all
from tests.deliver.serving import Serving


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    made = Serving(tmp_path)
    yield made
    made.close()


def test_others_get_their_turn_while_thousands_of_subscribers_are_woken() -> None:
    async def run() -> int:
        loop = asyncio.get_running_loop()
        waiting: list[Waiter] = [loop.create_future() for _ in range(20 * WOKEN_AT_ONCE)]
        wake_all(waiting, None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        woken = sum(waiter.done() for waiter in waiting)
        await asyncio.gather(*waiting)
        return woken

    assert asyncio.run(run()) <= 3 * WOKEN_AT_ONCE


def test_a_read_is_shared_for_a_while_and_not_kept(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.deliver.tails.SHARED_SECONDS", 0.0)
    read: list[int] = []

    async def run() -> None:
        tails = serving.delivery.tails
        found = await asyncio.gather(*(tails.share("all", lambda: read.append(1)) for _ in range(50)))
        assert (len(found), read) == (50, [1])
        async with asyncio.timeout(120):
            while tails._reads:
                await asyncio.sleep(0.01)
        await tails.share("all", lambda: read.append(2))

    asyncio.run(run())
    assert read == [1, 2]
