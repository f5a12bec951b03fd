"""A set of offsets that are mostly next to each other, kept as ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator


class Ranges:
    """Half-open ranges, in order, never touching.

    >>> done = Ranges()
    >>> for offset in (5, 7, 6, 1): done.add(offset)
    >>> list(done), 6 in done, done.next_free(5), done.next_taken(2)
    ([(1, 2), (5, 8)], True, 8, 5)
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, offset: int) -> bool:
        place = bisect_right(self._starts, offset) - 1
        return place >= 0 and offset < self._ends[place]

    def add(self, start: int, end: int | None = None) -> None:
        """Take in [start, end), or one offset."""
        end = start + 1 if end is None else end
        first = bisect_right(self._starts, start)
        if first and self._ends[first - 1] >= start:
            first -= 1
            start = self._starts[first]
        last = first
        while last < len(self._starts) and self._starts[last] <= end:
            end = max(end, self._ends[last])
            last += 1
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def remove(self, offset: int) -> None:
        place = bisect_right(self._starts, offset) - 1
        if place < 0 or offset >= self._ends[place]:
            return
        start, end = self._starts[place], self._ends[place]
        kept = [(low, high) for low, high in ((start, offset), (offset + 1, end)) if low < high]
        self._starts[place : place + 1] = [low for low, _ in kept]
        self._ends[place : place + 1] = [high for _, high in kept]

    def next_free(self, offset: int) -> int:
        """The first offset from this one on that is not in it."""
        place = bisect_right(self._starts, offset) - 1
        return self._ends[place] if place >= 0 and offset < self._ends[place] else offset

    def next_taken(self, offset: int) -> int | None:
        """The first range's start after this offset."""
        place = bisect_right(self._starts, offset)
        return self._starts[place] if place < len(self._starts) else None

    def drop_below(self, offset: int) -> None:
        while self._starts and self._ends[0] <= offset:
            del self._starts[0], self._ends[0]
        if self._starts and self._starts[0] < offset:
            self._starts[0] = offset

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The part of it in [start, end)."""
        found = []
        for place in range(max(0, bisect_right(self._starts, start) - 1), len(self._starts)):
            low, high = max(start, self._starts[place]), min(end, self._ends[place])
            if low >= end:
                break
            if low < high:
                found.append((low, high))
        return found
