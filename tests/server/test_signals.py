"""A signal stops a server whose event loop has more to do than its wake-up pipe holds."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from headrace.server.signals import stop_on_signals


def test_a_signal_is_not_lost_while_the_wake_up_pipe_is_full() -> None:
    async def work() -> None:
        loop: Any = asyncio.get_running_loop()
        stop = stop_on_signals()
        try:
            while True:
                loop._csock.send(b"\0" * 4096)
        except BlockingIOError:
            os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            await stop.wait()
        assert stop.is_set()

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        asyncio.run(work())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
