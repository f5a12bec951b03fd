"""One partition of a queue: what is settled, what is out, what has not been looked at. In memory, without I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from headrace.log.queues.base import MAX_LEASE_S
from headrace.log.queues.ranges import Ranges
from headrace.log.queues.state import CHUNK, Chunk, Delivered, Key, chunk_key, floor_key


@dataclass(slots=True)
class Out:
    """A message that was looked at and is not settled."""

    deliveries: int = 0
    due: float = 0.0
    """Monotonic: when it may be delivered (again)."""
    leased: bool = False
    reason: str | None = None
    key: bytes | None = None


@dataclass(slots=True)
class Lane:
    queue: str
    partition: int
    floor: int
    ordered: bool = False
    done: Ranges = field(default_factory=Ranges)
    out: dict[int, Out] = field(default_factory=dict)
    head: int = 0
    """From here on nothing has been looked at, except what is in `done` and `out`."""
    keys: dict[bytes, deque[int]] = field(default_factory=dict)
    """With order: the unsettled of each key, oldest first. Only the first may be delivered."""
    dirty: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    saved_floor: int = -1

    def __post_init__(self) -> None:
        self.head = max(self.head, self.floor)

    # What becomes of messages

    def look_at(self, offset: int, key: bytes | None) -> bool:
        """A message nobody has seen; whether it may be delivered now."""
        self.out.setdefault(offset, Out()).key = key
        self.head = max(self.head, offset + 1)
        if key is None or not self.ordered:
            return True
        waiting = self.keys.setdefault(key, deque())
        waiting.append(offset)
        return waiting[0] == offset

    def deliver(self, offset: int, until: float) -> Out:
        found = self.out[offset]
        found.deliveries += 1
        found.due, found.leased, found.reason = until, True, None
        self.dirty.add(offset // CHUNK)
        return found

    def put_back(self, offset: int, due: float, reason: str | None) -> None:
        found = self.out[offset]
        found.due, found.leased, found.reason = due, False, reason
        self.dirty.add(offset // CHUNK)

    def extend(self, offset: int, until: float) -> None:
        self.out[offset].due, self.out[offset].leased = until, True
        self.dirty.add(offset // CHUNK)

    def settle(self, offset: int) -> int | None:
        """It is done with. With order, the offset of the next of its key, which may now be delivered."""
        found = self.out.pop(offset, None)
        self.done.add(offset)
        self.dirty.add(offset // CHUNK)
        self._raise_floor()
        return self._next_of(found.key, offset) if found and found.key is not None and self.ordered else None

    def _next_of(self, key: bytes, offset: int) -> int | None:
        waiting = self.keys.get(key)
        if not waiting:
            return None
        first = waiting[0] == offset
        waiting.remove(offset)
        if not waiting:
            del self.keys[key]
            return None
        return waiting[0] if first else None

    def unsettle(self, offset: int, out: Out) -> None:
        """Take `settle` back: what should have been written with it was not."""
        if offset < self.floor:
            self.done.add(offset, self.floor)
            self.floor = offset
        self.done.remove(offset)
        self.out[offset] = out
        if self.ordered and out.key is not None:
            self.keys.setdefault(out.key, deque()).appendleft(offset)
        self.dirty.add(offset // CHUNK)
        self.saved_floor = -1

    def may_go(self, offset: int) -> bool:
        """Whether nothing of its key is before it."""
        out = self.out.get(offset)
        return out is not None and (not self.ordered or out.key is None or self.keys[out.key][0] == offset)

    def skip_below(self, start: int) -> tuple[int, list[int]]:
        """Retention took everything below `start`: how many of those nobody had settled, and what may now go."""
        if start <= self.floor:
            return 0, []
        settled = sum(high - low for low, high in self.done.within(self.floor, start))
        missing = start - self.floor - settled
        following = [self.settle(offset) for offset in sorted(offset for offset in self.out if offset < start)]
        self.done.add(self.floor, max(start, self.floor))
        self._raise_floor()
        return missing, [offset for offset in following if offset is not None and offset >= start]

    def _raise_floor(self) -> None:
        self.floor = self.done.next_free(self.floor)
        self.head = max(self.head, self.floor)
        self.done.drop_below(self.floor)

    # Saving

    def changes(self, now: float, now_ms: int) -> list[tuple[Key, Any]]:
        """What must be written for everything that happened to be remembered."""
        entries: list[tuple[Key, Any]] = []
        passed = self.floor // CHUNK
        if passed != self.saved_floor // CHUNK or self.saved_floor < 0:
            entries.append((floor_key(self.queue, self.partition), self.floor))
            entries += [
                (chunk_key(self.queue, self.partition, chunk), None) for chunk in self.written if chunk < passed
            ]
            self.saved_floor = self.floor
            self.written = {chunk for chunk in self.written if chunk >= passed}
        for chunk in sorted(self.dirty):
            if chunk >= passed:
                entries.append((chunk_key(self.queue, self.partition, chunk), self._chunk(chunk, now, now_ms)))
                self.written.add(chunk)
        self.dirty.clear()
        return entries

    def _chunk(self, chunk: int, now: float, now_ms: int) -> Chunk:
        start, end = chunk * CHUNK, (chunk + 1) * CHUNK
        done = self.done.within(start, end)
        if self.floor > start:
            done = [(start, min(self.floor, end)), *done]
        out = {
            offset: Delivered(found.deliveries, now_ms + int((found.due - now) * 1000), found.reason)
            for offset in range(max(start, self.floor), end)
            if (found := self.out.get(offset)) and found.deliveries
        }
        return Chunk(done, out)

    def restore(self, number: int, chunk: Chunk, now: float, now_ms: int) -> None:
        """Take in what was saved. A lease goes on for what is left of it by the wall clock, and never longer than one
        can be: a clock that was set back must not hide messages."""
        self.written.add(number)
        for low, high in chunk.done:
            if high > self.floor:
                self.done.add(max(low, self.floor), high)
        self._raise_floor()
        for offset, saved in chunk.out.items():
            left = min(max(0.0, (saved.due_ms - now_ms) / 1000), MAX_LEASE_S)
            if offset >= self.floor and offset not in self.done:
                self.out[offset] = Out(saved.deliveries, now + left, left > 0 and saved.reason is None, saved.reason)
