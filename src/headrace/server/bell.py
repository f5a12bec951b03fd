"""Waking those who wait for something that happened in this process."""

from __future__ import annotations

import asyncio


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
