"""How much a channel may hold: events and bytes, counted from a put's reservation until a take is committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headrace.collect.agents.base import ChannelFull

TAKE_BYTES = 32 * 1024 * 1024
"""A take ends after so many, however many events it may have: a sink's batch is in memory."""


class Room:
    """Safe to use from several threads. `changed` is notified whenever there is more room or more to take."""

    def __init__(self, name: str, capacity: int, byte_capacity: int | None, patience_s: float) -> None:
        self.name, self.capacity, self.byte_capacity, self.patience_s = name, capacity, byte_capacity, patience_s
        self.changed = threading.Condition()
        self.events = self.bytes = 0
        self.stopping = False

    def reserve(self, events: int, size: int) -> None:
        """Wait for room; `ChannelFull` if there is none in time."""
        if events > self.capacity or (self.byte_capacity is not None and size > self.byte_capacity):
            raise ChannelFull(
                f"{events} events of {size} bytes never fit into channel `{self.name}`",
                hint="raise its capacity, or make the source's batches smaller",
                never=True,
            )
        with self.changed:
            if not self._wait(lambda: self._fits(events, size)):
                raise ChannelFull(
                    f"channel `{self.name}` is full: {self.events} of {self.capacity} events",
                    hint="its sinks do not keep up; see their counters",
                )
            self.events += events
            self.bytes += size

    def release(self, events: int, size: int) -> None:
        with self.changed:
            self.events -= events
            self.bytes -= size
            self.changed.notify_all()

    def wake(self) -> None:
        with self.changed:
            self.stopping = True
            self.changed.notify_all()

    def _fits(self, events: int, size: int) -> bool:
        if self.events + events > self.capacity:
            return False
        return self.byte_capacity is None or self.bytes + size <= self.byte_capacity

    def _wait(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + self.patience_s
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0 or self.stopping:
                return False
            self.changed.wait(left)
        return True
