"""How long to wait before a failed query is started again."""

from __future__ import annotations

import random

LONGEST_S = 60.0


class Backoff:
    """Doubles with every failure up to a minute. Half of it is chance, so that queries that failed together do not come
    back together."""

    def __init__(self, first_s: float, chance: random.Random | None = None) -> None:
        self._first_s = first_s
        self._failures = 0
        self._chance = chance or random.Random()

    def next(self) -> float:
        wait = min(LONGEST_S, self._first_s * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return wait * (0.5 + self._chance.random() / 2)

    def reset(self) -> None:
        self._failures = 0
