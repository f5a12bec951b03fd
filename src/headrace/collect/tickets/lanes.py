"""Requests that must wait, each behind those of its sender for the same topic: nobody waits for somebody else's."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

Lane = tuple[str, str]
"""A topic, and who sends to it: a key, or an address. Within it requests are done in the order they came."""

PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0


@dataclass(slots=True)
class _Held:
    tickets: deque[str] = field(default_factory=deque)
    pause: float = 0.0


class Lanes:
    """Those that are held up. Not safe for several threads by itself."""

    def __init__(self) -> None:
        self._held: dict[Lane, _Held] = {}
        self._due: list[tuple[float, Lane]] = []
        """Each lane once, but for one that is being tried."""
        self._count = 0

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._held

    def __len__(self) -> int:
        """Of the tickets."""
        return self._count

    def waiting(self, lane: Lane) -> int:
        return len(self._held[lane].tickets) if lane in self._held else 0

    def follow(self, lane: Lane, ticket: str) -> None:
        """Behind those that are held up already."""
        self._held[lane].tickets.append(ticket)
        self._count += 1

    def hold(self, lane: Lane, tickets: Sequence[str], now: float, at_least: float) -> None:
        """Before all others of a lane that is held up, or was being tried: it failed, so each time it waits longer."""
        held = self._held.setdefault(lane, _Held())
        held.pause = min(LONGEST_PAUSE_S, max(at_least, held.pause * 2, PAUSE_S))
        self._put(lane, tickets, now + held.pause)

    def go_on(self, lane: Lane, tickets: Sequence[str], now: float) -> None:
        """What was tried worked; these, and those that followed, are next. Without any, the lane is free."""
        self._held[lane].pause = 0.0
        if tickets or self._held[lane].tickets:
            self._put(lane, tickets, now)
        else:
            del self._held[lane]

    def _put(self, lane: Lane, tickets: Sequence[str], due: float) -> None:
        self._held[lane].tickets.extendleft(reversed(tickets))
        self._count += len(tickets)
        heapq.heappush(self._due, (due, lane))

    def next(self, now: float, most: int) -> tuple[Lane, list[str]] | None:
        """The first tickets of a lane that is to be tried. `hold` or `go_on` says how that went."""
        if not self._due or self._due[0][0] > now:
            return None
        _, lane = heapq.heappop(self._due)
        tickets = self._held[lane].tickets
        taken = [tickets.popleft() for _ in range(min(most, len(tickets)))]
        self._count -= len(taken)
        return lane, taken

    def pause(self, now: float) -> float | None:
        """Seconds until one is to be tried; None if none is held up."""
        return max(0.0, self._due[0][0] - now) if self._due else None
