"""What has arrived and is not yet written: bounded, and handed on in large pieces.

While one piece is written the next one gathers, so the busier a collector is, the larger its writes are; when it is not
busy, nothing waits for longer than `LINGER_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

LINGER_S = 0.005
PIECE_BYTES = 2 * 1024 * 1024
MESSAGE_BYTES, SENDER_BYTES = 64, 384
"""What a message takes in memory besides its bytes, and what the first of another sender takes more: an empty datagram
is not for free."""


@dataclass(slots=True)
class Gathered:
    """Messages of one sender, in their order."""

    address: str
    messages: list[bytes] = field(default_factory=list)
    """Each whole, or, with `lines`, each any number of lines with their ends."""
    lines: bool = False
    size: int = 0
    """Bytes of the messages."""
    weight: int = SENDER_BYTES
    """Bytes in memory."""
    done: list[Callable[[], None]] = field(default_factory=list)
    """To be called when all of them are in the log."""

    def apart(self) -> list[Gathered]:
        """One for each message, which is whole."""
        whole = b"".join(self.messages).split(b"\n") if self.lines else self.messages
        return [Gathered(self.address, [message]) for message in whole if message or not self.lines]


class Pool:
    """For one event loop."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self.bytes = most_bytes, 0
        self._waiting: deque[Gathered] = deque()
        self._some = asyncio.Event()
        self._much = asyncio.Event()
        self._room: list[Callable[[], None]] = []

    @property
    def full(self) -> bool:
        return self.bytes >= self._most

    def when_room(self, resume: Callable[[], None]) -> None:
        """Call it, once, when there is room again."""
        self._room.append(resume)

    def add(self, address: str, message: bytes, *, lines: bool = False, done: Callable[[], None] | None = None) -> None:
        """Whether there is room is for the caller to ask: one who cannot wait loses it, one who can stops reading."""
        last = self._waiting[-1] if self._waiting else None
        if last is None or last.address != address or last.lines != lines or last.weight >= PIECE_BYTES:
            last = Gathered(address, lines=lines)
            self._waiting.append(last)
            self.bytes += last.weight
        last.messages.append(message)
        last.size += len(message)
        last.weight += len(message) + MESSAGE_BYTES
        if done is not None:
            last.done.append(done)
        self.bytes += len(message) + MESSAGE_BYTES
        self._some.set()
        if self.bytes >= PIECE_BYTES:
            self._much.set()

    async def take(self) -> list[Gathered]:
        """The oldest, as much as one write should have."""
        await self._some.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await self._much.wait()
        return self._take()

    def take_rest(self) -> list[Gathered]:
        """At the end: what there is, without waiting; empty when there is nothing."""
        return self._take()

    def _take(self) -> list[Gathered]:
        taken: list[Gathered] = []
        size = 0
        while self._waiting and size < PIECE_BYTES:
            taken.append(self._waiting.popleft())
            size += taken[-1].weight
        self.bytes -= size
        if not self._waiting:
            self._some.clear()
        if self.bytes < PIECE_BYTES:
            self._much.clear()
        if self.bytes < self._most // 2 and self._room:
            waiting, self._room = self._room, []
            for resume in waiting:
                resume()
        return taken
