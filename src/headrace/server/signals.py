"""Stopping by a signal, however busy the event loop is."""

from __future__ import annotations

import asyncio
import signal


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set. Called in the main thread, in a running loop.

    `loop.add_signal_handler` passes a signal on as a byte of the loop's wake-up pipe, and loses it while the pipe is
    full, as when thousands of subscribers leave at once. A plain handler runs whatever the pipe holds.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    return stop
