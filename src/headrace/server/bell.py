"""Waking those who wait for something that happened in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Bell:
    """Wakes whoever waits for a name. Belongs to one event loop."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    def ring(self, name: str) -> None:
        event = self._events.pop(name, None)
        if event is not None:
            event.set()

    def listen(self, name: str) -> asyncio.Event:
        """Set when it is rung from now on. Whoever looks for something listens first: what happens while they look, or
        before they wait, is heard."""
        return self._events.setdefault(name, asyncio.Event())


class Stopping(asyncio.Event):
    """Set when the server is about to stop. Thousands of subscribers are told by callbacks: a task for each that waits
    would cost several kilobytes."""

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: set[Callable[[], None]] = set()

    def call(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when this is set. Whoever might be too late looks at `is_set`."""
        self._callbacks.add(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        self._callbacks.discard(callback)

    def set(self) -> None:
        super().set()
        for callback in tuple(self._callbacks):
            callback()
