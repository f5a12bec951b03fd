"""What everybody who follows a topic shares."""

from __future__ import annotations

import asyncio

from headrace.deliver.tails import WOKEN_AT_ONCE, Waiter, wake_all


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
