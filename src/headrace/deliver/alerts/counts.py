"""What a count grew by within a time. In memory: counts are kept elsewhere, and after a start the time begins anew."""

from __future__ import annotations

from collections import deque

STEPS = 120
"""Samples that are remembered: the time is cut that finely."""


class Increase:
    """Of one count."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()

    def over(self, count: float, now: float, within: float, above: float) -> float | None:
        """The increase within the time. None while it is not known: it was not watched for so long yet, and what it
        grew by since is not too much.

        >>> counted = Increase()
        >>> [counted.over(n, t, 10, above=2) for t, n in ((0, 7), (1, 8), (2, 10), (10, 10), (11, 10), (13, 10))]
        [None, None, 3, 3, 2, 0]
        """
        samples = self._samples
        if samples and count < samples[-1][1]:
            samples.clear()  # another count: a new version of the view, say
        if not samples or now - samples[-1][0] >= within / STEPS:
            samples.append((now, count))
        while len(samples) > 1 and samples[1][0] <= now - within:
            samples.popleft()
        grown = count - samples[0][1]
        return grown if grown > above or now - samples[0][0] >= within else None
